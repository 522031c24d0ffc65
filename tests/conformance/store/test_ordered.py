"""Ordered queues: a partition is out to one worker at a time, in push order, whatever comes back."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

import pytest

from forebay.model import LeaseLost, Message
from forebay.store.seam import Store
from forebay.store.values import Task
from tests.conformance.steps import SECOND
from tests.conformance.store.rigs import StoreRig


def data(tasks: list[Task]) -> list[str]:
    return [task.data.decode() for task in tasks]


def attempts(tasks: list[Task]) -> list[tuple[str, int]]:
    return [(task.data.decode(), task.attempts) for task in tasks]


async def lost_of(settling: Awaitable[object]) -> list[int]:
    """The ids of tasks that come too late."""
    try:
        await settling
    except LeaseLost as error:
        return sorted(error.ids)
    return []


async def put(store: Store, partition: str, *names: str) -> None:
    """Put tasks, each in a block of its own."""
    for name in names:
        await store.put_task("orders", name.encode(), partition=partition)


async def put_block(store: Store, partition: str, *names: str) -> None:
    await store.put_task("orders", *[name.encode() for name in names], partition=partition)


async def ordered(store: Store, **settings: object) -> None:
    await store.create_queue("orders", {"ordered": True, **settings})


async def test_a_partition_is_out_to_one_worker_at_a_time(store: Store) -> None:
    await ordered(store)
    await put(store, "p", "p1", "p2", "p3")
    await put(store, "q", "q1", "q2")
    first = await store.get_task("orders", 2)
    assert data(first) == ["p1", "p2"]
    second = await store.get_task("orders", 9)
    assert data(second) == ["q1", "q2"]
    assert await store.get_task("orders", 9) == []
    await store.done_task(first[:1])
    assert await store.get_task("orders", 9) == []
    await store.done_task(first[1:])
    assert data(await store.get_task("orders", 9)) == ["p3"]


async def test_a_run_crosses_blocks(store: Store) -> None:
    await ordered(store)
    await put_block(store, "p", "1", "2", "3")
    await put_block(store, "p", "4", "5", "6")
    tasks = await store.get_task("orders", 5)
    assert data(tasks) == ["1", "2", "3", "4", "5"]
    await store.done_task(tasks)
    assert data(await store.get_task("orders", 5)) == ["6"]


async def test_what_comes_back_holds_up_what_comes_after(rig: StoreRig) -> None:
    store = rig.store
    await ordered(store)
    await put_block(store, "p", "1", "2", "3")
    await put(store, "p", "4", "5")
    await put(store, "q", "q1")
    (task,) = await store.get_task("orders", 1)
    await store.retry_task([task], delay=10)
    assert data(await store.get_task("orders", 9)) == ["q1"]
    rig.clock.advance(seconds=10)
    again = await store.get_task("orders", 9)
    assert [(t.data.decode(), t.attempts) for t in again] == [
        ("1", 1), ("2", 0), ("3", 0), ("4", 0), ("5", 0),
    ]  # fmt: skip
    await store.done_task(again)


async def test_a_retry_in_the_middle_keeps_the_order(rig: StoreRig) -> None:
    store = rig.store
    await ordered(store)
    await put_block(store, "p", "1", "2", "3", "4", "5")
    tasks = await store.get_task("orders", 3)
    await store.retry_task([tasks[1]], delay=10)
    assert await lost_of(store.done_task([tasks[0], tasks[2]])) == [tasks[2].id]
    assert await store.get_task("orders", 9) == []
    rig.clock.advance(seconds=10)
    assert attempts(await store.get_task("orders", 9)) == [("2", 1), ("3", 0), ("4", 0), ("5", 0)]


async def test_released_tasks_keep_their_place(store: Store) -> None:
    await ordered(store)
    await put_block(store, "p", "1", "2", "3", "4")
    tasks = await store.get_task("orders", 2)
    await store.release(tasks)
    assert [(t.data.decode(), t.attempts) for t in await store.get_task("orders", 9)] == [
        ("1", 0), ("2", 0), ("3", 0), ("4", 0),
    ]  # fmt: skip


async def test_an_expired_run_comes_back_in_order(rig: StoreRig) -> None:
    store = rig.store
    await ordered(store)
    await put_block(store, "p", "1", "2", "3", "4")
    tasks = await store.get_task("orders", 3)
    await store.done_task(tasks[:1])
    rig.clock.advance(seconds=60)
    await rig.embedded.tick()
    again = await store.get_task("orders", 9)
    assert [(t.data.decode(), t.attempts) for t in again] == [("2", 1), ("3", 1), ("4", 0)]
    with pytest.raises(LeaseLost):
        await store.done_task(tasks[1:])


async def test_a_later_start_holds_up_its_partition_alone(rig: StoreRig) -> None:
    store, now = rig.store, rig.clock.now()
    await ordered(store)
    await store.put_task(
        "orders",
        Message(b"1", "p"),
        Message(b"2", "p", start_time=now + 10 * SECOND),
        Message(b"3", "p"),
    )
    await put(store, "p", "4")
    await put(store, "q", "q1")
    assert data(await store.get_task("orders", 9)) == ["1", "q1"]
    rig.clock.advance(seconds=9)
    assert await store.get_task("orders", 9) == []


async def test_what_starts_later_comes_in_order(rig: StoreRig) -> None:
    store, now = rig.store, rig.clock.now()
    await ordered(store)
    await store.put_task(
        "orders",
        Message(b"1", "p", start_time=now + 10 * SECOND),
        Message(b"2", "p", start_time=now + 5 * SECOND),
        Message(b"3", "p"),
    )
    await put(store, "p", "4")
    rig.clock.advance(seconds=5)
    assert await store.get_task("orders", 9) == []
    rig.clock.advance(seconds=5)
    assert data(await store.get_task("orders", 9)) == ["1", "2", "3", "4"]


async def test_the_order_survives_a_crash(rig: StoreRig) -> None:
    store = rig.store
    await ordered(store)
    await put_block(store, "p", "1", "2", "3", "4")
    await put(store, "p", "5")
    tasks = await store.get_task("orders", 2)
    await store.done_task(tasks[:1])
    store = await rig.crash()
    if rig.shared:
        rig.clock.advance(seconds=60)
        await rig.embedded.tick()
    again = await store.get_task("orders", 9)
    assert [(t.data.decode(), t.attempts) for t in again] == [("2", 1), ("3", 0), ("4", 0), ("5", 0)]


async def test_a_small_shelf_keeps_the_order(store: Store) -> None:
    await ordered(store, in_memory_queue_size=3)
    for name in range(20):
        await put(store, "p", f"{name:02}")
    seen: list[str] = []
    while tasks := await store.get_task("orders", 2):
        seen += data(tasks)
        await store.done_task(tasks)
    assert seen == [f"{name:02}" for name in range(20)]


async def test_many_partitions_are_shared_by_workers_in_order(store: Store) -> None:
    await ordered(store, in_memory_queue_size=50)
    for name in range(10):
        await asyncio.gather(*(put(store, f"p{p}", f"{name}") for p in range(20)))
    seen: dict[str, list[str]] = {}
    busy: set[str] = set()

    async def work() -> None:
        while tasks := await store.get_task("orders", 3):
            mine = {task.partition for task in tasks}
            assert not mine & busy, "a partition is out twice"
            busy.update(mine)
            await asyncio.sleep(0)
            for task in tasks:
                seen.setdefault(task.partition, []).append(task.data.decode())
            busy.difference_update(mine)
            await store.done_task(tasks)

    await asyncio.gather(*(work() for _ in range(5)))
    while await store.get_task("orders", 1):
        await work()
    assert seen == {f"p{p}": [f"{name}" for name in range(10)] for p in range(20)}
