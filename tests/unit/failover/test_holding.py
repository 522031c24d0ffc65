"""Pushes that are held back on purpose: they stay in the spool while the log is there, and arrive later."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from forebay.model import Block, Message, Unavailable
from tests.unit.failover.outage import OutageLog, numbered, payloads_of
from tests.unit.failover.test_failover import Site, site


@pytest.fixture
async def log() -> OutageLog:
    log = OutageLog()
    await log.log.create_queue("orders")
    return log


async def rounds(here: Site, count: int = 5) -> None:
    """Wait until the spool was looked at so often."""
    seen = 0
    look = here.failover._round

    async def looked() -> None:
        nonlocal seen
        await look()
        seen += 1

    here.failover._round = looked  # type: ignore[method-assign]
    await here.until(lambda: seen >= count)
    here.failover._round = look  # type: ignore[method-assign]


async def test_what_is_held_back_stays_in_the_spool_and_arrives_in_order_before_what_comes_later(
    tmp_path: Path, log: OutageLog
) -> None:
    async with site(tmp_path, log) as here:
        assert (await here.push(0)).where == "log"
        here.failover.hold("maintenance")
        for value in range(1, 21):
            assert (await here.push(value)).where == "spool"
        await rounds(here)
        status = here.failover.status()
        assert (status.held, status.healthy, status.pending) == ("maintenance", True, 20)
        assert await payloads_of(log, "orders") == numbered([0])
        here.failover.let_go()
        for value in range(21, 31):
            await here.push(value)
        await here.drained()
        assert here.failover.status().held is None
    assert await payloads_of(log, "orders") == numbered(range(31))


async def test_whoever_works_tasks_goes_on_while_pushes_are_held_back(tmp_path: Path, log: OutageLog) -> None:
    async with site(tmp_path, log) as here:
        await here.store.create_group("orders", "workers")
        await here.push(0, 1)
        here.failover.hold("maintenance")
        await here.push(2)
        tasks = await here.store.get_task("orders", 10)
        assert [task.data for task in tasks] == numbered([0, 1])
        await here.store.done_task(tasks)
        assert here.failover.status().settlements == 0


async def test_what_was_held_back_before_a_restart_is_held_back_after_it(
    tmp_path: Path, log: OutageLog
) -> None:
    async with site(tmp_path, log) as here:
        here.failover.hold("maintenance")
        await here.push(0, 1)
    async with site(tmp_path, log) as here:
        here.failover.hold("it isn't known yet")
        await rounds(here)
        assert (await here.push(2)).where == "spool"
        assert await payloads_of(log, "orders") == []
        here.failover.let_go()
        await here.drained()
    assert await payloads_of(log, "orders") == numbered([0, 1, 2])


async def test_a_log_that_comes_back_meanwhile_is_used_and_gets_nothing_of_what_is_held_back(
    tmp_path: Path, log: OutageLog
) -> None:
    async with site(tmp_path, log) as here:
        await here.push(0)
        (task,) = await here.store.get_task("orders", 1)
        here.failover.hold("maintenance")
        await here.push(1)
        log.mode = "away"
        await here.store.done_task([task])
        await here.push(2)
        log.mode = "there"
        await here.until(lambda: here.failover.health.is_healthy)
        assert here.failover.status().settlements == 0
        await rounds(here)
        assert await payloads_of(log, "orders") == numbered([0])
        here.failover.let_go()
        await here.drained()
    assert await payloads_of(log, "orders") == numbered([0, 1, 2])


async def test_who_waits_for_his_turn_when_it_begins_is_held_back_too(tmp_path: Path, log: OutageLog) -> None:
    async with site(tmp_path, log) as here:
        log.mode = "away"
        await here.push(0)
        log.held, log.mode = asyncio.Event(), "there"
        await here.until(lambda: log.commits > 0)
        here.failover.health.recover()
        waiting = asyncio.create_task(here.push(1))
        await asyncio.sleep(0)
        here.failover.hold("maintenance")
        assert (await waiting).where == "spool"
        log.held.set()
        await rounds(here)
        assert await payloads_of(log, "orders") == numbered([0])
        here.failover.let_go()
        await here.drained()
    assert await payloads_of(log, "orders") == numbered([0, 1])


async def test_what_can_t_be_spooled_waits_for_what_is_spooled_and_is_refused_in_maintenance(
    tmp_path: Path, log: OutageLog
) -> None:
    async with site(tmp_path, log) as here:
        await here.failover.make_way("orders", [""])
        here.failover.hold("maintenance")
        await here.push(0)
        with pytest.raises(Unavailable, match="maintenance"):
            await here.failover.make_way("orders", [""])
        here.failover.let_go()
        await here.failover.make_way("orders", [""])
        assert await payloads_of(log, "orders") == numbered([0])


async def test_a_queue_that_a_replay_has_to_make_gets_the_settings_that_its_maker_wants(
    tmp_path: Path, log: OutageLog
) -> None:
    def creation(name: str, block: Block) -> dict[str, Any] | None:
        return {"ordered": True} if name == "new" and len(block) == 2 else None

    async with site(tmp_path, log) as here:
        here.failover.create_by(creation)
        here.failover.hold("maintenance")
        block = Block.of([Message(b"1", "a"), Message(b"2", "b")])
        await here.push_block(block, "new")
        await here.push(3, queue="plain")
        here.failover.let_go()
        await here.drained()
    assert (await log.log.queue("new")).settings.ordered
    assert not (await log.log.queue("plain")).settings.ordered
