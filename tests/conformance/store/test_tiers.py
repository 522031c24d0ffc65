"""Two tiers: the shelf never holds more than it may, and nobody waits for a tick."""

from __future__ import annotations

import asyncio

import pytest

from forebay.model import Unavailable, cancel
from forebay.store.hysteresis import Mode
from forebay.store.seam import Store
from forebay.store.values import GroupState, Task
from tests.conformance.store.rigs import StoreRig, all_waiting


def data(tasks: list[Task]) -> list[int]:
    return [int(task.data) for task in tasks]


async def put_many(store: Store, count: int, batch: int = 100, size: int = 0) -> None:
    for begin in range(0, count, batch):
        names = range(begin, min(begin + batch, count))
        await store.put_task("orders", *[b"%06d" % n + b" " * size for n in names])


async def state(store: Store) -> GroupState:
    (found,) = (await store.flow_stats()).groups
    return found


async def test_the_shelf_holds_no_more_than_its_limit(store: Store) -> None:
    await store.create_queue("orders", {"in_memory_queue_size": 50})
    await put_many(store, 1_000, batch=70)
    held: list[Task] = []
    for _ in range(10):
        held += await store.get_task("orders", 10)
        assert (await state(store)).messages <= 50
    assert data(held) == list(range(50))
    assert await store.get_task("orders", 10) == []
    await store.done_task(held[:5])
    more = await store.get_task("orders", 10)
    assert (await state(store)).messages <= 50
    assert data(more) == list(range(50, 50 + len(more)))


async def test_the_shelf_holds_no_more_bytes_than_its_limit(store: Store) -> None:
    await store.create_queue("orders", {"in_memory_queue_bytes": 1 << 20})
    await put_many(store, 60, batch=15, size=100_000)
    seen: list[int] = []
    while tasks := await store.get_task("orders", 3):
        assert (await state(store)).bytes <= 1 << 20
        seen += data(tasks)
        await store.done_task(tasks)
    assert seen == list(range(60))


async def test_a_limit_of_one_works(store: Store) -> None:
    await store.create_queue("orders", {"in_memory_queue_size": 1})
    await put_many(store, 10, batch=5)
    seen: list[int] = []
    while tasks := await store.get_task("orders", 10):
        assert len(tasks) == 1
        seen += data(tasks)
        await store.done_task(tasks)
    assert seen == list(range(10))


async def test_older_cold_comes_before_newer_warm(store: Store) -> None:
    await store.create_queue("orders", {"in_memory_queue_size": 10})
    await put_many(store, 100, batch=7)
    seen: list[int] = []
    number = 100
    while tasks := await store.get_task("orders", 4):
        seen += data(tasks)
        if number < 140:
            await store.put_task("orders", b"%06d" % number)
            number += 1
        await store.done_task(tasks)
    assert seen == list(range(140))


async def test_a_full_shelf_turns_cold_and_a_drained_one_warm(store: Store) -> None:
    await store.create_queue("orders", {"in_memory_queue_size": 100})
    await put_many(store, 150, batch=10)
    tasks = await store.get_task("orders", 10)
    assert (await state(store)).mode is Mode.COLD
    await store.done_task(tasks)
    while tasks := await store.get_task("orders", 10):
        await store.done_task(tasks)
    await put_many(store, 10)
    await store.get_task("orders", 1)
    assert (await state(store)).mode is Mode.WARM


async def test_workers_of_a_burst_never_wait_for_a_tick(rig: StoreRig) -> None:
    store = rig.store
    await store.create_queue("orders", {"in_memory_queue_size": 500})
    await put_many(store, 20_000, batch=1_000)
    done = 0

    async def work() -> None:
        nonlocal done
        while done < 20_000:
            tasks = await store.get_task("orders", 100, wait_seconds=4)
            await store.done_task(tasks)
            done += len(tasks)

    workers = [asyncio.create_task(work()) for _ in range(8)]
    try:
        async with asyncio.timeout(30):
            await next(asyncio.as_completed(workers))
    finally:
        await cancel(*workers)  # the others wait for tasks that won't come
    assert done == 20_000
    (group,) = (await store.ledger()).queues[0].groups
    assert (group.done, group.ready, group.held) == (20_000, 0, 0)


@pytest.mark.usefixtures("no_tick")
async def test_a_waiting_worker_gets_a_put_without_its_being_read_back(
    rig: StoreRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig.watch_nobody(monkeypatch)  # else it might be found there before we say that we have put it
    store = rig.store
    await store.create_queue("orders")
    waiting = asyncio.create_task(store.get_task("orders", wait_seconds=30))
    await all_waiting(rig.embedded)
    claim = rig.embedded.log.claim
    bodies: list[bytes] = []

    async def spying(*args: object, **kwargs: object) -> object:
        claimed = await claim(*args, **kwargs)  # type: ignore[arg-type]
        bodies.extend(c.block.body for c in claimed.claims)
        return claimed

    rig.embedded.log.claim = spying  # type: ignore[method-assign,assignment]
    await store.put_task("orders", b"000001")
    async with asyncio.timeout(10):
        assert data(await waiting) == [1]
    assert bodies == [b""]


async def test_what_another_server_puts_is_found_too(rig: StoreRig) -> None:
    store, other = rig.store, await rig.open()
    await store.create_queue("orders")
    await store.get_task("orders")
    await store.put_task("orders", b"1")
    await other.put_task("orders", b"2")
    await store.put_task("orders", b"3")
    assert data(await store.get_task("orders", 9)) == [1, 2, 3]
    waiting = asyncio.create_task(store.get_task("orders", wait_seconds=30))
    await all_waiting(rig.embedded)
    await other.put_task("orders", b"4")
    if not rig.shared:
        await rig.embedded.tick()
    async with asyncio.timeout(10):
        assert data(await waiting) == [4]


async def test_two_servers_never_hand_out_the_same_task(rig: StoreRig) -> None:
    stores = [rig.store, await rig.open()]
    await stores[0].create_queue("orders", {"in_memory_queue_size": 40})
    await put_many(stores[0], 2_000)
    seen: list[int] = []

    async def work(store: Store) -> None:
        while len(seen) < 2_000:
            tasks = await store.get_task("orders", 10, wait_seconds=0.05)
            seen.extend(data(tasks))
            await store.done_task(tasks)

    async with asyncio.timeout(60):
        await asyncio.gather(*(work(store) for store in stores for _ in range(3)))
    assert sorted(seen) == list(range(2_000))


async def test_a_lost_answer_of_the_log_loses_nothing(rig: StoreRig) -> None:
    store = rig.store
    await store.create_queue("orders")
    await put_many(store, 30, batch=10)
    claim = rig.embedded.log.claim

    async def lossy(*args: object, **kwargs: object) -> object:
        await claim(*args, **kwargs)  # type: ignore[arg-type]
        rig.embedded.log.claim = claim  # type: ignore[method-assign]
        raise Unavailable("the answer was lost")

    rig.embedded.log.claim = lossy  # type: ignore[method-assign,assignment]
    try:
        tasks = await store.get_task("orders", 30)
    except Unavailable:
        tasks = await store.get_task("orders", 30)
    assert sorted(data(tasks)) == list(range(30))
    assert [task.attempts for task in tasks] == [0] * 30


async def test_room_that_another_server_makes_serves_who_waits(shared_rig: StoreRig) -> None:
    store, other = shared_rig.embedded, await shared_rig.open()
    await store.create_queue("orders", {"in_memory_queue_size": 10})
    await put_many(store, 30)
    held = await store.get_task("orders", 10)
    assert len(held) == 10
    waiting = asyncio.create_task(store.get_task("orders", 10, wait_seconds=60))
    await all_waiting(store)
    await other.done_task(held)
    await store.tick()  # which comes twice a second where a tier is shared
    assert data(await asyncio.wait_for(waiting, 10)) == list(range(10, 20))
