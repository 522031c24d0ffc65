"""Races of a window, with the real store on a log whose answers a test can hold back, lose or refuse.

It is long because every race needs its own steps, and all share the means to hold a log up.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from os import urandom
from typing import Any

import pytest

from forebay.log.memory import MemoryLog
from forebay.log.values import DeadLetter, Deferral, Group, Settlement
from forebay.model import Flow, LeaseLost, Limits, ManualClock, Message, Rejected, Unavailable
from forebay.store.hysteresis import Mode
from forebay.store.store import LogStore
from forebay.store.tier import Tier
from forebay.store.values import Retry, Task
from forebay.warm.memory import MemoryWarm
from forebay.warm.seam import EpochLost, WarmAway
from tests.conformance.store.rigs import all_waiting

BEGIN = 1_800_000_000_000_000
Call = Callable[..., Awaitable[Any]]


class Gate:
    """Holds back the next answer of one verb of the log."""

    def __init__(self, log: MemoryLog, verb: str) -> None:
        self.came = asyncio.Event()
        self.open = asyncio.Event()
        call = getattr(log, verb)

        async def held(*args: Any, **kwargs: Any) -> Any:
            setattr(log, verb, call)
            answer = await call(*args, **kwargs)
            self.came.set()
            await self.open.wait()
            return answer

        setattr(log, verb, held)


def refuse(log: MemoryLog, verb: str) -> None:
    """Have the next call of a verb fail before it does anything."""
    call = getattr(log, verb)

    async def refused(*_: Any, **__: Any) -> Any:
        setattr(log, verb, call)
        raise Unavailable("the log is away")

    setattr(log, verb, refused)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(BEGIN)


@pytest.fixture
def log(clock: ManualClock) -> MemoryLog:
    return MemoryLog(clock=clock)


@pytest.fixture
async def store(log: MemoryLog, clock: ManualClock) -> AsyncIterator[LogStore]:
    async with LogStore(log, clock=clock) as opened:
        yield opened


def data(tasks: list[Task]) -> list[str]:
    return [task.data.decode() for task in tasks]


async def settled() -> None:
    """Let everything run that can."""
    for _ in range(50):
        await asyncio.sleep(0)


async def counts(log: MemoryLog) -> tuple[int, int]:
    """How many messages are held, and how many of them are out with workers."""
    group = (await log.stats()).queues[0].groups[0]
    return group.held, group.handed


async def test_a_worker_woken_and_cancelled_at_once_passes_it_on(store: LogStore) -> None:
    await store.create_queue("orders")
    await store.put_task("orders", b"a")
    held = await store.get_task("orders")
    first = asyncio.create_task(store.get_task("orders", wait_seconds=30))
    await all_waiting(store, 1)
    second = asyncio.create_task(store.get_task("orders", wait_seconds=30))
    await all_waiting(store, 2)
    window = next(iter(store._windows.values()))
    await store.release(held)
    assert len(window.line) == 1, "one of them is woken"
    first.cancel()
    async with asyncio.timeout(5):
        assert data(await second) == ["a"]


async def test_a_worker_woken_for_a_call_that_fails_passes_it_on(store: LogStore, log: MemoryLog) -> None:
    await store.create_queue("orders")
    await store.put_task("orders", b"a")
    held = await store.get_task("orders")
    waiting = [asyncio.create_task(store.get_task("orders", wait_seconds=30)) for _ in range(2)]
    await all_waiting(store, 2)
    await store.release(held)
    refuse(log, "mark")
    async with asyncio.timeout(5):
        found = await asyncio.gather(*waiting, return_exceptions=True)
    assert sorted(type(f).__name__ for f in found) == ["Unavailable", "list"]


async def test_whoever_is_cancelled_while_a_batch_is_topped_up_leaves_nothing_behind(
    store: LogStore, log: MemoryLog
) -> None:
    await store.create_queue("orders")
    await store.put_task("orders", b"a")
    await store.release(await store.get_task("orders"))
    gate = Gate(log, "claim")
    await store.put_task("orders", b"b")
    await gate.came.wait()
    taking = asyncio.create_task(store.get_task("orders", 5))
    await settled()
    assert (await counts(log))[1] == 1, "one is taken, and more is waited for"
    taking.cancel()
    await settled()
    gate.open.set()
    assert (await counts(log))[1] == 0
    assert data(await store.get_task("orders", 5)) == ["a", "b"]


async def test_whoever_is_cancelled_while_his_lease_is_noted_leaves_nothing_behind(
    store: LogStore, log: MemoryLog
) -> None:
    await store.create_queue("orders")
    await store.put_task("orders", b"a")
    gate = Gate(log, "mark")
    taking = asyncio.create_task(store.get_task("orders"))
    await gate.came.wait()
    taking.cancel()
    await settled()
    assert await counts(log) == (1, 0)
    assert data(await store.get_task("orders")) == ["a"]


async def test_a_freed_partition_wakes_whoever_waits_for_it(store: LogStore) -> None:
    await store.create_queue("orders", {"ordered": True})
    await store.put_task("orders", b"1", b"2", partition="p")
    tasks = await store.get_task("orders")
    waiting = asyncio.create_task(store.get_task("orders", wait_seconds=30))
    await all_waiting(store)
    await store.done_task(tasks)
    async with asyncio.timeout(5):
        assert data(await waiting) == ["2"]


async def test_room_that_comes_about_during_a_fill_is_filled(store: LogStore, log: MemoryLog) -> None:
    await store.create_queue("orders", {"in_memory_queue_size": 10})
    await store.put_task("orders", *[b"%02d" % i for i in range(9)])
    tasks = await store.get_task("orders", 9)
    waiting = [asyncio.create_task(store.get_task("orders", wait_seconds=30)) for _ in range(3)]
    await all_waiting(store, 3)
    await settled()
    gate = Gate(log, "claim")
    await store.put_task("orders", *[b"%02d" % i for i in range(9, 30)])
    await gate.came.wait()  # it brings one, to the limit
    await store.done_task(tasks)
    gate.open.set()
    async with asyncio.timeout(5):
        found = await asyncio.gather(*waiting)
    assert sorted(map(data, found)) == [["09"], ["10"], ["11"]]


async def test_claims_that_another_server_took_over_never_make_a_queue_look_empty(
    store: LogStore, log: MemoryLog, clock: ManualClock
) -> None:
    await store.create_queue("orders")
    await store.put_task("orders", *[b"%02d" % i for i in range(20)])
    await store.done_task(await store.get_task("orders"))
    async with LogStore(log, clock=clock) as other:
        for owner in await log.owners():
            await log.retire(owner.name)
        assert len(await other.get_task("orders", 30)) == 19
        await store.put_task("orders", b"new")
        assert data(await store.get_task("orders")) == ["new"]


async def test_a_letter_that_comes_again_is_not_taken_for_its_block(store: LogStore) -> None:
    await store.create_queue("orders")
    await store.put_task("orders", b"first", b"second")
    first, second = await store.get_task("orders", 2)
    await store.put_task("orders", b"third")
    await store.get_task("orders")
    await store.bury([first], "bad")
    await store.redrive("orders")
    assert data(await store.get_task("orders")) == ["first"]
    await store.retry_task([second])
    assert data(await store.get_task("orders")) == ["second"]


async def test_a_retry_of_one_partition_holds_up_no_other(store: LogStore, clock: ManualClock) -> None:
    await store.create_queue("orders", {"ordered": True})
    await store.put_task("orders", b"p1", b"p2", partition="p")
    await store.put_task("orders", b"q1", b"q2", partition="q")
    p1 = (await store.get_task("orders"))[0]
    q1 = (await store.get_task("orders"))[0]
    await store.settle(retry=[Retry(p1, clock.now() + 100_000_000), Retry(q1, clock.now())])
    assert data(await store.get_task("orders", 9)) == ["q1", "q2"]


async def test_a_failed_commit_of_an_ordered_queue_strands_nothing(
    store: LogStore, log: MemoryLog, clock: ManualClock
) -> None:
    await store.create_queue("orders", {"ordered": True, "in_memory_queue_bytes": 1 << 20})
    await store.put_task("orders", *[bytes([i]) + urandom(600_000) for i in range(4)], partition="p")
    (task,) = await store.get_task("orders")
    refuse(log, "commit")
    with pytest.raises(Unavailable):
        await store.retry_task([task])
    clock.advance(seconds=61)
    await store.tick()
    found: list[int] = []
    while tasks := await store.get_task("orders", 9):
        found += [task.data[0] for task in tasks]
        await store.done_task(tasks)
    assert found == [0, 1, 2, 3]


async def test_closing_hands_out_nothing_more(log: MemoryLog, clock: ManualClock) -> None:
    async with LogStore(log, clock=clock) as store:
        await store.create_queue("orders")
        await store.put_task("orders", b"a")
        gate = Gate(log, "claim")
        taking = asyncio.create_task(store.get_task("orders", wait_seconds=30))
        await gate.came.wait()
        closing = asyncio.create_task(store.__aexit__(None, None, None))
        await settled()
        gate.open.set()
        await closing
    assert await taking == []
    assert await counts(log) == (0, 0)
    assert await log.owners() == []


@pytest.mark.parametrize("limit", [100, 2], ids=["roomy", "full of one flow"])
async def test_an_idle_group_gives_back_what_is_ready_and_is_forgotten(
    store: LogStore, log: MemoryLog, clock: ManualClock, limit: int
) -> None:
    await store.create_queue("orders", {"in_memory_queue_size": limit})
    await store.put_task("orders", *[b"x"] * 5)
    await store.done_task(await store.get_task("orders"))
    await settled()
    assert await counts(log) == (min(4, limit), 0)
    clock.advance(seconds=31)
    await store.tick()
    await settled()
    assert await counts(log) == (0, 0)
    assert await log.owners() == []
    assert (store._windows, store._by_group, store._by_queue) == ({}, {}, {})
    assert len(await store.get_task("orders", 5)) == min(4, limit)


async def test_a_group_with_a_task_that_is_out_for_long_is_kept(
    store: LogStore, log: MemoryLog, clock: ManualClock
) -> None:
    await store.create_queue("orders")
    await store.put_task("orders", b"x")
    tasks = await store.get_task("orders", visibility_seconds=3600)
    for _ in range(3):
        clock.advance(seconds=31)
        await store.tick()
        await settled()
    assert len(await log.owners()) == 1
    await store.done_task(tasks)
    clock.advance(seconds=31)
    await store.tick()
    await settled()
    assert await log.owners() == []
    assert store._windows == {}


async def test_a_worker_who_comes_while_a_group_is_given_up_keeps_his_task(
    store: LogStore, clock: ManualClock
) -> None:
    await store.create_queue("orders")
    await store.put_task("orders", b"a", b"b")
    await store.done_task(await store.get_task("orders"))
    await store.tick()
    clock.advance(seconds=31)
    ticking = asyncio.create_task(store.tick())
    taking = asyncio.create_task(store.get_task("orders"))
    await ticking
    tasks = await taking
    await settled()
    await store.done_task(tasks)
    assert data(tasks) == ["b"]


async def test_a_group_that_another_server_made_anew_is_found(store: LogStore, log: MemoryLog) -> None:
    queue = await store.create_queue("orders")
    assert await store.get_task("orders") == []
    (group,) = await log.groups(queue)
    await log.delete_group(group)
    await log.create_group(queue, "workers")
    await store.put_task("orders", b"a")
    assert data(await store.get_task("orders")) == ["a"]


async def test_what_is_due_is_found_beside_a_claim_that_was_lost_and_starts_later(
    store: LogStore, log: MemoryLog
) -> None:
    await store.create_queue("orders")
    await store.put_task("orders", b"a")
    (task,) = await store.get_task("orders")
    await store.put_task("orders", b"later", delay=100)
    claim = log.claim

    async def lost(*args: Any, **kwargs: Any) -> Any:
        await claim(*args, **kwargs)
        log.claim = claim  # type: ignore[method-assign]
        raise Unavailable("the answer was lost")

    log.claim = lost  # type: ignore[method-assign]
    with pytest.raises(Unavailable):
        await store.get_task("orders")
    await store.retry_task([task])
    async with asyncio.timeout(5):
        assert data(await store.get_task("orders", wait_seconds=1)) == ["a"]


async def test_a_message_that_kills_its_process_is_given_up_too(log: MemoryLog, clock: ManualClock) -> None:
    async with LogStore(log, clock=clock, name="one") as store:
        await store.create_queue("orders", {"retries_max": 1})
        await store.put_task("orders", b"poison", b"good")
        for attempts in range(2):
            (task, _) = await store.get_task("orders", 2)
            assert task.attempts == attempts
            await store.release([_])
            for owner in await log.owners():
                await log.retire(owner.name)
        assert data(await store.get_task("orders", 2)) == ["good"]
        (letter,) = await store.dead_letters("orders")
        assert letter.message().payload == b"poison"


async def test_an_ordered_message_says_when_it_became_available(store: LogStore, clock: ManualClock) -> None:
    await store.create_queue("orders", {"ordered": True})
    now = clock.now()
    await store.put_task("orders", b"1", partition="p")
    await store.put_task("orders", b"2", b"3", partition="p", delay=5)
    clock.advance(seconds=10)
    tasks = await store.get_task("orders", 9)
    assert [task.start_time - now for task in tasks] == [0, 5_000_000, 5_000_000]


async def test_a_lease_made_shorter_expires_on_time(store: LogStore, clock: ManualClock) -> None:
    await store.create_queue("orders")
    await store.put_task("orders", b"a")
    (task,) = await store.get_task("orders")
    await store.extend([task], 0.02)
    window = next(iter(store._windows.values()))
    assert window._timer is not None
    assert window._timer.when() <= asyncio.get_running_loop().time() + 0.02
    assert clock.now() == BEGIN


async def test_a_full_shelf_of_bytes_leaves_the_rest_in_the_log(store: LogStore, log: MemoryLog) -> None:
    await store.create_queue("orders", {"in_memory_queue_bytes": 1 << 20})
    for _ in range(100):
        await store.put_task("orders", urandom(100_000))
    await store.get_task("orders")
    assert (await counts(log))[0] <= 12


async def test_the_ticker_survives_what_a_window_raises(
    store: LogStore, log: MemoryLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("forebay.store.rounds.TICK_SECONDS", 0.0)
    await store.create_queue("orders")
    await store.get_task("orders")
    reported: list[str] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context["message"]))
    calls = asyncio.Semaphore(0)

    async def broken(*_: object) -> None:
        calls.release()
        raise AssertionError("a bug")

    (window,) = store._windows.values()
    log.heartbeat = broken  # type: ignore[method-assign,assignment]
    window.tick = broken  # type: ignore[method-assign]
    ticking = asyncio.create_task(store._rounds.run())
    async with asyncio.timeout(60):
        for _ in range(4):
            await calls.acquire()
    ticking.cancel()
    assert reported[:2] == ["a round of upkeep failed", "the upkeep of orders/workers failed"]


async def test_a_lease_of_another_process_is_not_taken_for_our_own(
    log: MemoryLog, clock: ManualClock
) -> None:
    async with LogStore(log, clock=clock) as one, LogStore(log, clock=clock) as other:
        await one.create_queue("orders")
        await one.put_task("orders", b"a")
        mine = await one.get_task("orders")
        await other.put_task("orders", b"b")
        theirs = await other.get_task("orders")
        assert mine[0].lease.epoch != theirs[0].lease.epoch
        await other.done_task(mine)  # the log says whose it is
        assert len(await other.running()) == 1
        await other.done_task(theirs)
        with pytest.raises(LeaseLost):
            await one.done_task(mine)
        assert await counts(log) == (0, 0)


async def test_letters_by_name_are_found_without_reading_all_of_them(store: LogStore, log: MemoryLog) -> None:
    await store.create_queue("orders")
    await store.put_task("orders", *[b"%d" % i for i in range(2_500)])
    tasks = await store.get_task("orders", 2_500)
    await store.bury(tasks, "bad")
    pages: list[int] = []
    dead_letters = log.dead_letters

    async def spying(group: Group, *, after: int = 0, limit: int = 100) -> list[DeadLetter]:
        page = await dead_letters(group, after=after, limit=limit)
        pages.append(len(page))
        return page

    log.dead_letters = spying  # type: ignore[method-assign]
    assert list((await store.redrive("orders", [tasks[1_500].id, tasks[1_600].id])).ids) == [
        tasks[1_500].id, tasks[1_600].id,
    ]  # fmt: skip
    assert len(pages) == 1
    assert list((await store.redrive("orders", [])).ids) == []


async def test_the_blocks_of_a_deleted_queue_are_forgotten(store: LogStore) -> None:
    await store.create_queue("orders")
    await store.get_task("orders")
    await store.put_task("orders", b"a")
    await store.delete_queue("orders")
    assert not store._tails._tails


async def test_what_an_idle_group_gave_back_comes_before_what_is_newer(
    store: LogStore, clock: ManualClock
) -> None:
    await store.create_queue("orders", {"in_memory_queue_size": 1})
    await store.get_task("orders")
    await store.put_task("orders", b"1", b"2")
    await settled()
    clock.advance(seconds=31)
    await store.tick()
    await store.pause("orders")
    assert await store.get_task("orders") == []
    await store.resume("orders")
    await settled()
    assert data(await store.get_task("orders")) == ["1"]


async def test_a_delayed_message_that_was_lost_says_when_it_was_available_before(
    log: MemoryLog, store: LogStore, clock: ManualClock
) -> None:
    await store.create_queue("orders")
    await store.put_task("orders", b"1", delay=5)
    clock.advance(seconds=10)
    (task,) = await store.get_task("orders")
    assert task.start_time == BEGIN + 5_000_000
    for owner in await log.owners():
        await log.retire(owner.name)
    (task,) = await store.get_task("orders")
    assert (task.attempts, task.prev_start_time) == (1, BEGIN + 5_000_000)


async def test_a_fill_that_cannot_look_around_is_tried_again_soon(store: LogStore, log: MemoryLog) -> None:
    await store.create_queue("orders")
    await store.get_task("orders")
    window = next(iter(store._windows.values()))
    window._hog, window._look_at = Flow("f"), -1e9
    refuse(log, "flows")
    await store.put_task("orders", b"a")
    await settled()
    assert window._timer is not None
    assert window._timer.when() <= asyncio.get_running_loop().time() + 1


async def test_a_shelf_made_smaller_strands_nothing(store: LogStore) -> None:
    await store.create_queue("orders", {"in_memory_queue_bytes": 1 << 20})
    await store.put_task("orders", *[bytes(8_000)] * 250)
    tasks = await store.get_task("orders", 10)
    (window,) = store._windows.values()
    assert sum(c.noted for s in await window.stats() for c in s.flows) > 100
    await store.done_task(tasks)
    await store.configure_queue("orders", {"in_memory_queue_size": 100})
    count = len(tasks)
    while tasks := await store.get_task("orders", 50):
        await store.done_task(tasks)
        count += len(tasks)
    assert count == 250


@pytest.mark.parametrize("partition", [None, "p"])
async def test_a_shelf_made_larger_serves_who_waits_for_room(store: LogStore, partition: str | None) -> None:
    await store.create_queue("orders", {"in_memory_queue_size": 2, "ordered": partition is not None})
    await store.put_task("orders", b"a", b"b", partition="o")
    held = await store.get_task("orders", 2)
    await store.put_task("orders", b"c", partition="p")
    waiting = asyncio.create_task(store.get_task("orders", wait_seconds=60, partition=partition))
    await settled()
    assert len(held) == 2
    assert not waiting.done()
    await store.configure_queue("orders", {"in_memory_queue_size": 3})
    await settled()
    assert waiting.done(), "it waits for a tick"
    assert data(await waiting) == ["c"]


async def test_a_message_larger_than_the_shelf_is_handed_out_in_its_turn(clock: ManualClock) -> None:
    log = MemoryLog(clock=clock, limits=Limits(message_bytes_max=4 << 20))
    async with LogStore(log, clock=clock) as store:
        await store.create_queue("orders", {"in_memory_queue_bytes": 1 << 20})
        for size in (1, 3 << 20, 2 << 20, 2):
            await store.put_task("orders", bytes(size))
        sizes = []
        while tasks := await store.get_task("orders", 10):
            assert len(tasks) == 1 or sum(len(task.data) for task in tasks) <= 1 << 20
            sizes += [len(task.data) for task in tasks]
            await store.done_task(tasks)
        assert sizes == [1, 3 << 20, 2 << 20, 2]


def rests(store: LogStore, seconds: float) -> bool:
    """Whether the window does nothing by itself for so long."""
    (window,) = store._windows.values()
    return window._timer is None or window._timer.when() >= asyncio.get_running_loop().time() + seconds


@pytest.mark.parametrize("reason", ["full", "paused"])
async def test_what_is_due_and_can_not_be_handed_out_keeps_nobody_busy(
    store: LogStore, clock: ManualClock, reason: str
) -> None:
    await store.create_queue("orders", {"in_memory_queue_size": 2})
    await store.put_task("orders", b"a", b"b", b"c")
    first = await store.get_task("orders", 2)
    await store.retry_task(first[:1], delay=1)
    held = [*first[1:], *await store.get_task("orders")]
    if reason == "paused":
        await store.pause("orders")
        await store.done_task(held[:1])
    waiting = asyncio.create_task(store.get_task("orders", wait_seconds=60))
    await settled()
    clock.advance(seconds=2)
    await store.tick()
    await settled()
    assert rests(store, 0.5)
    await store.done_task(held[1:])
    await store.resume("orders")
    await settled()
    assert data(await waiting) == ["a"]


async def test_what_is_due_by_our_clock_alone_keeps_nobody_busy(log: MemoryLog, clock: ManualClock) -> None:
    ahead = ManualClock(BEGIN)
    async with LogStore(log, clock=ahead) as store:
        await store.create_queue("orders")
        await store.put_task("orders", b"a")
        await store.retry_task(await store.get_task("orders"), delay=10)
        waiting = asyncio.create_task(store.get_task("orders", wait_seconds=60))
        ahead.advance(seconds=20)
        await settled()
        await store.tick()
        await settled()
        assert rests(store, 0.02)
        clock.advance(seconds=20)
        await store.tick()
        assert data(await waiting) == ["a"]


async def test_a_dropped_window_keeps_no_bodies(store: LogStore) -> None:
    await store.create_queue("orders")
    await store.put_task("orders", b"a", b"b")
    await store.get_task("orders")
    await store.delete_queue("orders")
    assert store._own._shelves == {}


async def test_leases_that_are_over_are_not_remembered_for_long(store: LogStore) -> None:
    await store.create_queue("orders")
    for _ in range(30):
        await store.put_task("orders", *[b"x"] * 100)
        for _ in range(100):
            await store.done_task(await store.get_task("orders"))
    (contents,) = store._own._shelves.values()
    assert len(contents.deadlines) <= 1_001


async def test_a_lease_of_no_length_is_refused(store: LogStore) -> None:
    await store.create_queue("orders")
    await store.put_task("orders", b"a")
    for seconds in (-1.0, float("inf"), float("nan")):
        with pytest.raises(Rejected, match="a lease of"):
            await store.get_task("orders", visibility_seconds=seconds)
    tasks = await store.get_task("orders")
    with pytest.raises(Rejected, match="a lease of"):
        await store.extend(tasks, -1)


class Away(MemoryWarm):
    """A shared tier that can be out of reach."""

    shared = True
    away = False

    def __getattribute__(self, name: str) -> Any:
        if name in {"epoch", "renew", "begin", "take", "stats", "running"} and super().__getattribute__(
            "away"
        ):
            raise WarmAway("it is away")
        return super().__getattribute__(name)


async def test_without_its_shared_tier_a_store_goes_on_at_once(log: MemoryLog, clock: ManualClock) -> None:
    shared = Away("shared", clock=clock)
    async with LogStore(log, shared, clock=clock) as store:
        await store.create_queue("orders")
        assert await store.get_task("orders") == []
        shared.away = True
        await store.put_task("orders", b"a")
        assert data(await store.get_task("orders")) == ["a"]
        assert len(await store.running()) == 1
        assert sum(flow.taken for flow in (await store.flow_stats()).flows) == 1


async def test_a_store_that_cannot_open_closes_what_it_opened(log: MemoryLog) -> None:
    closed: list[str] = []

    class Closing(MemoryWarm):
        async def __aexit__(self, *_: object) -> None:
            closed.append(self.name)

    refuse(log, "owners")
    with pytest.raises(Unavailable):
        async with LogStore(log, Closing("shared")):
            pass
    assert closed == ["shared"]


async def test_an_epoch_that_a_fill_ended_itself_is_over_for_the_window_too(store: LogStore) -> None:
    await store.create_queue("orders")
    await store.put_task("orders", b"a", b"b")
    await store.done_task(await store.get_task("orders"))
    window = next(iter(store._windows.values()))
    due_at = window._next_due_at
    assert due_at is not None
    begun: list[str] = []

    async def end_it(tier: Tier, epoch: str) -> None:
        begun.append(epoch)
        if len(begun) == 1:
            await tier.renew()
            raise EpochLost("over", hint="again")

    await window.tiers.call(window.tiers.own, end_it)
    assert len(set(begun)) == 2
    assert window._held == 0
    assert window._next_due_at is None


async def test_what_goes_back_along_and_had_gone_before_is_not_lost_by_whoever_retries(
    log: MemoryLog, store: LogStore
) -> None:
    await store.create_queue("orders", {"ordered": True})
    await store.put_task("orders", b"1", b"2", partition="a")
    (task,) = await store.get_task("orders")
    lease = task.lease
    rest = Deferral(1, BEGIN)
    before = Settlement(
        group=lease.group, token=lease.claim, first=lease.first, count=lease.count, deferred=(rest,)
    )
    await log.commit(settlements=[before])  # an answer was lost, and it is said again
    await store.retry_task([task])
    again = await store.get_task("orders", 2, wait_seconds=5)
    assert [each.data for each in again] == [b"1", b"2"]


@pytest.mark.parametrize("others", [0, 5], ids=["one flow", "another waits behind it"])
async def test_the_look_for_other_flows_refills_nothing_but_them(
    store: LogStore, clock: ManualClock, others: int
) -> None:
    await store.create_queue("orders", {"in_memory_queue_size": 100})
    await store.put_task("orders", *[Message(b"a", headers={"flow": "a"}) for _ in range(300)])
    tasks = await store.get_task("orders", 20)
    window = next(iter(store._windows.values()))
    assert (await shelved(store), window.mode) == ({"a": 100}, Mode.COLD)
    if others:
        await store.put_task("orders", *[Message(b"b", headers={"flow": "b"}) for _ in range(others)])
    await store.done_task(tasks[:8])
    for task in (tasks[8], tasks[9]):  # it is looked once a second, and what looks is a settlement
        clock.advance(seconds=2)
        await store.done_task([task])
        while window._filling is not None:
            await asyncio.wait([window._filling])
    # At 90 to 92 of 100 a cold queue isn't refilled: only what the flow keeps from the shelf comes to it.
    assert await shelved(store) == ({"a": 90, "b": others} if others else {"a": 90})
    await store.done_task(tasks[10:])
    while window._filling is not None:
        await asyncio.wait([window._filling])
    await store.get_task("orders", 1)
    assert sum((await shelved(store)).values()) <= 100


async def shelved(store: LogStore) -> dict[str, int]:
    """What is on the shelf, ready or out, by flow."""
    found = (await store.flow_stats()).flows
    return {each.flow.name: each.warm + each.taken for each in found if each.warm + each.taken}
