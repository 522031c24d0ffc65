"""Transaction ids that are pushed again during an outage: each message once, in the order of the pushes.

And what was spooled was accepted when its push was answered, however much later the log has it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from forebay.disk import RealDisk
from forebay.failover.failover import Failover
from forebay.log.memory import MemoryLog
from forebay.log.values import Appended
from forebay.model import Block, ManualClock, Message
from forebay.store.store import LogStore
from tests.unit.failover.outage import OutageLog, numbered, payloads_of
from tests.unit.failover.test_failover import QUICK, Site, site

BEGIN = 1_800_000_000_000_000
HOUR = 3_600.0
SECOND = 1_000_000


@asynccontextmanager
async def timed_site(folder: Path, log: OutageLog, clock: ManualClock) -> AsyncIterator[Site]:
    """A site whose times the test says."""
    async with (
        await Failover.open(RealDisk(folder), QUICK, clock=clock) as failover,
        LogStore(failover.guard(log.as_log), clock=clock) as store,
    ):
        failover.announce_to(store.announce)
        yield Site(failover, store, log)


async def push_at(here: Site, clock: ManualClock, *names: str) -> Appended:
    """Push messages that are called by their transaction ids, now."""
    messages = [Message(name.encode(), "p", name) for name in names]
    return await here.push_block(Block.of(messages, created_at=clock.now()), "named")


@pytest.mark.parametrize("ordered", [False, True], ids=["unordered", "ordered"])
async def test_what_is_repeated_during_an_outage_leaves_the_order_of_the_rest(
    tmp_path: Path, *, ordered: bool
) -> None:
    """All of it comes back as one page."""
    log = OutageLog()
    await log.log.create_queue("named", {"ordered": ordered})

    async def push_named(*values: int) -> Appended:
        named = zip(numbered(values), map(str, values), strict=True)
        block = Block.of([Message(payload, "p", name) for payload, name in named])
        return await here.push_block(block, "named")

    async with site(tmp_path, log) as here:
        await push_named(1)
        log.mode = "away"
        for values in ((1, 10), (20,), (10, 30, 1), (40,), (40,)):
            assert (await push_named(*values)).where == "spool"
        log.mode = "there"
        await here.drained()
        tasks = await here.store.get_task("named", 10)
        assert [task.data for task in tasks] == numbered([1, 10, 20, 30, 40])
    assert await payloads_of(log, "named") == numbered([1, 10, 20, 30, 40])


@pytest.mark.parametrize("restarts", [False, True])
async def test_an_outage_longer_than_the_window_delivers_nothing_twice(
    tmp_path: Path, *, restarts: bool
) -> None:
    """Nor does it take two pushes for one that are further apart than the window."""
    clock = ManualClock(BEGIN)
    log = OutageLog(MemoryLog(clock=clock))
    await log.log.create_queue("named", {"ordered": True, "dedupe_seconds": HOUR})
    async with timed_site(tmp_path, log, clock) as here:
        assert (await push_at(here, clock, "1")).where == "log"
        log.mode = "away"
        clock.advance(seconds=HOUR / 2)
        assert (await push_at(here, clock, "1", "2")).where == "spool"
        clock.advance(seconds=HOUR)
        assert (await push_at(here, clock, "3", "1", "2")).where == "spool"
        clock.advance(seconds=20 * HOUR)
        if not restarts:
            log.mode = "there"
            await log.log.trim()
            await here.drained()
    if restarts:
        log.mode = "there"
        await log.log.trim()
        async with timed_site(tmp_path, log, clock) as here:
            await here.drained()
    assert await payloads_of(log, "named") == [b"1", b"2", b"3", b"1", b"2"]


async def test_what_was_spooled_shows_when_it_was_accepted(tmp_path: Path) -> None:
    clock = ManualClock(BEGIN)
    log = OutageLog(MemoryLog(clock=clock))
    queue = await log.log.create_queue("named", {"expire_seconds": HOUR})
    group = await log.log.create_group(queue, "workers")
    async with timed_site(tmp_path, log, clock) as here:
        log.mode = "away"
        await push_at(here, clock, "1")
        clock.advance(seconds=2 * HOUR)
        log.mode = "there"
        await here.drained()
        back = clock.now()
        await push_at(here, clock, "2")
        assert (await log.log.trim()).blocks == 0, "it expires by when the log took it"
        peeked = await here.store.peek("named", 10)
        assert [one.created_at for one in peeked] == [BEGIN, back]
        found = await here.store.where(peeked[0].id)
        assert found.block is not None
        assert (found.block.created_at, found.block.appended_at) == (BEGIN, back)
        sought = await log.log.seek(group, BEGIN + SECOND, dry_run=True)
        assert sought.skipped == 0, "places by time are by when the log took it"
        tasks = await here.store.get_task("named", 10)
        assert [(task.created_at, task.start_time) for task in tasks] == [(BEGIN, back), (back, back)]


async def test_a_line_of_the_future_was_accepted_when_it_is_replayed(tmp_path: Path) -> None:
    clock = ManualClock(BEGIN)
    log = OutageLog(MemoryLog(clock=clock))
    await log.log.create_queue("named", {"dedupe_seconds": HOUR})
    async with timed_site(tmp_path, log, clock) as here:
        await push_at(here, clock, "1")
        log.mode = "away"
        ahead = ManualClock(BEGIN + int(400 * 24 * HOUR) * SECOND)
        await push_at(here, ahead, "1", "2")
        log.mode = "there"
        await here.drained()
        assert await payloads_of(log, "named") == [b"1", b"2"]
        assert [task.created_at for task in await here.store.get_task("named", 2)] == [BEGIN, BEGIN]
