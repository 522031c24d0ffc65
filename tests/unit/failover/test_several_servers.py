"""Servers on one log that lose it together, and don't find it again at the same moment."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from forebay.disk import RealDisk
from forebay.failover.failover import Failover
from forebay.log.memory import MemoryLog
from forebay.log.seam import LogAway
from forebay.model import Block, ManualClock, Message
from forebay.store import window as window_module
from forebay.store.store import LogStore
from forebay.warm.memory import MemoryWarm
from tests.conformance.warm.steps import parcel_of
from tests.unit.failover.outage import OutageLog
from tests.unit.failover.test_failover import QUICK, Site

BEGIN = 1_800_000_000_000_000


class SharedWarm(MemoryWarm):
    """A shelf that several servers of this process use."""

    shared = True
    epoch_prefix = "5"


async def test_what_one_server_settled_isnt_looked_for_by_another_that_finds_the_log_first(
    tmp_path: Path,
) -> None:
    log = MemoryLog()
    lines, warm = [OutageLog(log), OutageLog(log)], SharedWarm("shared")
    async with (
        await Failover.open(RealDisk(tmp_path / "first"), QUICK) as failover,
        await Failover.open(RealDisk(tmp_path / "second"), QUICK) as other_failover,
        LogStore(failover.guard(lines[0].as_log), warm, name="first") as store,
        LogStore(other_failover.guard(lines[1].as_log), warm, name="second") as other,
    ):
        await store.create_queue("orders")
        await store.append("orders", Block.of([Message(b"1")]))
        tasks = await store.get_task("orders")
        assert await other.get_task("orders") == []
        lines[0].mode = lines[1].mode = "away"
        with pytest.raises(LogAway):
            await other.get_task("orders")
        await store.done_task(tasks)
        lines[1].mode = "there"
        await Site(other_failover, other, lines[1]).until(lambda: other_failover.health.is_healthy)
        assert await other.get_task("orders") == []
        lines[0].mode = "there"
        await Site(failover, store, lines[0]).until(lambda: failover.health.is_healthy)
        assert (await store.ledger()).queues[0].groups[0].done == 1


async def test_who_starts_after_an_outage_takes_nobody_for_dead_at_once(tmp_path: Path) -> None:
    clock = ManualClock(BEGIN)
    log = MemoryLog(clock=clock)
    line = OutageLog(log)
    async with (
        await Failover.open(RealDisk(tmp_path), QUICK) as failover,
        LogStore(failover.guard(line.as_log), name="elsewhere:1") as store,
    ):
        await store.create_queue("orders")
        await store.append("orders", Block.of([Message(b"1")]))
        tasks = await store.get_task("orders")
        line.mode = "away"
        await store.done_task(tasks)
        clock.advance(seconds=600)
        await log.heartbeat("another")  # it has found the log already
        async with LogStore(log, name="fresh:1") as fresh:
            assert await fresh.get_task("orders") == []
            line.mode = "there"
            await Site(failover, store, line).until(lambda: failover.health.is_healthy)
            assert (await fresh.ledger()).queues[0].groups[0].done == 1


@asynccontextmanager
async def two_servers(
    tmp_path: Path, clock: ManualClock
) -> AsyncIterator[tuple[tuple[Site, Site], SharedWarm]]:
    """Two servers on one log and one shelf, with an ordered queue of three messages."""
    log, warm = MemoryLog(clock=clock), SharedWarm("shared", clock=clock)
    lines = [OutageLog(log), OutageLog(log)]
    async with (
        await Failover.open(RealDisk(tmp_path / "first"), QUICK) as failover,
        await Failover.open(RealDisk(tmp_path / "second"), QUICK) as other_failover,
        LogStore(failover.guard(lines[0].as_log), warm, name="first", clock=clock) as store,
        LogStore(other_failover.guard(lines[1].as_log), warm, name="second", clock=clock) as other,
    ):
        await store.create_queue("orders", {"ordered": True, "visibility_seconds": 30.0})
        assert await other.get_task("orders") == []  # from now on it knows the queue
        for number in (1, 2, 3):
            await store.append("orders", Block.of([Message(b"%d" % number, "p")]))
        yield (Site(failover, store, lines[0]), Site(other_failover, other, lines[1])), warm


async def tick(site: Site) -> None:
    """Let a server do what is due."""
    for window in site.store._windows.values():
        await window.tick()


async def taken(site: Site, count: int = 10) -> list[bytes]:
    return [task.data for task in await site.store.get_task("orders", count)]


async def taken_or_away(site: Site, count: int = 10) -> list[bytes]:
    """Tasks handed out while the log may be away; none if it must be asked."""
    try:
        return await taken(site, count)
    except LogAway:
        return []


@pytest.mark.parametrize("how", ["retry", "release", "expire"])
async def test_what_comes_back_by_the_spool_of_one_server_isnt_overtaken_at_another(
    tmp_path: Path, how: str
) -> None:
    clock = ManualClock(BEGIN)
    async with two_servers(tmp_path, clock) as ((first, second), _):
        (task,) = await first.store.get_task("orders")
        first.log.mode = "away"
        if how == "retry":
            await first.store.retry_task([task])
        elif how == "release":
            await first.store.release([task])
        else:
            clock.advance(seconds=31)
            await tick(first)
        assert await taken(second) == []
        first.log.mode = "there"
        await first.until(lambda: first.failover.health.is_healthy)
        await tick(first)
        again = await second.store.get_task("orders", 10)
        assert [one.data for one in again] == [b"1", b"2", b"3"]
        assert again[0].attempts == (0 if how == "release" else 1)


async def test_what_comes_back_by_the_spool_isnt_overtaken_by_what_came_back_to_the_log(
    tmp_path: Path,
) -> None:
    clock = ManualClock(BEGIN)
    async with two_servers(tmp_path, clock) as ((first, second), _):
        second.log.mode = "away"  # so it doesn't look at once for claims that never came to the shelf
        assert await taken_or_away(second) == []
        second.log.mode = "there"
        await second.until(lambda: second.failover.health.is_healthy)
        tasks = await first.store.get_task("orders", 3)
        await first.store.retry_task(tasks[1:2], delay=5)
        first.log.mode = "away"
        await first.store.retry_task(tasks[:1])
        clock.advance(seconds=6)
        assert await taken(second) == []
        first.log.mode = "there"
        await first.until(lambda: first.failover.health.is_healthy)
        await tick(first)
        assert await taken(second) == [b"1", b"2", b"3"]


async def test_a_return_that_is_spooled_for_longer_than_its_lease_comes_back_at_the_other_server(
    tmp_path: Path,
) -> None:
    clock = ManualClock(BEGIN)
    async with two_servers(tmp_path, clock) as ((first, second), _):
        (task,) = await first.store.get_task("orders")
        first.log.mode = "away"
        await first.store.retry_task([task])
        clock.advance(seconds=31)
        await tick(second)
        again = await second.store.get_task("orders", 10)
        assert [(one.data, one.attempts) for one in again] == [(b"1", 1), (b"2", 0), (b"3", 0)]
        await second.store.done_task(again)
        first.log.mode = "there"
        await first.until(lambda: first.failover.health.is_healthy)
        await tick(first)
        assert await taken(first) == await taken(second) == []
        group = (await second.store.ledger()).queues[0].groups[0]
        assert (group.done, group.difference) == (3, 0)


async def test_an_expired_lease_is_spooled_once_however_long_the_log_is_away(tmp_path: Path) -> None:
    clock = ManualClock(BEGIN)
    async with two_servers(tmp_path, clock) as ((first, second), _):
        assert await taken(first, 1) == [b"1"]
        first.log.mode = second.log.mode = "away"
        for _ in range(10):
            clock.advance(seconds=31)
            await tick(first)
            await tick(second)
            assert await taken_or_away(second) == []
        spooled = [site.failover.status().settlements for site in (first, second)]
        assert max(spooled) <= 3, "one that expired, and two that were withdrawn behind it"
        first.log.mode = second.log.mode = "there"
        for site in (first, second):
            await site.until(lambda site=site: site.failover.health.is_healthy)  # type: ignore[misc]
            await tick(site)
        assert await taken(second) == [b"1", b"2", b"3"]


async def test_what_went_back_to_the_log_isnt_overtaken_at_a_server_that_is_cut_off(tmp_path: Path) -> None:
    clock = ManualClock(BEGIN)
    async with two_servers(tmp_path, clock) as ((first, second), warm):
        tasks = await first.store.get_task("orders", 3)
        await first.store.retry_task(tasks[:1], delay=10)
        (window,) = first.store._windows.values()
        tier = window.tiers.active
        assert tier.epoch is not None
        # Another server had claimed the fourth before the first went back, and brings it now.
        await first.store.append("orders", Block.of([Message(b"4", "p")]))
        (stored,) = await first.log.log.read(window.queue, 4)
        parcel = parcel_of(4, first=stored.first, partition="p")
        fill = await warm.begin(tier.shelf, tier.epoch)
        assert fill is not None
        assert await warm.offer(tier.shelf, fill, [parcel]) == []
        await warm.end(tier.shelf, fill)
        second.log.mode = "away"
        assert await taken_or_away(second) == []
        second.log.mode = "there"
        await second.until(lambda: second.failover.health.is_healthy)
        clock.advance(seconds=11)
        await tick(second)
        assert await taken(second, 3) == [b"1", b"2", b"3"]


async def test_a_server_that_is_cut_off_sends_the_rest_of_a_block_back_along(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(window_module, "STALE_MAX", 1)  # others come between its tries
    clock = ManualClock(BEGIN)
    async with two_servers(tmp_path, clock) as ((first, second), warm):
        await first.store.done_task(await first.store.get_task("orders", 3))
        block = Block.of([Message(b"%d" % number, "p") for number in range(4, 9)])
        await first.store.append("orders", block)
        assert len(await first.store.peek("orders", 5)) == 5
        (window,) = first.store._windows.values()
        tier = window.tiers.active
        assert tier.epoch is not None
        await warm.note_returns(tier.shelf, tier.epoch, {"p": 1})
        second.log.mode = "away"
        assert await taken_or_away(second, 3) == []
        assert await taken(first) == []
        second.log.mode = "there"
        await second.until(lambda: second.failover.health.is_healthy)
        await tick(second)
        assert await taken(first) == [b"4", b"5", b"6", b"7", b"8"]
