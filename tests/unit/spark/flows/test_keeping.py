"""A flow's books agree with its group: after crashes, seeks at any moment, and what retention drops."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest

from forebay.log.memory import MemoryLog
from forebay.log.registry import LABELS_BYTES_MAX
from forebay.log.seam import Log
from forebay.log.sqlite import SqliteLog
from forebay.log.values import Append, DeadLetter, Group, Position, Room, StoredBlock
from forebay.model import ManualClock, Message, sequence_of
from forebay.spark.flows import keeping as keeping_module
from forebay.spark.flows.halving import DeadRow
from forebay.spark.flows.keeping import Keeping, Moved
from forebay.spark.flows.values import Action, FlowSpec, QueueSink, QueueSource
from forebay.spark.ranges import DataLoss

DAY = 86_400
SOURCE = QueueSource(queue="in", group="flow")
SKIPPING = QueueSource(queue="in", group="flow", on_loss="skip")
FLOW = FlowSpec(name="f", type="TRANSFORM", source=SOURCE, sink=QueueSink(queue="out"))


@pytest.fixture(params=["memory", "sqlite"])
async def log(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Log]:
    """Give a log with ten messages, each in a block of its own."""
    opened: Log = MemoryLog() if request.param == "memory" else SqliteLog(tmp_path / "forebay.db")
    async with opened:
        await push(opened)
        yield opened


async def push(log: Log) -> None:
    queue = await log.create_queue("in")
    for number in range(10):
        await log.commit([Append.of(queue, [Message(b"%d" % number)])])


async def begun(log: Log) -> Keeping:
    keeping = Keeping(log, FLOW)
    await keeping.begin()
    return keeping


async def start(log: Log) -> int:
    """Where the group is."""
    groups = await log.groups(await log.queue("in"))
    return next(group.start for group in groups if group.name == "flow")


async def test_a_flow_says_on_its_queue_which_group_it_is_and_keeps_what_others_say(log: Log) -> None:
    await log.configure_queue("in", {"labels": {"team": "blue", "flows": {"other": {"flow": "o"}}}})
    actions = tuple(Action(name=name, kind="sql", text="SELECT 1") for name in ("first", "last"))
    for _ in range(2):
        await Keeping(log, msgspec.structs.replace(FLOW, actions=actions)).begin()
    labels = (await log.queue("in")).settings.labels
    mine = {"flow": "f", "flow_type": "TRANSFORM", "action": "first"}
    assert labels == {"team": "blue", "flows": {"other": {"flow": "o"}, "flow": mine}}


async def test_a_flow_whose_queue_has_no_room_for_its_name_goes_on(log: Log) -> None:
    await log.configure_queue("in", {"labels": {"long": "x" * (LABELS_BYTES_MAX - 12)}})
    await Keeping(log, FLOW).begin()
    assert list((await log.queue("in")).settings.labels) == ["long"]


async def test_a_crash_before_the_group_is_told_repeats_nothing(log: Log) -> None:
    keeping = await begun(log)
    await keeping.publish("s", [], 11, rows=10, dead=[])
    again = await begun(log)
    assert (again.place, await start(log)) == (keeping.place, 11)


async def test_a_group_that_is_sent_to_the_start_of_the_last_batch_is_not_taken_for_a_crash(log: Log) -> None:
    keeping = await begun(log)
    await keeping.publish("s", [], 11, rows=10, dead=[])
    await keeping.settle()
    await log.seek(keeping.group, "earliest")
    with pytest.raises(Moved):
        await keeping.check()
    again = await begun(log)
    assert (again.place.end, await start(log)) == (1, 1)
    assert again.place.checkpoint != keeping.place.checkpoint


async def test_a_group_that_is_sent_back_while_a_batch_is_made_stays_there(log: Log) -> None:
    keeping = await begun(log)
    await keeping.check()
    await log.seek(keeping.group, Position(1))
    await keeping.publish("s", [], 11, rows=10, dead=[])
    with pytest.raises(Moved):
        await keeping.settle()
    assert (await begun(log)).place.end == 1


async def test_a_group_that_is_sent_to_where_the_flow_is_changes_nothing(log: Log) -> None:
    keeping = await begun(log)
    await log.seek(keeping.group, Position(1))
    await keeping.check()
    await keeping.publish("s", [], 11, rows=10, dead=[])
    again = await begun(log)
    assert (again.place, await start(log)) == (keeping.place, 11)


async def test_a_flow_goes_on_where_workers_of_its_group_were_quicker(log: Log) -> None:
    keeping = await begun(log)
    await log.heartbeat("worker")
    claimed = await log.claim(keeping.group, "worker", Room(100, 1 << 20))
    await log.commit(settlements=[claim.settle_all() for claim in claimed.claims])
    await keeping.publish("s", [], 11, rows=10, dead=[])
    await keeping.settle()
    await keeping.check()
    assert (await begun(log)).place == keeping.place


async def test_a_row_that_was_dropped_meanwhile_is_no_letter_and_no_other_is_taken_for_it(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    keeping = await begun(log)
    read = log.read

    async def without_the_third(*given: object, **named: object) -> list[StoredBlock]:
        found = await read(*given, **{**named, "messages": 10})  # type: ignore[arg-type]  # as it was called
        return [block for block in found if sequence_of(block.first) != 3][:1]

    monkeypatch.setattr(log, "read", without_the_third)
    dead = [DeadRow(3, "a", "gone", 1), DeadRow(5, "a", "bad", 1)]
    await keeping.publish("s", [], 11, rows=8, dead=dead)
    assert await keeping.settle() == 1
    (letter,) = await log.dead_letters(keeping.group)
    assert (sequence_of(letter.message_id), letter.message().payload) == (5, b"4")


async def test_rows_that_are_all_gone_are_not_looked_for_again(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    keeping = await begun(log)

    async def nothing(*_: object, **__: object) -> list[StoredBlock]:
        await asyncio.sleep(0)
        return []

    monkeypatch.setattr(log, "read", nothing)
    await keeping.publish("s", [], 11, rows=9, dead=[DeadRow(3, "a", "gone", 1)])
    assert await keeping.settle() == 0
    assert await log.scan("flow-dead", "") == []


DEAD = [DeadRow(seq, "a", "bad", 1) for seq in (2, 3, 5, 8)]


class Advances:
    """A log's `advance` that notes what it is told, and from one call on is away, before or after it."""

    def __init__(
        self, log: Log, monkeypatch: pytest.MonkeyPatch, *, gone: int = 99, late: bool = False
    ) -> None:
        self.told: list[tuple[int, int]] = []
        self._advance = log.advance
        self._gone, self._late = gone, late
        monkeypatch.setattr(log, "advance", self)

    async def __call__(self, group: Group, to: int, dead: Sequence[DeadLetter] = ()) -> int:
        self._gone -= 1
        if self._gone == 0 and not self._late:
            raise Killed
        self.told.append((to, len(dead)))
        answer = await self._advance(group, to, dead)
        if self._gone == 0:
            raise Killed
        return answer


class Killed(BaseException):
    """The program ends here."""


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("gone", [1, 2, 3])
async def test_letters_are_told_in_steps_and_once_whenever_the_program_is_killed(
    log: Log, monkeypatch: pytest.MonkeyPatch, gone: int, *, late: bool
) -> None:
    keeping = await begun(log)
    body = len(await one_body(keeping))
    monkeypatch.setattr(keeping_module, "STEP_BYTES", 2 * body)
    await keeping.publish("s", [], 11, rows=6, dead=DEAD)
    with monkeypatch.context() as patch:
        advances = Advances(log, patch, gone=gone, late=late)
        with suppress(Killed):
            assert await keeping.settle() == len(DEAD)
        assert advances.told == [(4, 2), (11, 2)][: gone if late else gone - 1]
    again = await begun(log)
    assert (again.place.end, again.place.checkpoint) == (11, keeping.place.checkpoint)
    assert await start(log) == 11
    letters = await log.dead_letters(keeping.group)
    assert [sequence_of(letter.message_id) for letter in letters] == [2, 3, 5, 8]
    assert await log.scan("flow-dead", "") == []


async def one_body(keeping: Keeping) -> bytes:
    (letter,) = [each async for each in keeping._letters(DEAD[:1])]
    return letter.body


async def test_a_group_that_is_sent_elsewhere_between_two_steps_stays_there(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeping_module, "STEP_BYTES", 1)
    keeping = await begun(log)
    await keeping.publish("s", [], 11, rows=6, dead=DEAD)
    with monkeypatch.context() as patch:
        Advances(log, patch, gone=2)
        with pytest.raises(Killed):
            await keeping.settle()
    assert await start(log) == 3
    await log.seek(keeping.group, Position(2))
    assert (await begun(log)).place.end == 2


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
async def test_what_expired_while_a_flow_was_away_is_an_error_that_says_what_to_do_unless_it_skips_it(
    kind: str, tmp_path: Path
) -> None:
    clock = ManualClock(1_000_000_000_000)
    log: Log = MemoryLog(clock=clock) if kind == "memory" else SqliteLog(tmp_path / "forebay.db", clock=clock)
    async with log:
        await push(log)
        await log.configure_queue("in", {"expire_seconds": 2 * DAY})
        keeping = await begun(log)
        await keeping.publish("s", [], 4, rows=3, dead=[])
        await keeping.settle()
        await keeping.check_kept()
        clock.advance(seconds=30 * DAY)
        await log.trim()
        await push(log)
        again = await begun(log)
        with pytest.raises(DataLoss, match="messages 4 to 10 of queue 'in' are gone: 7 in all") as raised:
            await again.check_kept()
        assert "`on_loss: skip` in the source of flow 'f'" in (raised.value.hint or "")
        skipping = Keeping(log, msgspec.structs.replace(FLOW, source=SKIPPING))
        assert (await skipping.begin()).end == 4
        await skipping.check_kept()
        assert await skipping.floor() == 11
        await skipping.publish("s", [], 21, rows=10, dead=[])
        await skipping.settle()
        assert await start(log) == 21
        await log.seek(skipping.group, "earliest")
        sent = await begun(log)
        await sent.check_kept()
        assert sent.place.end == 11
