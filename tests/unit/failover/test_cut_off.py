"""Two servers on one log, of which one is cut off: what it answers for meanwhile, and what comes of it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from forebay.disk import RealDisk
from forebay.failover.failover import Failover
from forebay.log.memory import MemoryLog
from forebay.model import Block, LeaseLost, Message
from forebay.store.process import SpoolPlace
from forebay.store.store import LogStore
from forebay.store.values import Task
from tests.unit.failover.outage import OutageLog
from tests.unit.failover.test_failover import QUICK, Site


@dataclass
class Server:
    """A server, and its line to the log."""

    failover: Failover
    store: LogStore
    line: OutageLog

    async def find_the_log(self) -> None:
        self.line.mode = "there"
        await Site(self.failover, self.store, self.line).until(lambda: self.failover.health.is_healthy)


@asynccontextmanager
async def server(folder: Path, log: MemoryLog) -> AsyncIterator[Server]:
    line = OutageLog(log)
    async with await Failover.open(RealDisk(folder), QUICK) as failover:
        spool = SpoolPlace(failover.spool_identity, str(folder))
        async with LogStore(failover.guard(line.as_log), spool=spool) as store:
            yield Server(failover, store, line)


async def taken(here: Server, count: int) -> list[Task]:
    await here.store.create_queue("orders")
    await here.store.append("orders", Block.of([Message(b"%d" % n) for n in range(count)]))
    return await here.store.get_task("orders", count)


async def take_over(log: MemoryLog, other: Server) -> None:
    """Have a server take over from all others, as from those that are silent."""
    mine = other.store._name
    for owner in await log.owners():
        if not owner.name.startswith(mine):
            await log.retire(owner.name)


async def test_the_answer_says_whether_an_outcome_is_final(tmp_path: Path) -> None:
    log = MemoryLog()
    async with server(tmp_path, log) as here:
        tasks = await taken(here, 5)
        assert await here.store.done_task(tasks[:1]) == "log"
        here.line.mode = "away"
        assert await here.store.done_task(tasks[1:2]) == "spool"
        assert await here.store.retry_task(tasks[2:3]) == "spool"
        assert await here.store.bury(tasks[3:4], "broken") == "spool"
        assert await here.store.release(tasks[4:5]) == "spool"
        status = here.failover.status()
        assert (status.settlements, status.settled, status.late) == (4, 4, 0)
        await here.find_the_log()
        assert await here.store.done_task(await here.store.get_task("orders", 1)) == "log"
        status = here.failover.status()
        assert (status.settlements, status.settled, status.late) == (0, 4, 0)


async def test_leases_that_are_lost_leave_the_others_in_the_spool(tmp_path: Path) -> None:
    log = MemoryLog()
    async with server(tmp_path, log) as here:
        tasks = await taken(here, 2)
        await here.store.done_task(tasks[:1])
        here.line.mode = "away"
        with pytest.raises(LeaseLost) as raised:
            await here.store.done_task(tasks)
        assert (list(raised.value.ids), raised.value.is_spooled) == ([tasks[0].id], True)
        await here.find_the_log()
        assert (await here.store.ledger()).queues[0].groups[0].done == 2


async def test_what_was_answered_wins_though_another_server_has_the_tasks_by_then(tmp_path: Path) -> None:
    log = MemoryLog()
    async with server(tmp_path / "first", log) as here, server(tmp_path / "second", log) as other:
        tasks = await taken(here, 3)
        here.line.mode = "away"
        assert await here.store.done_task(tasks) == "spool"
        await take_over(log, other)
        again = await other.store.get_task("orders", 2)
        assert [task.attempts for task in again] == [1, 1]
        await here.find_the_log()
        assert (await other.store.ledger()).queues[0].groups[0].done == 3
        assert here.failover.status().late == 0
        with pytest.raises(LeaseLost):
            await other.store.done_task(again)
        assert await other.store.get_task("orders", 3) == []


async def test_what_comes_after_others_have_settled_is_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log = MemoryLog()
    async with server(tmp_path / "first", log) as here, server(tmp_path / "second", log) as other:
        tasks = await taken(here, 3)
        here.line.mode = "away"
        await here.store.done_task(tasks)
        await take_over(log, other)
        assert await other.store.done_task(await other.store.get_task("orders", 2)) == "log"
        await here.find_the_log()
        assert here.failover.status().late == 2
        assert "the outcomes of 2 tasks came too late" in caplog.text
        assert (await other.store.ledger()).queues[0].groups[0].done == 3


async def test_whoever_starts_with_the_spool_of_before_tells_what_was_answered_first(tmp_path: Path) -> None:
    log = MemoryLog()
    async with server(tmp_path / "second", log) as other:
        async with server(tmp_path / "first", log) as here:
            tasks = await taken(here, 3)
            here.line.mode = "away"
            assert await here.store.done_task(tasks[:2]) == "spool"
        assert [owner for owner in await log.owners() if owner.name.startswith(here.store._name)]
        async with server(tmp_path / "first", log) as here:
            assert (await other.store.ledger()).queues[0].groups[0].done == 2
            (left,) = await other.store.get_task("orders", 3)  # its claim was given back at once
            assert (left.id, left.attempts) == (tasks[2].id, 1)
