"""A log that is slow while tasks are taken: what is answered is leased, for all of its time, and in order."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from forebay.store import lease_renewal
from forebay.store.store import LogStore
from forebay.store.window import Window
from forebay.warm.values import Lease
from tests.conformance.steps import SECOND
from tests.conformance.store.rigs import StoreRig
from tests.conformance.store.test_ordered import attempts, data, ordered, put, put_block

VISIBILITY = 60


@pytest.fixture
def rig(embedded_rig: StoreRig) -> StoreRig:
    """Give each log with each tier."""
    return embedded_rig


@pytest.fixture
def store(rig: StoreRig) -> LogStore:
    """Give the store of the rig."""
    return rig.embedded


def during(store: LogStore, verb: str, happens: Callable[[], Awaitable[None]]) -> None:
    """Let something happen before the log carries out the next call of a verb."""
    log: Any = store.log
    call = getattr(log, verb)

    async def slow(*arguments: Any, **options: Any) -> Any:
        setattr(log, verb, call)
        await happens()
        return await call(*arguments, **options)

    setattr(log, verb, slow)


def passes(rig: StoreRig, seconds: float) -> Callable[[], Awaitable[None]]:
    """Let time pass, and the store do what is due."""

    async def pass_() -> None:
        rig.clock.advance(seconds=seconds)
        await rig.embedded.tick()

    return pass_


async def test_leases_begin_when_they_are_answered(rig: StoreRig, store: LogStore) -> None:
    await store.create_queue("orders")
    await put_block(store, "p", "1", "2")
    during(store, "mark", passes(rig, VISIBILITY - 10))
    tasks = await store.get_task("orders", 9)
    assert [task.deadline for task in tasks] == [rig.clock.now() + VISIBILITY * SECOND] * 2
    await passes(rig, VISIBILITY - 1)()
    await store.done_task(tasks)


async def test_a_lease_that_is_over_is_not_answered(rig: StoreRig, store: LogStore) -> None:
    await store.create_queue("orders")
    await put_block(store, "p", "1", "2")
    during(store, "mark", passes(rig, VISIBILITY))
    tasks = await store.get_task("orders", 9, wait_seconds=2 * VISIBILITY)
    assert attempts(tasks) == [("1", 1), ("2", 1)]
    await store.done_task(tasks)


async def test_leases_are_kept_while_the_log_is_slow(
    rig: StoreRig, store: LogStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease_renewal, "RENEWAL_PART", 1e-5)
    await ordered(store)
    await put_block(store, "p", "1", "2")
    extended = asyncio.Event()
    extend = Window.extend

    async def extend_and_tell(window: Window, wanted: dict[Lease, list[int]], seconds: float) -> list[int]:
        lost = await extend(window, wanted, seconds)
        extended.set()
        return lost

    async def twice() -> None:
        for _ in range(2):
            rig.clock.advance(seconds=VISIBILITY - 1)
            extended.clear()
            await extended.wait()
            await store.tick()

    monkeypatch.setattr(Window, "extend", extend_and_tell)
    during(store, "mark", twice)
    tasks = await store.get_task("orders", 9)
    assert attempts(tasks) == [("1", 0), ("2", 0)]
    await store.done_task(tasks)


async def come_back_and_stay(store: LogStore) -> None:
    """Something of a partition is due, so that the next fill looks for it; another is on the shelf."""
    await ordered(store)
    await put(store, "q", "q1")
    (task,) = await store.get_task("orders", 9)
    await put_block(store, "p", "1", "2", "3", "4", "5")
    assert [p.data for p in await store.peek("orders")] == [b"1", b"2", b"3", b"4", b"5"]
    await store.retry_task([task])


async def check_order(store: LogStore, count: int) -> None:
    """Whatever one answer has of a partition is in order, and leased; the next answers go on with it."""
    seen: list[str] = []
    while tasks := await store.get_task("orders", count):
        await store.done_task(tasks)
        seen += data(tasks)
    assert sorted(seen) == ["1", "2", "3", "4", "5", "q1"]
    assert [name for name in seen if name != "q1"] == ["1", "2", "3", "4", "5"]


async def test_a_batch_that_is_topped_up_too_late_is_in_order(rig: StoreRig, store: LogStore) -> None:
    await come_back_and_stay(store)
    during(store, "due", passes(rig, VISIBILITY))
    await check_order(store, 9)


async def test_a_batch_that_is_topped_up_by_name_too_late_is_in_order(rig: StoreRig, store: LogStore) -> None:
    await ordered(store)
    await put(store, "p", "1", "2", "3", "4", "5")
    assert len(await store.peek("orders")) == 5
    await put(store, "p", "q1")  # the last of its partition, here
    during(store, "claim", passes(rig, VISIBILITY))
    seen: list[str] = []
    while len(seen) < 6:
        tasks = await store.get_task("orders", 6, partition="p", wait_seconds=60)
        await store.done_task(tasks)
        seen += data(tasks)
    assert seen == ["1", "2", "3", "4", "5", "q1"]


async def test_a_batch_of_a_tier_that_is_lost_meanwhile_is_in_order(
    rig: StoreRig, store: LogStore, request: pytest.FixtureRequest
) -> None:
    if not rig.shared:
        pytest.skip("a tier in memory is lost with its process")
    await come_back_and_stay(store)

    async def flush() -> None:
        request.getfixturevalue("valkey_server").flush()

    during(store, "due", flush)
    await check_order(store, 9)


async def test_a_queue_that_is_slow_leaves_the_leases_of_others_alone(rig: StoreRig, store: LogStore) -> None:
    for name in ("orders", "others"):
        await store.create_queue(name)
        await store.put_task(name, b"1")
        assert len(await store.peek(name)) == 1
    marked = 0

    async def slow() -> None:
        nonlocal marked
        marked += 1
        during(store, "mark", passes(rig, VISIBILITY - 10))  # the second queue's

    during(store, "mark", slow)
    tasks = await store.get_task(["orders", "others"], 9)
    assert (marked, len(tasks)) == (1, 2)
    assert {task.deadline for task in tasks} == {rig.clock.now() + VISIBILITY * SECOND}
