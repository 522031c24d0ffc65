"""The machine's clock is set while tasks are out: leases last as long as they should."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from forebay.app.opening import open_embedded
from forebay.model import SystemClock
from forebay.store.store import LogStore
from forebay.store.values import Retry, Task
from tests.clock_jumps import Jumping

HOUR = 3_600_000_000


@pytest.fixture(params=["memory://", "sqlite:///{}/log.db"], ids=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> LogStore:
    store = open_embedded(request.param.format(tmp_path))
    assert isinstance(store, LogStore)
    return store


async def test_a_clock_that_is_set_ahead_ends_no_lease(store: LogStore, jumping: Jumping) -> None:
    async with store:
        await store.create_queue("orders")
        await store.put_task("orders", b"a", b"b")
        one, two = await store.get_task("orders", 2)
        jumping.jump = HOUR
        await store.tick()
        assert await store.get_task("orders", 2) == []
        await store.extend([two])
        await store.done_task([one, two])
        assert [group.done for queue in (await store.ledger()).queues for group in queue.groups] == [2]


async def test_a_clock_that_is_set_back_makes_no_lease_longer(store: LogStore, jumping: Jumping) -> None:
    async with store:
        await store.create_queue("orders")
        await store.put_task("orders", b"a")
        await store.get_task("orders", visibility_seconds=0.5)
        jumping.jump = -HOUR
        (running,) = await store.running()
        assert abs(running.deadline - SystemClock().now()) < 1_000_000, "it is told by the clock as it is now"
        (again,) = await store.get_task("orders", wait_seconds=30)
        assert again.attempts == 1


async def test_a_clock_that_is_set_back_makes_no_delay_longer(store: LogStore, jumping: Jumping) -> None:
    async with store:
        await store.create_queue("orders")
        await store.put_task("orders", b"a", b"b")
        one, two = await store.get_task("orders", 2)
        await store.retry_task([one], delay=0.2)
        await store.settle(retry=[Retry(two, delay_seconds=0.2, counts=False)])
        jumping.jump = -HOUR
        found: list[Task] = []
        async with asyncio.timeout(60):
            while len(found) < 2:
                await store.tick()
                found += await store.get_task("orders", 2)
        assert {(task.data, task.attempts) for task in found} == {(b"a", 1), (b"b", 0)}


@pytest.mark.parametrize("ordered", [False, True], ids=["free", "ordered"])
@pytest.mark.parametrize("way", ["retry", "release"])
async def test_what_came_back_when_the_clock_is_set_back_is_there(
    store: LogStore, jumping: Jumping, way: str, *, ordered: bool
) -> None:
    async with store:
        await store.create_queue("orders", {"ordered": ordered})
        await store.put_task("orders", b"a", b"b", partition="p")
        tasks = await store.get_task("orders", 2)
        await (store.retry_task(tasks) if way == "retry" else store.release(tasks))
        jumping.jump = -HOUR
        await store.tick()
        assert [task.data for task in await store.get_task("orders", 2)] == [b"a", b"b"]


async def test_a_time_that_a_caller_gave_is_left_alone(store: LogStore, jumping: Jumping) -> None:
    async with store:
        await store.create_queue("orders")
        await store.put_task("orders", b"a")
        (task,) = await store.get_task("orders")
        await store.settle(retry=[Retry(task, SystemClock().now() + HOUR)])
        jumping.jump = -HOUR
        await store.tick()
        assert await store.get_task("orders") == []
