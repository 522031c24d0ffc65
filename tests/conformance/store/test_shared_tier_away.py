"""Servers that share a tier lose it and find it again: nothing stays where nobody gets it.

Time stands still unless a test moves it, so no lease expires: what comes again was given back.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from forebay.model import LeaseLost
from forebay.store import filling
from forebay.store.seam import Store
from forebay.store.store import LogStore
from forebay.store.values import Task
from forebay.store.window import Window
from tests.conformance.store.rigs import EVERYTHING, WRITES, StoreRig

LOSSES = {"away": EVERYTHING, "full": WRITES}
"""What a store can't do with the shared tier meanwhile."""


def window_of(store: LogStore) -> Window:
    (window,) = store._windows.values()
    return window


def is_shared(store: LogStore) -> bool:
    """Whether the store fills the shared tier now."""
    return window_of(store).tiers.active.warm.shared


async def put_many(store: Store, count: int, *, partitions: int = 1) -> None:
    """Put messages, ten in a block; they are large, and easy to compress: so more are claimed than fit."""
    for begin in range(0, count, 10):
        names = [b"%04d" % n + b" " * 20_000 for n in range(begin, begin + 10)]
        await store.put_task("orders", *names, partition=f"p{begin // 10 % partitions}")


def numbers(tasks: list[Task]) -> list[int]:
    return [int(task.data) for task in tasks]


async def drain(store: Store, count: int) -> list[int]:
    """Take and finish tasks, at one server, until so many came."""
    seen: list[int] = []
    async with asyncio.timeout(60):
        while len(seen) < count:
            tasks = await store.get_task("orders", 50, wait_seconds=1)
            await store.done_task(tasks)
            seen += numbers(tasks)
    return seen


@pytest.fixture
async def servers(shared_rig: StoreRig) -> list[LogStore]:
    """Give two servers."""
    first = shared_rig.embedded
    await shared_rig.open()
    second = shared_rig._open[1]
    return [first, second]


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("ordered", [False, True])
async def test_a_tier_that_is_back_gets_what_servers_claimed_without_it(
    shared_rig: StoreRig, servers: list[LogStore], loss: str, *, ordered: bool
) -> None:
    first, second = servers
    await first.create_queue("orders", {"in_memory_queue_bytes": 1 << 20, "ordered": ordered})
    await first.get_task("orders")
    await second.get_task("orders")
    shared_rig.cut_off(refused=LOSSES[loss])
    await put_many(first, 300, partitions=6)
    held = await first.get_task("orders", 5)
    if (
        not held
    ):  # a full tier still tells servers of puts: the second one was quicker, and has every partition
        first, second = second, first
        held = await first.get_task("orders", 5)
    assert len(held) == 5
    assert not is_shared(first)
    shared_rig.connect()
    await shared_rig.tick()
    assert is_shared(first)
    assert is_shared(second)
    left = set(range(300)) - set(numbers(held))
    behind = {n for n in left if ordered and f"p{n // 10 % 6}" in {task.partition for task in held}}
    assert set(await drain(second, len(left - behind))) == left - behind
    await first.done_task(held)
    assert await drain(second, len(behind)) == sorted(behind)
    await first.tick()
    assert window_of(first).tiers.own.epoch is None
    (group,) = (await first.log.stats()).queues[0].groups
    assert (group.done, group.held, group.deferred, group.difference) == (300, 0, 0, 0)


@pytest.mark.parametrize("ordered", [False, True])
async def test_a_lease_of_an_outage_settles_at_every_server(
    shared_rig: StoreRig, servers: list[LogStore], *, ordered: bool
) -> None:
    first, second = servers
    await first.create_queue("orders", {"ordered": ordered})
    await first.get_task("orders")
    await second.get_task("orders")
    shared_rig.cut_off()
    await put_many(first, 30)
    held = await first.get_task("orders", 10)
    assert len(held) == 10
    assert await second.done_task(held[:2]) == "log"
    shared_rig.connect()
    await shared_rig.tick()
    assert is_shared(second)
    assert await second.done_task(held[2:4]) == "log"
    await second.retry_task(held[4:5])
    if ordered:  # what comes after it has come back along
        with pytest.raises(LeaseLost):
            await second.done_task(held[5:])
    else:
        assert await second.done_task(held[5:]) == "log"
    with pytest.raises(LeaseLost):
        await first.done_task(held)
    await shared_rig.tick()
    left = [n for n in range(30) if n not in numbers(held[:4] if ordered else held[:4] + held[5:])]
    drained = await drain(second, len(left))
    assert (drained if ordered else sorted(drained)) == left
    await first.tick()
    (group,) = (await first.log.stats()).queues[0].groups
    assert (group.done, group.held, group.deferred, group.difference) == (30, 0, 0, 0)


@pytest.mark.parametrize("loss", LOSSES)
async def test_a_server_without_the_tier_stays_without_it(
    shared_rig: StoreRig, servers: list[LogStore], loss: str
) -> None:
    first, _ = servers
    await first.create_queue("orders")
    await first.get_task("orders")
    shared_rig.cut_off(first, refused=LOSSES[loss])
    await put_many(first, 20)
    await first.get_task("orders")
    for _ in range(3):
        await first.tick()
        assert not is_shared(first)


@pytest.mark.parametrize("loss", LOSSES)
async def test_leases_expire_while_the_tier_is_away(
    shared_rig: StoreRig, servers: list[LogStore], loss: str
) -> None:
    first, _ = servers
    await first.create_queue("orders", {"visibility_seconds": 20})
    await first.get_task("orders")
    shared_rig.cut_off(refused=LOSSES[loss])
    await put_many(first, 10)
    held = await first.get_task("orders", 10, wait_seconds=10)  # the log may stall
    shared_rig.clock.advance(seconds=21)
    await first.tick()
    again = await first.get_task("orders", 10, wait_seconds=10)
    assert sorted(numbers(again)) == sorted(numbers(held))
    assert [task.attempts for task in again] == [1] * 10
    await first.done_task(again)


async def test_a_claim_whose_answer_was_lost_without_the_tier_is_given_back(
    shared_rig: StoreRig, servers: list[LogStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = servers
    await first.create_queue("orders", {"in_memory_queue_size": 10})
    await first.get_task("orders")
    shared_rig.cut_off()
    await put_many(first, 40)
    held = await first.get_task("orders")
    claim, lost = first.log.claim, asyncio.Event()

    async def lossy(*args: object, **options: object) -> object:
        await claim(*args, **options)  # type: ignore[arg-type]
        monkeypatch.undo()
        lost.set()
        raise ConnectionResetError

    assert numbers(held) == [0]
    monkeypatch.setattr(first.log, "claim", lossy)
    seen: list[int] = []
    async with asyncio.timeout(60):
        while not lost.is_set():
            with suppress(ConnectionResetError):  # it may also meet a fill in the background
                tasks = await first.get_task("orders", 5)
                await first.done_task(tasks)
                seen += numbers(tasks)
    shared_rig.connect()
    await shared_rig.tick()
    seen += await drain(second, 39 - len(seen))
    assert sorted(seen) == list(range(1, 40))
    await first.done_task(held)


async def test_what_is_released_without_the_tier_reaches_other_servers(
    shared_rig: StoreRig, servers: list[LogStore]
) -> None:
    first, second = servers
    await first.create_queue("orders")
    await first.get_task("orders")
    shared_rig.cut_off()
    await put_many(first, 10)
    held = await first.get_task("orders", 10)
    shared_rig.connect()
    await shared_rig.tick()
    await first.release(held)
    await shared_rig.tick()
    assert sorted(await drain(second, 10)) == list(range(10))
    with pytest.raises(LeaseLost):
        await first.done_task(held)


async def test_fills_that_take_too_long_get_on_all_the_same(
    shared_rig: StoreRig, servers: list[LogStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, _ = servers
    await first.create_queue("orders", {"in_memory_queue_bytes": 1 << 20, "visibility_seconds": 3_600})
    await first.get_task("orders")
    await put_many(first, 300)
    monkeypatch.setattr(filling, "NOTED_STEP", 1)
    read, reads = first.log.read, 0
    tier = window_of(first).tiers.active

    async def slow(*args: object, **options: object) -> object:
        """Take so long, every other time, that another server begins to fill."""
        nonlocal reads
        reads += 1
        if reads % 2 == 0:
            shared_rig.clock.advance(seconds=4)
            await tier.warm.begin(tier.shelf, tier.epoch or "")
        return await read(*args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(first.log, "read", slow)
    seen: list[int] = []
    for _ in range(100):
        shared_rig.clock.advance(seconds=4)
        tasks = await first.get_task("orders", 50)
        await first.done_task(tasks)
        seen += numbers(tasks)
    assert sorted(seen) == list(range(300))
    assert reads > 20
