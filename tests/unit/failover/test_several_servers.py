"""Servers on one log that lose it together, and don't find it again at the same moment."""

from __future__ import annotations

from pathlib import Path

import pytest

from forebay.disk import RealDisk
from forebay.failover.failover import Failover
from forebay.log.memory import MemoryLog
from forebay.log.seam import LogAway
from forebay.model import Block, ManualClock, Message
from forebay.store.store import LogStore
from forebay.warm.memory import MemoryWarm
from tests.unit.failover.outage import OutageLog
from tests.unit.failover.test_failover import QUICK, Site

BEGIN = 1_800_000_000_000_000


class SharedWarm(MemoryWarm):
    """A shelf that several servers of this process use."""

    shared = True


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
