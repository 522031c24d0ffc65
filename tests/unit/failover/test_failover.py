"""Pushes and outcomes while the log comes and goes: a memory log behind a line that is cut."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import msgspec
import pytest

from forebay.disk import Disk, RealDisk
from forebay.failover.failover import Failover
from forebay.failover.settings import FailoverSettings
from forebay.log.memory import MemoryLog
from forebay.log.seam import LogAway
from forebay.log.values import Appended, Claim, Mark, Settlement, Trimmed
from forebay.model import Block, Corrupt, Full, Limits, Message, Rejected, TooLarge, Unavailable, bitmap
from forebay.spool.faults import translated
from forebay.spool.reader import Reader
from forebay.spool.scanning import Page
from forebay.store import rounds
from forebay.store.store import LogStore
from forebay.store.values import Ticket
from tests.disks import SimulatedDisk
from tests.unit.failover.outage import Mode, OutageLog, numbered, payloads_of

QUICK = FailoverSettings(
    attempt_seconds=5.0, flush_seconds=0.01, retry_seconds=0.05, file_seconds_max=0.02, reserve_bytes=0
)
"""A log that is there is given the time that a busy machine needs."""
IMPATIENT = msgspec.structs.replace(QUICK, attempt_seconds=0.5)
"""For a log that never answers, which is waited for."""
DEADLINE_SECONDS = 10.0


class Site:
    """A store with its failover, as a server has them."""

    def __init__(self, failover: Failover, store: LogStore, log: OutageLog) -> None:
        self.failover = failover
        self.store = store
        self.log = log

    async def push(self, *values: int, queue: str = "orders", partition: str = "") -> Appended:
        block = Block.of([Message(payload, partition) for payload in numbered(values)])
        return await self.push_block(block, queue)

    async def push_block(self, block: Block, queue: str = "orders") -> Appended:
        return await self.failover.push(queue, block, lambda: self.store.append(queue, block))

    async def until(self, is_so: Callable[[], bool]) -> None:
        """Wait for something that happens by itself."""
        async with asyncio.timeout(DEADLINE_SECONDS):
            while not is_so():
                with suppress(TimeoutError):  # some of it is told to nobody
                    async with asyncio.timeout(0.01):
                        await self.failover._backlog.moved()

    async def drained(self) -> None:
        """Wait until all is in the log."""
        await self.until(lambda: self.failover.health.is_healthy and not self.failover.status().pending)


@asynccontextmanager
async def site(
    disk: Disk | Path, log: OutageLog, settings: FailoverSettings = QUICK, limits: Limits | None = None
) -> AsyncIterator[Site]:
    disk = RealDisk(disk) if isinstance(disk, Path) else disk
    async with await Failover.open(disk, settings, limits=limits) as failover:
        store = LogStore(failover.guard(log.as_log))
        async with store:
            failover.announce_to(store.announce)
            yield Site(failover, store, log)


@pytest.fixture
async def log() -> OutageLog:
    log = OutageLog()
    await log.log.create_queue("orders")
    return log


async def test_a_push_goes_to_the_log_while_it_is_there(tmp_path: Path, log: OutageLog) -> None:
    async with site(tmp_path, log) as here:
        appended = await here.push(1, 2)
        assert appended.where == "log"
        assert len(appended.ids()) == 2
        assert here.failover.status().pending == 0


@pytest.mark.parametrize("mode", ["away", "hung", "read-only", "deaf", "odd"])
async def test_pushes_succeed_whatever_is_wrong_with_the_log_and_arrive_once_in_order(
    tmp_path: Path, log: OutageLog, mode: Mode
) -> None:
    async with site(tmp_path, log, IMPATIENT if mode == "hung" else QUICK) as here:
        await here.push(0)
        for outage in range(2):
            log.mode = mode
            for value in range(10 * outage + 1, 10 * outage + 11):
                appended = await here.push(value)
                assert appended.where == "spool"
                assert appended.ids() == []
            status = here.failover.status()
            assert (status.healthy, status.pending, status.queues) == (False, 10, {"orders": 10})
            log.mode = "there"
            await here.drained()
        assert (await here.push(99)).where == "log"
        assert here.failover.status().flushed == 20
        assert here.failover.status().outages >= 2
    assert await payloads_of(log, "orders") == numbered([*range(21), 99])


async def test_a_log_that_only_knows_what_it_has_is_not_back(tmp_path: Path, log: OutageLog) -> None:
    settings = msgspec.structs.replace(QUICK, batch_events_max=1, file_seconds_max=10.0)
    async with site(tmp_path, log, settings) as here:
        log.mode = "away"
        await here.push(0)
        await here.push(1)
        log.held, log.free, log.mode = asyncio.Event(), 1, "there"
        await here.until(lambda: log.commits == 2)
        log.mode = "read-only"
        log.held.set()
        await here.until(lambda: not here.failover.health.is_healthy)
        outages = here.failover.health.outages
        tries = log.refusals
        await here.until(lambda: log.refusals > tries + 5)
        assert here.failover.health.outages == outages
        log.mode = "there"
        await here.drained()
    assert await payloads_of(log, "orders") == numbered(range(2))


async def test_a_server_that_starts_while_the_log_is_away_takes_pushes(tmp_path: Path) -> None:
    log = OutageLog()
    async with await Failover.open(RealDisk(tmp_path), QUICK) as failover:
        block = Block.of([Message(b"1")])
        assert (await failover.push("fresh", block, None)).where == "spool"
        async with LogStore(failover.guard(log.as_log)) as store:
            here = Site(failover, store, log)
            await here.drained()
            assert await store.queues() != []
    assert await payloads_of(log, "fresh") == [b"1"]


async def test_what_was_spooled_before_a_restart_comes_first(tmp_path: Path, log: OutageLog) -> None:
    async with site(tmp_path, log) as here:
        log.mode = "away"
        for value in range(5):
            await here.push(value)
    log.mode = "there"
    log.held = asyncio.Event()
    async with site(tmp_path, log) as here:
        assert (await here.push(5)).where == "spool", "it would overtake what was there at the start"
        log.held.set()
        await here.drained()
    assert await payloads_of(log, "orders") == numbered(range(6))


async def test_a_push_lines_up_behind_what_is_spooled_of_its_partition_only(
    tmp_path: Path, log: OutageLog
) -> None:
    settings = FailoverSettings(
        attempt_seconds=5.0, flush_seconds=0.01, file_seconds_max=0.02, events_per_file=2, reserve_bytes=0
    )
    async with site(tmp_path, log, settings) as here:
        log.mode = "away"
        for value in range(10):
            await here.push(value, partition="a")
        log.held, log.free = asyncio.Event(), 1
        log.mode = "there"
        await here.until(lambda: log.commits == 2)
        other = asyncio.create_task(here.push(100, partition="b"))
        await here.until(lambda: log.commits == 3)
        assert (await here.push(10, partition="a")).where == "spool"
        log.held.set()
        assert (await other).where == "log"
        await here.drained()
    found = await payloads_of(log, "orders")
    assert [payload for payload in found if payload != b"100"] == numbered(range(11))


async def test_when_all_is_in_the_log_those_who_wait_go_there_directly(
    tmp_path: Path, log: OutageLog
) -> None:
    settings = FailoverSettings(
        attempt_seconds=5.0, flush_seconds=0.01, file_seconds_max=0.02, batch_events_max=1, reserve_bytes=0
    )
    async with site(tmp_path, log, settings) as here:
        log.mode = "away"
        await here.push(0, partition="a")
        await here.push(0, partition="b")
        log.held, log.free = asyncio.Event(), 1
        log.mode = "there"
        await here.until(lambda: log.commits == 2)
        waiting = asyncio.create_task(here.push(1, partition="b"))
        await asyncio.sleep(0)
        assert not waiting.done()
        log.held.set()
        assert (await waiting).where == "log"
    assert await payloads_of(log, "orders") == numbered([0, 0, 1])


async def test_what_is_the_messages_fault_is_refused_and_not_spooled(tmp_path: Path) -> None:
    limits = Limits(message_bytes_max=10)
    async with site(tmp_path, OutageLog(MemoryLog(limits=limits)), limits=limits) as here:
        await here.store.create_queue("orders")
        large = Block.of([Message(b"x" * 11)])
        with pytest.raises(TooLarge):
            await here.push_block(large)
        assert here.failover.health.is_healthy
        here.log.mode = "away"
        with pytest.raises(TooLarge):
            await here.push_block(large)
        here.failover.health.fail("pulled the plug")
        with pytest.raises(TooLarge):
            await here.push_block(large)
        with pytest.raises(Rejected):
            await here.push(1, queue="")
        assert here.failover.status().pending == 0


async def test_one_bad_event_is_set_aside_alone_and_tried_again(tmp_path: Path) -> None:
    log = OutageLog(MemoryLog(limits=Limits(message_bytes_max=10)))
    await log.log.create_queue("orders")
    async with site(tmp_path, log) as here:
        log.mode = "away"
        payloads = numbered(range(7))
        payloads[3] = b"x" * 11
        await here.push_block(Block.of([Message(payload) for payload in payloads]))
        await here.push(7)
        log.mode = "there"
        await here.drained()
        assert here.failover.status().failed == 1
        assert here.failover.health.is_healthy
        (reasons,) = (tmp_path / "failed").glob("*.reasons")
        assert "10" in reasons.read_text()
        log.log._limits = Limits()  # somebody raised it
        await here.until(lambda: here.failover.status().failed == 0)
    assert await payloads_of(log, "orders") == [*numbered([0, 1, 2, 4, 5, 6, 7]), b"x" * 11]


async def test_an_ordered_queue_gets_a_block_for_each_partition(tmp_path: Path) -> None:
    log = OutageLog()
    await log.log.create_queue("orders", {"ordered": True})
    async with site(tmp_path, log) as here:
        log.mode = "away"
        block = Block.of([Message(b"%d" % n, "ab"[n % 2]) for n in range(6)])
        await here.push_block(block)
        await here.push_block(block)
        log.mode = "there"
        await here.drained()
    queue = await log.log.queue("orders")
    blocks = await log.log.read(queue)
    found = {block.partition: block.decode().payloads for block in blocks}
    assert len(blocks) == 2
    assert found == {"a": numbered([0, 2, 4]), "b": numbered([1, 3, 5])}


async def test_pushes_with_qos_0_are_answered_before_they_are_safe_and_arrive(
    tmp_path: Path, log: OutageLog
) -> None:
    async with site(tmp_path, log) as here:
        for value in range(5):
            assert here.failover.buffer("orders", [Message(b"%d" % value)]).where == "buffered"
        assert here.failover.status().pending == 5
        await here.drained()
        log.mode = "away"
        here.failover.buffer("orders", [Message(b"5")])
    log.mode = "there"
    async with site(tmp_path, log) as here:
        await here.drained()
    assert await payloads_of(log, "orders") == numbered(range(6))


async def test_without_space_a_push_is_refused_and_taken_again_later(log: OutageLog) -> None:
    disk = SimulatedDisk(capacity=1 << 20)
    async with site(disk, log) as here:
        log.mode = "away"
        await here.push(0)
        disk.capacity = 0
        with pytest.raises(Full):
            await here.push(1)
        assert here.failover.status().pending == 1
        disk.capacity = 1 << 20
        await here.push(2)
        log.mode = "there"
        await here.drained()
    assert await payloads_of(log, "orders") == numbered([0, 2])


async def test_what_is_replayed_again_after_another_loss_is_counted_once(
    tmp_path: Path, log: OutageLog
) -> None:
    settings = FailoverSettings(
        attempt_seconds=5.0, flush_seconds=0.01, file_seconds_max=5.0, batch_events_max=1, reserve_bytes=0
    )
    async with site(tmp_path, log, settings) as here:
        log.mode = "away"
        for value in range(4):
            await here.push(value, partition="a")
        for _ in range(4):
            log.held, log.free, log.commits = asyncio.Event(), 1, 0
            log.mode = "there"
            await here.until(lambda: log.commits == 2)
            assert here.failover.status().pending == 3
            log.mode, refusals = "away", log.refusals
            log.held.set()
            await here.until(lambda before=refusals: log.refusals > before)  # type: ignore[misc]
        log.held, log.mode = None, "there"
        await here.drained()
        assert here.failover.status().flushed == 4
    assert await payloads_of(log, "orders") == numbered(range(4))


async def test_what_was_pushed_before_the_log_was_found_keeps_nobody_waiting_afterwards(
    tmp_path: Path,
) -> None:
    log = OutageLog()
    settings = FailoverSettings(
        attempt_seconds=60.0, flush_seconds=0.01, batch_events_max=10, events_per_file=10, reserve_bytes=0
    )
    async with await Failover.open(RealDisk(tmp_path), settings) as failover:
        for value in range(100):
            await failover.push("fresh", Block.of([Message(b"%d" % value)]), None)
        log.held, log.free = asyncio.Event(), 1
        async with LogStore(failover.guard(log.as_log)) as store, asyncio.timeout(DEADLINE_SECONDS):
            here = Site(failover, store, log)
            await here.until(lambda: log.commits == 2)
            assert (await here.push(100, queue="fresh")).where == "spool"
            log.held.set()
            await here.drained()
    assert await payloads_of(log, "fresh") == numbered(range(101))


async def test_a_file_that_cant_be_read_is_no_outage_and_keeps_only_its_partitions_waiting(
    tmp_path: Path, log: OutageLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read(*_: object, **__: object) -> Page:
        with translated("read"):
            raise OSError(errno.EIO, "Input/output error")

    async with site(tmp_path, log, IMPATIENT) as here:
        log.mode = "away"
        await here.push(0, partition="a")
        with monkeypatch.context() as broken:
            broken.setattr(Reader, "read", read)
            log.mode = "there"
            await here.until(lambda: here.failover.health.is_healthy)
            assert (await here.push(0, partition="b")).where == "log"
            assert (await here.push(1, partition="a")).where == "spool"
            assert here.failover.health.is_healthy
            assert here.failover.health.outages == 1
        await here.drained()
    assert sorted(await payloads_of(log, "orders")) == numbered([0, 0, 1])


# Tasks


async def test_workers_go_on_with_what_is_warm_and_nothing_is_handed_out_twice(
    tmp_path: Path, log: OutageLog
) -> None:
    async with site(tmp_path, log, IMPATIENT) as here:
        await here.push(*range(10))
        first = await here.store.get_task("orders", 2)
        log.mode = "hung"
        await here.store.done_task(first)
        second = await here.store.get_task("orders", 4)
        assert [task.data for task in second] == numbered(range(2, 6))
        await here.store.done_task(second[:1])
        await here.store.retry_task(second[1:2])
        await here.store.bury([second[2]], "bad")
        await here.store.release([second[3]])
        assert here.failover.status().settlements > 0
        log.mode = "there"
        await here.drained()
        await here.until(lambda: here.failover.status().settlements == 0)
        rest = await here.store.get_task("orders", 10, wait_seconds=5)
        while more := await here.store.get_task("orders", 10):
            rest += more
        assert sorted((task.data, task.attempts) for task in rest) == [
            (b"3", 1), (b"5", 0), (b"6", 0), (b"7", 0), (b"8", 0), (b"9", 0),
        ]  # fmt: skip
        (letter,) = await here.store.dead_letters("orders")
        assert letter.message().payload == b"4"
        assert letter.reason == "bad"


async def test_what_was_done_during_an_outage_is_not_handed_out_by_the_next_process(
    tmp_path: Path, log: OutageLog
) -> None:
    async with site(tmp_path, log) as here:
        await here.push(*range(4))
        tasks = await here.store.get_task("orders", 3)
        log.mode = "away"
        await here.store.done_task(tasks[:1])
        await here.store.bury([Ticket(tasks[1].id, tasks[1].lease)], "bad")
    log.mode = "there"
    (before,) = [owner.name for owner in await log.log.owners()]
    async with site(tmp_path, log) as here:
        await here.store.log.retire(before)  # as whoever finds that a process is gone
        left = await here.store.get_task("orders", 10, wait_seconds=5)
        while more := await here.store.get_task("orders", 10):
            left += more
        assert sorted((task.data, task.attempts) for task in left) == [(b"2", 1), (b"3", 0)]
        assert [letter.message().payload for letter in await here.store.dead_letters("orders")] == [b"1"]


async def test_a_settlement_whose_answer_was_lost_counts_once(tmp_path: Path, log: OutageLog) -> None:
    async with site(tmp_path, log) as here:
        await here.push(*range(3))
        tasks = await here.store.get_task("orders", 3)
        log.mode = "deaf"
        await here.store.done_task(tasks)
        log.mode = "there"
        await here.until(lambda: here.failover.status().settlements == 0 and here.failover.health.is_healthy)
        (queue,) = (await here.store.ledger()).queues
        (group,) = queue.groups
        assert (group.done, group.difference) == (3, 0)
        assert await here.store.get_task("orders") == []


async def test_connections_are_dropped_when_the_log_is_lost(tmp_path: Path, log: OutageLog) -> None:
    async with site(tmp_path, log, IMPATIENT) as here:
        log.mode = "hung"
        await here.push(1)
        assert log.hang_ups == 1
        log.mode = "there"
        await here.drained()


async def test_what_was_settled_before_doesnt_keep_the_rest_of_a_settlement_from_the_log(
    tmp_path: Path, log: OutageLog
) -> None:
    async with site(tmp_path, log) as here:
        await here.push(*range(3))
        tasks = await here.store.get_task("orders", 3)
        lease = tasks[0].lease
        done = bitmap.of([0], lease.count)
        first = Settlement(
            group=lease.group, token=lease.claim, first=lease.first, count=lease.count, done=done
        )
        await log.log.commit(settlements=[first])  # its answer reached nobody
        log.mode = "away"
        await here.store.done_task(tasks)
        log.mode = "there"
        await here.until(lambda: here.failover.health.is_healthy)
        (queue,) = (await here.store.ledger()).queues
        (group,) = queue.groups
        assert (group.done, group.held, group.difference) == (3, 0, 0)


async def test_those_who_take_and_settle_in_turns_are_replayed_in_few_writes(
    tmp_path: Path, log: OutageLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = FailoverSettings(attempt_seconds=5.0, flush_seconds=0.01, reserve_bytes=0)
    async with site(tmp_path, log, settings) as here:
        await here.push(*range(50))
        await here.store.peek("orders")
        log.mode = "away"
        marks = 0
        for _ in range(50):
            await here.store.done_task(await here.store.get_task("orders"))

        async def mark(said: Sequence[Mark]) -> Sequence[int]:
            nonlocal marks
            marks += 1
            return await log.log.mark(said)

        monkeypatch.setattr(log, "mark", mark, raising=False)
        log.mode = "there"
        await here.until(lambda: here.failover.health.is_healthy)
        (queue,) = (await here.store.ledger()).queues
        assert queue.groups[0].done == 50
        assert marks < 10


async def test_who_settles_while_the_log_is_lost_again_on_its_return_waits_no_longer_than_for_a_write(
    tmp_path: Path, log: OutageLog
) -> None:
    settings = FailoverSettings(attempt_seconds=0.5, flush_seconds=0.01, reserve_bytes=0)
    async with site(tmp_path, log, settings) as here:
        await here.push(*range(20))
        tasks = await here.store.get_task("orders", 10)
        log.mode = "away"
        await here.store.done_task(tasks[:1])
        log.held, log.commits = asyncio.Event(), 0
        log.mode = "there"
        await here.until(lambda: log.commits == 1)
        log.mode = "hung"
        async with asyncio.timeout(4.0):  # less than what a replay may take
            await here.store.done_task(tasks[1:2])
        log.mode = "there"
        log.held.set()
        await here.drained()


async def test_an_outcome_that_the_log_refuses_is_set_aside_and_the_log_is_back(
    tmp_path: Path, log: OutageLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def recall(*_: object) -> list[Claim]:
        raise Corrupt("block 1..3 of queue 'orders' can't be read")

    async with site(tmp_path, log) as here:
        await here.push(*range(3))
        tasks = await here.store.get_task("orders", 3)
        log.mode = "away"
        await here.store.done_task(tasks[:1])
        await here.store.bury([Ticket(tasks[1].id, tasks[1].lease)], "bad")
        await here.store.done_task(tasks[2:])
        monkeypatch.setattr(log, "recall", recall, raising=False)
        log.mode = "there"
        await here.until(lambda: here.failover.health.is_healthy)
        (queue,) = (await here.store.ledger()).queues
        assert queue.groups[0].done == 2
    (reasons,) = (tmp_path / "failed").glob("settle_*.reasons")
    assert "can't be read" in reasons.read_text()


async def test_upkeep_that_takes_too_long_is_no_outage(
    tmp_path: Path, log: OutageLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def trim() -> Trimmed:
        raise Unavailable("PostgreSQL is away: TimeoutError")

    monkeypatch.setattr(log, "trim", trim, raising=False)
    async with site(tmp_path, log) as here:
        with pytest.raises(Unavailable, match="TimeoutError"):
            await here.store.trim()
        assert here.failover.health.is_healthy
        log.mode = "away"
        with pytest.raises(LogAway):
            await here.store.trim()
        assert not here.failover.health.is_healthy


async def test_a_death_whose_message_couldnt_be_looked_up_is_told_at_once_if_the_log_is_back(
    tmp_path: Path, log: OutageLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def recall(*_: object) -> list[Claim]:
        raise LogAway("it was away a moment ago")

    async with site(tmp_path, log) as here:
        await here.push(1)
        (task,) = await here.store.get_task("orders")
        monkeypatch.setattr(here.store.log, "recall", recall)
        await here.store.bury([Ticket(task.id, task.lease)], "bad")
    (queue,) = (await log.log.stats()).queues
    assert (queue.groups[0].dead, queue.groups[0].ready) == (1, 0)


async def test_a_take_that_hangs_with_the_log_ends_when_the_rounds_find_it_silent(
    tmp_path: Path, log: OutageLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rounds, "TICK_SECONDS", 0.05)
    async with site(tmp_path, log, IMPATIENT) as here:
        await here.push(1)
        assert len(await here.store.get_task("orders")) == 1
        log.mode = "hung"
        async with asyncio.timeout(DEADLINE_SECONDS):
            with pytest.raises(LogAway):
                await here.store.get_task("orders")


async def test_nothing_overtakes_what_went_back_while_nobody_can_refuse_it(tmp_path: Path) -> None:
    log = OutageLog()
    await log.log.create_queue("orders", {"ordered": True})
    async with site(tmp_path, log) as here:
        await here.push(0, partition="a")
        await here.push(1, partition="b")
        tasks = await here.store.get_task("orders", 2)
        (window,) = here.store._windows.values()
        await here.store.retry_task([task for task in tasks if task.partition == "a"], delay=60)
        await here.store.done_task([task for task in tasks if task.partition == "b"])
        await here.push(2, partition="b")
        await here.push(3, partition="c")
        assert len(await here.store.peek("orders")) == 2
        # As if b had gone back after it was brought.
        tier = window.tiers.active
        await tier.warm.note_returns(tier.shelf, tier.epoch or "", {"b": tasks[1].id})
        log.mode = "away"
        assert [task.data for task in await here.store.get_task("orders", 10)] == [b"3"]
        log.mode = "there"
        await here.drained()
        assert [task.data for task in await here.store.get_task("orders", 10, wait_seconds=5)] == [b"2"]
