"""Taking from one named partition of an ordered queue, and from few of them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import pytest

from forebay.log.sqlite import SqliteLog
from forebay.model import Rejected, UnknownQueue
from forebay.store.seam import Store
from forebay.store.store import LogStore
from forebay.store.values import Task
from forebay.warm.valkey import ValkeyWarm
from tests.conformance.steps import SECOND
from tests.conformance.store.rigs import StoreRig

T = TypeVar("T")


def data(tasks: list[Task]) -> list[str]:
    return [task.data.decode() for task in tasks]


async def put(store: Store, partition: str, *names: str) -> None:
    """Put tasks, each in a block of its own."""
    for name in names:
        await store.put_task("orders", name.encode(), partition=partition)


async def ordered(store: Store, **settings: object) -> None:
    await store.create_queue("orders", {"ordered": True, **settings})


async def pop(store: Store, partition: str, count: int = 1, wait_seconds: float = 0.0) -> list[Task]:
    return await store.get_task("orders", count, partition=partition, wait_seconds=wait_seconds)


async def test_a_named_partition_is_taken_alone(store: Store) -> None:
    await ordered(store)
    await put(store, "p", "p1", "p2")
    await put(store, "", "1")
    await put(store, "q/ü %", "q1")
    assert data(await pop(store, "q/ü %", 9)) == ["q1"]
    assert data(await pop(store, "", 9)) == ["1"]
    assert await pop(store, "none", 9) == []
    assert data(await pop(store, "p", 9)) == ["p1", "p2"]


async def test_a_partition_that_is_out_is_there_again_when_it_is_settled(store: Store) -> None:
    await ordered(store)
    await put(store, "p", "p1", "p2", "p3")
    first = await pop(store, "p", 2)
    assert data(first) == ["p1", "p2"]
    assert await pop(store, "p", 9) == []
    assert await store.get_task("orders", 9) == []
    await store.done_task(first[:1])
    assert await pop(store, "p", 9) == []
    await store.done_task(first[1:])
    assert data(await pop(store, "p", 9)) == ["p3"]


async def test_many_small_blocks_fill_a_take(store: Store) -> None:
    await ordered(store)
    names = [f"{n:03}" for n in range(120)]
    await put(store, "p", *names[:5])
    assert len(await store.peek("orders")) == 5  # these are on the shelf now, the others are not
    await put(store, "p", *names[5:])
    tasks = await pop(store, "p", 100)
    assert data(tasks) == names[:100]
    await store.done_task(tasks)
    assert data(await pop(store, "p", 100)) == names[100:]


async def test_many_small_blocks_fill_a_take_of_any_partition(store: Store) -> None:
    await ordered(store)
    names = [f"{n:03}" for n in range(120)]
    await put(store, "p", *names[:5])
    await put(store, "q", "q1")
    assert len(await store.peek("orders")) == 6
    await put(store, "p", *names[5:])
    tasks = await store.get_task("orders", 100, partitions_max=1)
    assert data(tasks) == names[:100]
    assert data(await store.get_task("orders", 100, partitions_max=1)) == ["q1"]
    await store.done_task(tasks)
    assert data(await store.get_task("orders", 100, partitions_max=1)) == names[100:]


async def test_no_more_partitions_are_taken_than_are_allowed(store: Store) -> None:
    await ordered(store)
    for partition in "pqrs":
        await put(store, partition, f"{partition}1", f"{partition}2")
    assert data(await store.get_task("orders", 3, partitions_max=2)) == ["p1", "p2", "q1"]
    assert data(await store.get_task("orders", 9, partitions_max=1)) == ["r1", "r2"]
    assert data(await store.get_task("orders", 9, partitions_max=9)) == ["s1", "s2"]


async def test_several_queues_share_what_is_allowed(store: Store) -> None:
    for name in ("one", "two"):
        await store.create_queue(name, {"ordered": True})
        await store.put_task(name, b"1", partition="p")
        await store.put_task(name, b"2", partition="q")
    taken = await store.get_task(["one", "two"], 9, partitions_max=3)
    assert len({(task.queue_num, task.partition) for task in taken}) == 3
    assert len(await store.get_task(["one", "two"], 9, partitions_max=3)) == 1


async def test_what_makes_no_sense_is_rejected(store: Store) -> None:
    await ordered(store)
    await store.create_queue("plain")
    await store.create_queue("other", {"ordered": True})
    for queue, options in (
        ("plain", {"partition": "p"}),
        ("plain", {"partitions_max": 1}),
        (["orders", "other"], {"partition": "p"}),
        ("orders", {"partitions_max": 0}),
        ("orders", {"partition": "p" * 300}),
        ("orders", {"partition": "p\n"}),
    ):
        with pytest.raises(Rejected):
            await store.get_task(queue, **options)
    with pytest.raises(UnknownQueue):
        await store.get_task("nowhere", partition="p")


async def test_order_is_kept_between_named_and_unnamed_takers(rig: StoreRig) -> None:
    store = rig.store
    await ordered(store)
    await put(store, "p", *(f"p{n}" for n in range(6)))
    await put(store, "q", "q0")
    (first,) = await pop(store, "p")
    assert data(await store.get_task("orders", 9)) == ["q0"]
    await store.retry_task([first], delay=10)
    assert await pop(store, "p") == []
    assert await store.get_task("orders", 9) == []
    rig.clock.advance(seconds=10)
    again = await pop(store, "p", 2)
    assert [(t.data.decode(), t.attempts) for t in again] == [("p0", 1), ("p1", 0)]
    await store.done_task(again)
    (third,) = await store.get_task("orders", 1)
    assert data([third]) == ["p2"]
    await store.release([third])
    assert data(await pop(store, "p", 9)) == ["p2", "p3", "p4", "p5"]


async def test_an_expired_lease_brings_its_partition_back_in_order(rig: StoreRig) -> None:
    store = rig.store
    await ordered(store)
    await put(store, "p", "p1", "p2", "p3")
    assert data(await store.get_task("orders", 2, partition="p", visibility_seconds=5)) == ["p1", "p2"]
    rig.clock.advance(seconds=6)
    await rig.embedded.tick()
    again = await pop(store, "p", 9)
    assert [(t.data.decode(), t.attempts) for t in again] == [("p1", 1), ("p2", 1), ("p3", 0)]


async def test_a_dead_server_loses_nothing_of_a_named_partition(durable_rig: StoreRig) -> None:
    rig = durable_rig
    await ordered(rig.store)
    await put(rig.store, "p", "p1", "p2", "p3")
    assert data(await pop(rig.store, "p", 2)) == ["p1", "p2"]
    store = await rig.crash()
    if rig.shared:
        assert await pop(store, "p", 9) == []
        rig.clock.advance(seconds=60)
        await rig.embedded.tick()
    assert data(await pop(store, "p", 9)) == ["p1", "p2", "p3"]


async def test_a_shelf_full_of_others_starves_no_named_partition(store: Store) -> None:
    await ordered(store, in_memory_queue_size=10)
    for n in range(30):
        await put(store, f"p{n}", f"{n}.1", f"{n}.2")
    assert data(await store.get_task("orders", 1)) == ["0.1"]  # the shelf is full of the first ones now
    for n in (29, 3, 17, 1):
        tasks = await pop(store, f"p{n}", 9)
        assert data(tasks) == [f"{n}.1", f"{n}.2"]
    assert await pop(store, "p0") == []


async def test_every_partition_of_many_is_found_by_its_name(rig: StoreRig) -> None:
    rig.embedded_only("what is in between makes no difference")
    store = rig.store
    await ordered(store, in_memory_queue_size=20)
    names = [f"p{n}" for n in range(100)]
    for name in names:
        await store.put_task("orders", name.encode(), partition=name)
    assert data(await store.get_task("orders", 1, partitions_max=1)) == ["p0"]
    for name in reversed(names[1:]):
        tasks = await pop(store, name, 5)
        assert data(tasks) == [name]
        await store.done_task(tasks)
    assert await store.get_task("orders", 9) == []


@pytest.mark.slow
async def test_ten_thousand_partitions_are_found_by_their_names_on_a_small_shelf(tmp_path: Path) -> None:
    async with LogStore(SqliteLog(tmp_path / "log.db")) as store:
        await ordered(store, in_memory_queue_size=100)
        names = [f"p{n}" for n in range(10_000)]
        await each_of(names, lambda name: store.put_task("orders", name.encode(), partition=name))
        assert data(await store.get_task("orders", 1, partitions_max=1, visibility_seconds=900)) != []

        async def work(name: str) -> str:
            tasks = await pop(store, name, 5)
            await store.done_task(tasks)
            return ",".join(data(tasks))

        found = await each_of(names, work)
        assert [a for a, b in zip(found, names, strict=True) if a != b] == [""]  # the one that is out
        (stat,) = (await store.flow_stats()).groups
        assert stat.messages <= 100


async def each_of(names: list[str], work: Callable[[str], Awaitable[T]]) -> list[T]:
    """Do something for each, 64 at a time."""
    several = asyncio.Semaphore(64)

    async def one(name: str) -> T:
        async with several:
            return await work(name)

    return await asyncio.gather(*map(one, names))


async def test_a_seek_brings_a_named_partition_back(store: Store) -> None:
    await ordered(store)
    await put(store, "p", "p1", "p2")
    await store.done_task(await pop(store, "p", 9))
    assert await pop(store, "p") == []
    await store.seek("orders", "workers", "earliest")
    assert data(await pop(store, "p", 9)) == ["p1", "p2"]


# Waiting


async def waits(rig: StoreRig, partition: str, count: int = 1) -> asyncio.Task[list[Task]]:
    """Begin to wait for a partition; returns when it does."""
    store = rig.embedded
    queue = await store.queue("orders")
    before = waiting_for(rig, queue.number, partition)
    taking = asyncio.create_task(pop(rig.store, partition, count, 30))
    async with asyncio.timeout(10):
        while waiting_for(rig, queue.number, partition) <= before:  # noqa: ASYNC110 - no event for it
            await asyncio.sleep(0)
    return taking


def waiting_for(rig: StoreRig, queue: int, partition: str) -> int:
    """How many wait for a partition."""
    window = rig.embedded._windows.get((queue, "workers"))
    named = window.lines._named.get(partition) if window is not None else None
    return 0 if named is None else len(named.line)


async def test_who_waits_for_a_partition_gets_what_is_put_there(rig: StoreRig) -> None:
    await ordered(rig.store)
    taking = await waits(rig, "p", 9)
    await put(rig.store, "q", "q1")
    await put(rig.store, "p", "p1")
    assert data(await taking) == ["p1"]
    assert not rig.embedded._windows[(await rig.embedded.queue("orders")).number, "workers"].lines


async def test_who_waits_for_a_partition_gets_it_when_it_is_settled(rig: StoreRig) -> None:
    await ordered(rig.store)
    await put(rig.store, "p", "p1", "p2")
    (out,) = await pop(rig.store, "p")
    taking = await waits(rig, "p")
    await rig.store.done_task([out])
    assert data(await taking) == ["p2"]


@pytest.mark.usefixtures("no_tick")
async def test_who_waits_for_a_partition_gets_it_when_the_shelf_has_room(rig: StoreRig) -> None:
    await ordered(rig.store, in_memory_queue_size=2)
    await put(rig.store, "p", "p1", "p2")
    await put(rig.store, "q", "q1")
    out = await pop(rig.store, "p", 2)
    assert await pop(rig.store, "q") == []
    taking = await waits(rig, "q")
    await rig.store.done_task(out)
    assert data(await asyncio.wait_for(taking, 20)) == ["q1"]  # at once, not with the next round


async def test_who_waits_for_a_partition_gets_what_comes_due(rig: StoreRig) -> None:
    await ordered(rig.store)
    await put(rig.store, "p", "p1")
    await rig.store.retry_task(await pop(rig.store, "p"), delay=10)
    taking = await waits(rig, "p")
    rig.clock.advance(seconds=11)
    await rig.embedded.tick()
    assert data(await taking) == ["p1"]


async def test_who_waits_for_a_partition_gets_what_expires(rig: StoreRig) -> None:
    await ordered(rig.store)
    await put(rig.store, "p", "p1")
    await rig.store.get_task("orders", visibility_seconds=5)
    taking = await waits(rig, "p")
    rig.clock.advance(seconds=6)
    await rig.embedded.tick()
    assert [(t.data.decode(), t.attempts) for t in await taking] == [("p1", 1)]


async def test_those_who_wait_for_a_partition_come_one_after_the_other(rig: StoreRig) -> None:
    await ordered(rig.store)
    takers = [await waits(rig, "p") for _ in range(3)]
    await put(rig.store, "p", "p1", "p2", "p3")
    for n, taker in enumerate(takers, 1):
        (task,) = await taker
        assert task.data.decode() == f"p{n}"
        await rig.store.done_task([task])


async def test_a_push_to_another_partition_lets_nobody_look(
    rig: StoreRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig.embedded_only("the windows are looked at")
    rig.watch_nobody(monkeypatch)
    await ordered(rig.store)
    takers = [await waits(rig, f"p{n}") for n in range(20)]
    window = rig.embedded._windows[(await rig.embedded.queue("orders")).number, "workers"]
    looks: list[str | None] = []
    original = window.grab_partition

    async def grab_partition(wish: object) -> list[Task]:
        looks.append(wish.partition)  # type: ignore[attr-defined]
        return await original(wish)  # type: ignore[arg-type]

    window.grab_partition = grab_partition  # type: ignore[method-assign]
    for n in range(20):
        await put(rig.store, f"q{n}", "q")
    await put(rig.store, "p7", "p")
    assert data(await takers[7]) == ["p"]
    assert looks == ["p7"]
    for taker in takers:
        taker.cancel()
    await asyncio.gather(*takers, return_exceptions=True)
    assert not window.lines


async def test_a_cancelled_taker_of_a_partition_leaves_nothing_behind(rig: StoreRig) -> None:
    await ordered(rig.store)
    taking = await waits(rig, "p")
    other = await waits(rig, "p")
    taking.cancel()
    await asyncio.gather(taking, return_exceptions=True)
    await put(rig.store, "p", "p1")
    assert data(await other) == ["p1"]


async def test_a_paused_queue_hands_out_no_partition_until_it_is_resumed(rig: StoreRig) -> None:
    await ordered(rig.store)
    await put(rig.store, "p", "p1")
    await rig.store.pause("orders")
    assert await pop(rig.store, "p") == []
    taking = await waits(rig, "p")
    await rig.store.resume("orders")
    assert data(await taking) == ["p1"]


# Several servers


async def test_another_server_sees_what_was_put(rig: StoreRig) -> None:
    store = rig.store
    await ordered(store)
    other = await rig.open()
    await put(store, "p", "p1")
    tasks = await pop(other, "p")
    assert data(tasks) == ["p1"]
    await put(other, "p", "p2")
    assert await pop(store, "p") == []
    await other.done_task(tasks)
    assert data(await pop(store, "p")) == ["p2"]


async def test_a_server_wakes_those_who_wait_elsewhere(shared_rig: StoreRig) -> None:
    rig = shared_rig
    await ordered(rig.store)
    other = await rig.open()
    assert await pop(other, "p") == []
    taking = await waits(rig, "p")
    shared = rig.embedded._shared
    assert isinstance(shared, ValkeyWarm)
    await asyncio.wait_for(shared._ears.hearing.wait(), 10)
    await put(other, "p", "p1")
    assert data(await asyncio.wait_for(taking, 10)) == ["p1"]


async def test_time_alone_wakes_nobody_too_early(rig: StoreRig) -> None:
    await ordered(rig.store)
    await rig.store.put_task("orders", b"p1", partition="p", start_time=rig.clock.now() + 10 * SECOND)
    taking = await waits(rig, "p")
    rig.clock.advance(seconds=5)
    await rig.embedded.tick()
    assert not taking.done()
    rig.clock.advance(seconds=6)
    await rig.embedded.tick()
    assert data(await taking) == ["p1"]
