"""A folder is drained into a store: in order, once, and what stops one file stops no other."""

import errno
import os
from collections.abc import Sequence

import pytest

from forebay.app.commands import draining
from forebay.app.commands.draining import KnownOnly, Options, Outcome, StoreGoneError, drain, in_order
from forebay.failover.sinks import Addressed, Refused
from forebay.model import (
    Block,
    Corrupt,
    Forbidden,
    ForebayError,
    Message,
    Rejected,
    Unauthorized,
    Unavailable,
    UnknownQueue,
    mint,
)
from forebay.spool.aside import reasons
from forebay.spool.lines import Spooled, SpooledBlock, SpooledSettlement, encode_entry
from forebay.spool.names import FileName, Prefix
from tests.disks import SimulatedDisk, _Open


def name_of(number: int, prefix: Prefix = "failover") -> FileName:
    return FileName(prefix, f"019a0c11-7fe8-7000-8000-{number:012d}", "finished")


def block_of(payload: bytes, queue: str = "orders") -> SpooledBlock:
    return SpooledBlock(queue, Block.of([Message(payload)]))


def lines_of(*entries: Spooled) -> bytes:
    return b"".join(map(encode_entry, entries))


class FakeSink:
    """Keeps blocks by id, and raises or refuses as it is told."""

    def __init__(self) -> None:
        self.payloads: list[bytes] = []
        self.ids: set[bytes] = set()
        self.failures: list[ForebayError] = []
        self.writes = 0
        self.away_after: int | None = None
        self.refusing: dict[bytes, ForebayError] = {}

    async def write(self, blocks: Sequence[Addressed]) -> list[Refused]:
        if self.failures:
            raise self.failures.pop(0)
        if self.away_after is not None and self.writes >= self.away_after:
            raise Unavailable("it is away")
        self.writes += 1
        results = [self._one(block) for _, block in blocks]
        return [Refused(i, blocks[i][1], error) for i, error in enumerate(results) if error is not None]

    def _one(self, block: Block) -> ForebayError | None:
        refusal = next((self.refusing[p] for p in block.payloads if p in self.refusing), None)
        if refusal is None and block.id not in self.ids:
            self.ids.add(block.id)
            self.payloads += block.payloads
        return refusal


def disk_of(**files: bytes) -> SimulatedDisk:
    disk = SimulatedDisk()
    for number, data in files.items():
        disk.put(str(name_of(int(number[1:]))), data)
    return disk


def outcome() -> Outcome:
    return Outcome("sqlite:///x.db", "spool")


def test_outcomes_come_first_then_the_oldest_and_what_was_refused_before_the_rest_of_its_file() -> None:
    one, two, three, settled = name_of(1), name_of(2, "qos0"), name_of(3), name_of(4, "settle")
    assert in_order([one, two, three, settled], [three, two]) == [
        (settled, False), (one, False), (two, True), (two, False), (three, True), (three, False),
    ]  # fmt: skip


async def test_files_go_in_in_order_and_are_gone() -> None:
    disk = disk_of(f2=lines_of(block_of(b"3")), f1=lines_of(block_of(b"1"), block_of(b"2", "events")))
    disk.put(str(name_of(3, "qos0")), lines_of(block_of(b"4")))
    disk.make_folder("failed")
    disk.put(f"failed/{name_of(0)}", lines_of(block_of(b"0")))
    sink, found = FakeSink(), outcome()
    await drain(disk, sink, found, Options())
    assert sink.payloads == [b"0", b"1", b"2", b"3", b"4"]
    assert (disk.list(), disk.list("failed")) == ([], [])
    assert (found.messages, dict(found.queues), found.is_complete) == (5, {"orders": 4, "events": 1}, True)
    assert (found.meter.done, found.meter.total) == (5, 5)


async def test_a_store_that_goes_away_ends_it_and_the_next_run_goes_on() -> None:
    disk = disk_of(**{f"f{n}": lines_of(block_of(b"%d" % n)) for n in range(5)})
    sink, found = FakeSink(), outcome()
    sink.away_after = 3
    with pytest.raises(StoreGoneError, match="it is away"):
        await drain(disk, sink, found, Options())
    assert (found.messages, found.meter.done, found.meter.total) == (3, 3, 5)
    assert "3 of 5 events were looked at" in found.sentence()
    assert len(disk.list()) == 2
    sink.away_after = None
    await drain(disk, sink, outcome(), Options())
    assert sink.payloads == [b"0", b"1", b"2", b"3", b"4"]
    assert disk.list() == []


async def test_a_store_that_is_away_for_a_moment_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(draining, "PAUSE_SECONDS", 0.0)
    sink, found = FakeSink(), outcome()
    sink.failures = [Unavailable("it is away"), Unavailable("it is still away")]
    await drain(disk_of(f1=lines_of(block_of(b"1"))), sink, found, Options(retry_seconds=60))
    assert (found.messages, sink.payloads) == (1, [b"1"])


@pytest.mark.parametrize("error", [Unauthorized("no valid key"), Forbidden("the key lacks the scope push")])
async def test_a_key_that_is_refused_sets_nothing_aside(error: ForebayError) -> None:
    disk = disk_of(f1=lines_of(block_of(b"1"), block_of(b"2")))
    sink = FakeSink()
    sink.failures = [error]
    with pytest.raises(StoreGoneError):
        await drain(disk, sink, outcome(), Options())
    assert disk.list() == [str(name_of(1))]
    assert disk.list("failed") == []


async def test_what_is_refused_is_set_aside_with_its_reason_and_tried_again_next_time(
    capsys: pytest.CaptureFixture[str],
) -> None:
    disk = disk_of(f1=lines_of(block_of(b"1"), block_of(b"2"), block_of(b"3")))
    sink, found = FakeSink(), outcome()
    sink.refusing[b"2"] = Rejected("it is bad")
    await drain(disk, sink, found, Options())
    assert sink.payloads == [b"1", b"3"]
    assert (found.messages, found.refused, found.is_complete) == (2, 1, False)
    assert [(reason.line, reason.reason) for reason in reasons(disk, name_of(1))] == [(2, "it is bad")]
    assert f"{name_of(1)} line 2: refused: it is bad" in capsys.readouterr().err
    await drain(disk, sink, found := outcome(), Options())
    assert (found.refused, len(disk.list("failed"))) == (1, 2)
    assert f"failed/{name_of(1)}: 1 event refused again: it is bad" in capsys.readouterr().err
    sink.refusing.clear()
    await drain(disk, sink, found := outcome(), Options())
    assert found.is_complete
    assert sink.payloads == [b"1", b"3", b"2"]
    assert disk.list("failed") == [f"{name_of(1).stem}.reasons"]


async def test_with_keep_nothing_is_changed_and_nothing_is_written_twice() -> None:
    disk = disk_of(f1=lines_of(block_of(b"1"), block_of(b"2")), f2=lines_of(block_of(b"3")))
    disk.make_folder("failed")
    disk.put(f"failed/{name_of(0)}", lines_of(block_of(b"0")))
    before = {name: disk.content(name) for name in disk.list()}
    sink = FakeSink()
    sink.refusing[b"2"] = Rejected("it is bad")
    for _ in range(2):
        found = outcome()
        await drain(disk, sink, found, Options(keep=True))
        assert (found.messages, found.refused) == (3, 1)
    assert sink.payloads == [b"0", b"1", b"3"]
    assert {name: disk.content(name) for name in disk.list()} == before
    assert disk.list("failed") == [str(name_of(0))]


async def test_damage_is_said_by_line_and_set_aside() -> None:
    disk = disk_of(f1=b"{\n" + lines_of(block_of(b"1")))
    sink, found = FakeSink(), outcome()
    await drain(disk, sink, found, Options())
    assert (sink.payloads, found.damaged, found.is_complete) == ([b"1"], 1, False)
    assert disk.content(f"failed/{name_of(1).stem}.bad") == b"{\n"
    assert (found.meter.done, found.meter.total) == (2, 2)


class BadDisk(SimulatedDisk):
    """One file can't be read beyond its count."""

    bad = str(name_of(1))
    opened = 0

    def open(self, name: str, *, create: bool = False) -> _Open:
        if name == self.bad:
            self.opened += 1
            if self.opened > 1:
                raise OSError(errno.EIO, os.strerror(errno.EIO))
        return super().open(name, create=create)


async def test_a_file_that_the_disk_does_not_give_stays_and_the_others_go_in() -> None:
    disk = BadDisk()
    for number in (1, 2):
        disk.put(str(name_of(number)), lines_of(block_of(b"%d" % number)))
    sink, found = FakeSink(), outcome()
    await drain(disk, sink, found, Options())
    assert sink.payloads == [b"2"]
    assert found.left == {disk.bad: "the spool can't be read: Input/output error"}
    assert disk.list() == [disk.bad]


async def test_queues_that_are_not_there_are_refused_before_a_server_makes_them() -> None:
    sink = FakeSink()
    sink.refusing[b"3"] = Rejected("it is bad")
    entries = [block_of(b"1"), block_of(b"2", "events"), block_of(b"3"), block_of(b"4")]
    refused = await KnownOnly(sink, {"orders"}).write([(entry.queue, entry.block) for entry in entries])
    assert {each.place: type(each.error) for each in refused} == {1: UnknownQueue, 2: Rejected}
    assert sink.payloads == [b"1", b"4"]


class FakeLog:
    """Takes outcomes; one it can't read, and two come too late."""

    def __init__(self) -> None:
        self.settled: list[bytes] = []

    async def settle(self, entries: Sequence[SpooledSettlement]) -> int:
        if any(entry.payload == b"bad" for entry in entries):
            raise Corrupt("this is no outcome")
        self.settled += [entry.payload for entry in entries]
        return sum(entry.payload == b"late" for entry in entries)


async def test_outcomes_of_tasks_go_into_a_log_in_order_and_what_it_can_not_read_is_set_aside() -> None:
    disk, log, found, name = SimulatedDisk(), FakeLog(), outcome(), name_of(1, "settle")
    payloads = [b"1", b"late", b"2", b"bad", b"3", b"late"]
    disk.put(str(name), lines_of(*(SpooledSettlement(mint(), payload) for payload in payloads)))
    await drain(disk, FakeSink(), found, Options(), log.settle)
    assert log.settled == [b"1", b"late", b"2", b"3", b"late"]
    assert (found.settlements, found.late, found.refused) == (5, 2, 1)
    assert [(reason.line, reason.reason) for reason in reasons(disk, name)] == [(4, "this is no outcome")]
    await drain(disk, FakeSink(), found := outcome(), Options(), log.settle)
    assert (found.settlements, found.refused, found.is_complete) == (0, 1, False)
    assert sorted(disk.list("failed")) == [str(name), f"{name.stem}.reasons"]


async def test_outcomes_of_tasks_stay_where_they_are_unless_they_are_asked_for(
    capsys: pytest.CaptureFixture[str],
) -> None:
    disk, found, name = SimulatedDisk(), outcome(), name_of(1, "settle")
    disk.put(str(name), lines_of(SpooledSettlement(mint(), b"done")))
    mixed = lines_of(block_of(b"1"), SpooledSettlement(mint(), b"done"))
    disk.put(str(name_of(2)), mixed)
    sink = FakeSink()
    await drain(disk, sink, found, Options())
    assert sorted(disk.list()) == sorted([str(name), str(name_of(2))])
    assert (list(found.left), sink.payloads, found.is_complete) == (
        [str(name), str(name_of(2))],
        [b"1"],
        False,
    )
    assert (
        f"{name} stays where it is: outcomes of tasks are for the log that the server worked on"
        in capsys.readouterr().err
    )


async def test_what_is_wrong_is_not_said_without_end(capsys: pytest.CaptureFixture[str]) -> None:
    found = outcome()
    for _ in range(1_000):
        found.say("wrong")
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 21
    assert lines[-1] == "and more; see spool/failed/*.reasons, or `forebay spool verify spool`"
