"""A log that is slow is not away: nobody else notices, and what takes long is waited for."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec

from tests.unit.failover.outage import OutageLog, numbered, payloads_of
from tests.unit.failover.test_failover import QUICK, site

HASTY = msgspec.structs.replace(QUICK, attempt_seconds=1.0)
"""A slow log is waited for ten times as long: longer than a busy machine stalls."""


async def test_a_push_that_takes_long_leaves_everybody_else_alone(tmp_path: Path) -> None:
    log = OutageLog()
    await log.log.create_queue("orders")
    async with site(tmp_path, log, HASTY) as here:
        log.held, log.commits, probes = asyncio.Event(), 0, 0
        outlook = log.log.outlook

        async def counted(groups: object) -> object:
            nonlocal probes
            probes += 1
            return await outlook(groups)  # type: ignore[arg-type]

        log.log.outlook = counted  # type: ignore[method-assign,assignment]
        slow = asyncio.ensure_future(here.push(1))
        await here.until(lambda: probes >= 2)
        assert here.failover.health.is_healthy
        assert [queue.name for queue in await here.store.queues()] == ["orders"]
        log.held.set()
        assert (await slow).where == "log"
        assert here.failover.status().outages == 0
    assert await payloads_of(log, "orders") == numbered([1])


async def test_a_push_that_takes_too_long_is_spooled_alone_and_written_once(tmp_path: Path) -> None:
    log = OutageLog()
    await log.log.create_queue("orders")
    settings = msgspec.structs.replace(QUICK, attempt_seconds=0.05)
    async with site(tmp_path, log, settings) as here:
        log.held, log.commits = asyncio.Event(), 0
        assert (await here.push(1)).where == "spool"
        assert here.failover.health.is_healthy
        log.held.set()
        log.held = None
        await here.drained()
        assert here.failover.status().outages == 0
    assert await payloads_of(log, "orders") == numbered([1])


async def test_an_outcome_that_takes_long_is_not_spooled(tmp_path: Path) -> None:
    log = OutageLog()
    await log.log.create_queue("orders")
    async with site(tmp_path, log, HASTY) as here:
        await here.push(1)
        tasks = await here.store.get_task("orders", 1)
        log.held, log.commits = asyncio.Event(), 0
        done = asyncio.ensure_future(here.store.done_task(tasks))
        await here.until(lambda: log.commits > 0)
        await asyncio.wait({done}, timeout=3 * HASTY.attempt_seconds)
        log.held.set()
        assert await done == "log"
        assert here.failover.status().outages == 0
