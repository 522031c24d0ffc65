"""Hard cases, simulated with the real store in virtual time: nothing waits, everything is counted."""

from __future__ import annotations

import heapq

import pytest

from forebay.log.memory import MemoryLog
from forebay.model import ManualClock
from forebay.store.hysteresis import Mode
from forebay.store.store import LogStore
from forebay.store.values import GroupState, Task

BEGIN = 1_800_000_000_000_000
TICK_SECONDS = 0.01
SLOW_TICKS = 100
WORKERS = 10


async def state(store: LogStore) -> GroupState:
    (found,) = (await store.flow_stats()).groups
    return found


async def test_twenty_thousand_a_second_never_lift_the_shelf_over_its_limit() -> None:
    clock = ManualClock(BEGIN)
    async with LogStore(MemoryLog(clock=clock), clock=clock) as store:
        await store.create_queue("flood")
        highest = 0
        for _ in range(200):
            await store.put_task("flood", *[b"x"] * 200)
            tasks = await store.get_task("flood", 20)
            highest = max(highest, (await state(store)).messages)
            await store.done_task(tasks)
            clock.advance(seconds=TICK_SECONDS)
        found = await state(store)
        assert (highest, found.messages_max) == (5_000, 5_000)
        assert found.mode is Mode.COLD


@pytest.mark.slow
async def test_a_burst_drains_and_the_mode_flips_a_few_times_at_most() -> None:
    clock = ManualClock(BEGIN)
    async with LogStore(MemoryLog(clock=clock), clock=clock) as store:
        await store.create_queue("burst")
        for _ in range(12):
            await store.put_task("burst", *[b"x"] * 1_000)
        modes: list[Mode] = []
        left = 12_000
        for _ in range(3_000):
            await store.put_task("burst", *[b"x"] * 15)
            tasks = await store.get_task("burst", 20)
            await store.done_task(tasks)
            left += 15 - len(tasks)
            mode = (await state(store)).mode
            if not modes or modes[-1] is not mode:
                modes.append(mode)
            clock.advance(seconds=TICK_SECONDS)
        assert left == 0
        assert modes in ([Mode.COLD, Mode.WARM], [Mode.WARM, Mode.COLD, Mode.WARM])


async def fast_per_tick(*, slow_too: bool) -> float:
    """How many fast tasks the workers finish in a tick, alone or beside a flow that is 100 times slower."""
    clock = ManualClock(BEGIN)
    async with LogStore(MemoryLog(clock=clock), clock=clock) as store:
        await store.create_queue("shared", {"in_memory_queue_size": 500, "visibility_seconds": 3600})
        free, busy = WORKERS, list[tuple[int, int, Task]]()
        ticks, finished = 2_000, 0
        for tick in range(ticks):
            if tick % 10 == 0:
                await store.put_task("shared", *[b"fast"] * WORKERS * 10, headers={"flow": "fast"})
                if slow_too:
                    await store.put_task("shared", *[b"slow"] * WORKERS * 10, headers={"flow": "slow"})
            while busy and busy[0][0] <= tick:
                _, _, task = heapq.heappop(busy)
                await store.done_task([task])
                finished += task.data == b"fast"
                free += 1
            for task in await store.get_task("shared", free) if free else []:
                ticks_needed = 1 if task.data == b"fast" else SLOW_TICKS
                heapq.heappush(busy, (tick + ticks_needed, task.id, task))
                free -= 1
            clock.advance(seconds=TICK_SECONDS)
        return finished / ticks


@pytest.mark.slow
async def test_a_slow_flow_leaves_a_fast_one_its_share() -> None:
    alone = await fast_per_tick(slow_too=False)
    assert alone == pytest.approx(WORKERS, rel=0.05)
    assert await fast_per_tick(slow_too=True) >= 0.4 * alone
