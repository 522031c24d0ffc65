"""Taking from several queues at once, over every log and tier."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from forebay.model import Rejected, UnknownQueue, cancel
from forebay.store.seam import Store
from forebay.store.values import Task
from tests.conformance.store.rigs import StoreRig, all_waiting

BOTH = ("blue", "red")
LONG = 30.0
ON_ITS_WAY = "an answer on its way to a client that leaves is lost until the visibility timeout"


@pytest.fixture
async def two(store: Store) -> Store:
    """A store with two queues."""
    for name in BOTH:
        await store.create_queue(name)
    return store


def data(tasks: list[Task]) -> list[str]:
    return [task.data.decode() for task in tasks]


def begin(store: Store, *queues: str, count: int = 1) -> asyncio.Task[list[Task]]:
    taking = store.get_task(queues, count, wait_seconds=LONG)
    return asyncio.get_running_loop().create_task(taking)


async def test_a_batch_is_filled_from_several_queues(two: Store) -> None:
    await two.put_task("blue", b"a", b"b")
    await two.put_task("red", b"c", b"d")
    tasks = await two.get_task(BOTH, 3)
    found = data(tasks)
    # Which of them comes first is up to which of them is on its shelf first.
    assert found in (["a", "b", "c"], ["c", "d", "a"])
    await two.done_task(tasks)
    assert sorted(found + data(await two.get_task(BOTH, 3))) == ["a", "b", "c", "d"]


async def test_queues_take_turns_so_that_a_full_one_starves_nobody(two: Store) -> None:
    await two.put_task("blue", *[b"b"] * 6)
    await two.put_task("red", *[b"r"] * 2)
    for name in BOTH:
        await two.peek(name)  # it is on the shelf now
    taken = [data(await two.get_task(BOTH))[0] for _ in range(6)]
    assert taken == ["b", "r", "b", "r", "b", "b"]


async def test_whoever_waits_on_several_queues_gets_what_comes_to_any(rig: StoreRig, two: Store) -> None:
    for name in reversed(BOTH):
        taker = begin(two, *BOTH)
        await all_waiting(rig.embedded, 2)
        await two.put_task(name, name.encode())
        assert data(await taker) == [name]
        assert sum(len(w.line) for w in rig.embedded._windows.values()) == 0


async def test_nothing_is_lost_when_several_queues_wake_the_same_taker(rig: StoreRig, two: Store) -> None:
    for _ in range(5):
        taker = begin(two, *BOTH)
        await all_waiting(rig.embedded, 2)
        await asyncio.gather(two.put_task("blue", b"b"), two.put_task("red", b"r"))
        tasks = await taker
        tasks += await two.get_task(BOTH, 2)
        assert sorted(data(tasks)) == ["b", "r"]
        assert [task.attempts for task in tasks] == [0, 0]
        await two.done_task(tasks)


async def test_a_cancelled_taker_leaves_its_task_to_the_others(rig: StoreRig, two: Store) -> None:
    rig.embedded_only(ON_ITS_WAY)
    first, second = begin(two, *BOTH), begin(two, "red", "blue")
    await all_waiting(rig.embedded, 4)
    await two.put_task("red", b"r")
    await cancel(first)
    tasks = [] if first.cancelled() else first.result()
    tasks += await second if not tasks else []
    assert data(tasks) == ["r"]
    assert tasks[0].attempts == 0
    await cancel(second)


async def test_many_takers_and_many_cancels_lose_no_task(rig: StoreRig, two: Store) -> None:
    rig.embedded_only(ON_ITS_WAY)
    takers = [begin(two, *BOTH, count=2) for _ in range(20)]
    await all_waiting(rig.embedded, 40)
    puts = [two.put_task(BOTH[i % 2], b"%d" % i) for i in range(10)]
    for taker in takers[::2]:
        asyncio.get_running_loop().call_soon(taker.cancel)
    await asyncio.gather(*puts)
    await cancel(*takers[::2])
    tasks = [task for taker in takers if taker.done() and not taker.cancelled() for task in taker.result()]
    async with asyncio.timeout(20):
        while len(tasks) < 10:
            await asyncio.wait([t for t in takers[1::2] if not t.done()], return_when=asyncio.FIRST_COMPLETED)
            tasks = [t for taker in takers if taker.done() and not taker.cancelled() for t in taker.result()]
    assert sorted(data(tasks)) == sorted(str(i) for i in range(10))
    assert {task.attempts for task in tasks} == {0}
    await cancel(*takers)


async def test_a_paused_queue_is_passed_over_until_it_is_resumed(rig: StoreRig, two: Store) -> None:
    await two.pause("blue")
    await two.put_task("blue", b"b")
    await two.put_task("red", b"r")
    assert data(await two.get_task(BOTH, 2)) == ["r"]
    taker = begin(two, *BOTH)
    await all_waiting(rig.embedded, 2)
    await two.resume("blue")
    assert data(await taker) == ["b"]


async def test_each_queue_has_its_own_visibility_timeout(two: Store) -> None:
    await two.configure_queue("blue", {"visibility_seconds": 10})
    await two.configure_queue("red", {"visibility_seconds": 20})
    await two.put_task("blue", b"b")
    await two.put_task("red", b"r")
    blue, red = await two.get_task(BOTH, 2)
    assert red.deadline - blue.deadline == 10_000_000


async def test_a_queue_that_is_deleted_leaves_the_others_waited_for(rig: StoreRig, two: Store) -> None:
    taker = begin(two, *BOTH)
    await all_waiting(rig.embedded, 2)
    await two.delete_queue("blue")
    await two.put_task("red", b"r")
    assert data(await taker) == ["r"]


async def test_an_unknown_queue_is_named_and_nothing_is_taken(two: Store) -> None:
    await two.put_task("blue", b"b")
    with pytest.raises(UnknownQueue, match="green"):
        await two.get_task(["blue", "green"])
    assert data(await two.get_task(["blue", "blue"], 5)) == ["b"], "a queue that is named twice is one"


async def test_too_many_queues_or_none_or_no_names_are_rejected(two: Store) -> None:
    for queues in ([], [f"q{i}" for i in range(101)]):
        with pytest.raises(Rejected, match="name 1 to 100"):
            await two.get_task(queues)
    with pytest.raises(Rejected, match="3 is no name of a queue"):
        await two.get_task(["blue", 3])  # type: ignore[list-item]


async def test_what_a_shared_tier_leased_to_somebody_who_is_gone_goes_back(
    shared_rig: StoreRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = shared_rig.store
    await store.create_queue("blue")
    assert await store.get_task("blue") == []
    warm, came, answered = shared_rig.embedded._shared, asyncio.Event(), asyncio.Event()
    assert warm is not None
    original = warm.take

    async def held(*args: Any, **options: Any) -> Any:
        leased = await original(*args, **options)
        if leased:
            came.set()
            await answered.wait()
        return leased

    monkeypatch.setattr(warm, "take", held)
    await store.put_task("blue", b"b")
    taker = begin(store, "blue")
    await came.wait()
    await cancel(taker)
    answered.set()
    (task,) = await store.get_task("blue", wait_seconds=LONG)
    assert (task.data, task.attempts) == (b"b", 0)
