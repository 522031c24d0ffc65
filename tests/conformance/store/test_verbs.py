"""The verbs of the store: put, get, done, retry, stat, and what surrounds them."""

from __future__ import annotations

import asyncio
import math
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from forebay.log.values import GroupStats
from forebay.model import LeaseLost, Message, Rejected, UnknownGroup, UnknownQueue, mint, sequence_of
from forebay.store.seam import Store
from forebay.store.values import QueueStat, Retry, Task
from tests.conformance.steps import SECOND
from tests.conformance.store.rigs import StoreRig, all_waiting


def data(tasks: list[Task]) -> list[str]:
    return [task.data.decode() for task in tasks]


async def stat(store: Store, number: int = 1) -> tuple[int, int, int, int]:
    found: QueueStat = (await store.get_stat()).queue_stats[number]
    return found.total_tasks, found.ready_tasks, found.taken_tasks, found.delayed_tasks


async def counts(store: Store) -> GroupStats:
    return (await store.ledger()).queues[0].groups[0]


async def test_tasks_come_in_the_order_of_their_puts(store: Store) -> None:
    await store.create_queue("orders")
    ids = await store.put_task("orders", b"a", b"b")
    ids += await store.put_task("orders", b"c")
    assert [sequence_of(i) for i in ids] == [1, 2, 3]
    tasks = await store.get_task("orders", 10)
    assert [task.id for task in tasks] == ids
    assert data(tasks) == ["a", "b", "c"]
    await store.done_task(tasks)
    assert await store.get_task("orders") == []
    assert (await counts(store)).done == 3


async def test_a_task_has_the_fields_of_its_message(rig: StoreRig) -> None:
    queue = await rig.store.create_queue("orders", number=7)
    now = rig.clock.now()
    message = Message(b"x", "p", "t-1", {"flow": "f", "trace": "9"})
    (task_id,) = await rig.store.put_task("orders", message)
    rig.clock.advance(seconds=1)
    (task,) = await rig.store.get_task("orders")
    assert (task.id, task.queue_num, task.data) == (task_id, queue.number, b"x")
    assert (task.partition, task.transaction_id, task.headers) == ("p", "t-1", message.headers)
    assert (task.created_at, task.start_time, task.prev_start_time, task.attempts) == (now, now, None, 0)
    assert task.deadline == now + 61 * SECOND
    assert task.message() == message


async def test_a_taken_task_is_nobody_elses(store: Store) -> None:
    await store.create_queue("orders")
    await store.put_task("orders", *[b"%d" % i for i in range(100)])
    taken = await asyncio.gather(*(store.get_task("orders", 7) for _ in range(20)))
    ids = [task.id for tasks in taken for task in tasks]
    assert len(ids) == len(set(ids)) == 100
    assert await stat(store) == (100, 0, 100, 0)


async def test_attempts_and_start_times_follow_the_table(rig: StoreRig) -> None:
    store, clock = rig.store, rig.clock
    await store.create_queue("orders")
    put = clock.now()
    await store.put_task("orders", b"x")
    clock.advance(seconds=1)
    (task,) = await store.get_task("orders")
    assert (task.attempts, task.start_time, task.prev_start_time) == (0, put, None)
    retry = clock.now() + 30 * SECOND
    await store.retry_task([Retry(task, retry)])
    assert await store.get_task("orders") == []
    clock.set(retry)
    (task,) = await store.get_task("orders")
    assert (task.attempts, task.start_time, task.prev_start_time) == (1, retry, put)
    clock.advance(seconds=60)
    timed_out = clock.now()
    await rig.embedded.tick()
    (task,) = await store.get_task("orders")
    assert (task.attempts, task.start_time, task.prev_start_time) == (2, timed_out, retry)
    clock.advance(seconds=1)
    await store.retry_task([task])
    retried = clock.now()
    (task,) = await store.get_task("orders")
    assert (task.attempts, task.start_time, task.prev_start_time) == (3, retried, timed_out)


async def test_attempts_survive_a_crash(rig: StoreRig) -> None:
    store, clock = rig.store, rig.clock
    await store.create_queue("orders")
    put = clock.now()
    await store.put_task("orders", b"retried", b"handed", b"released", b"waiting")
    first, handed, released = await store.get_task("orders", 3)
    await store.retry_task([first])
    again = clock.now()
    await store.release([released])
    assert handed.attempts == 0
    clock.advance(seconds=5)
    crashed = clock.now()
    if rig.shared:
        store = await rig.crash()
        clock.advance(seconds=60)
        crashed = clock.now()
        await rig.embedded.tick()
    else:
        store = await rig.crash()
    tasks = {task.data.decode(): task for task in await store.get_task("orders", 10)}
    seen = {name: (t.attempts, t.start_time, t.prev_start_time) for name, t in tasks.items()}
    assert seen["handed"] == (1, crashed, put)
    assert seen["retried"] == (1, again, put)
    assert seen["released"] == (0, put, None)
    assert seen["waiting"] == (0, put, None)
    assert set(seen) == {"retried", "handed", "released", "waiting"}


async def test_delayed_tasks_wait_for_their_time(rig: StoreRig) -> None:
    store, clock = rig.store, rig.clock
    await store.create_queue("orders")
    now = clock.now()
    await store.put_task("orders", b"later", delay=10)
    await store.put_task("orders", b"soon", start_time=now + 5 * SECOND)
    await store.put_task("orders", b"now", b"at once")
    when = datetime.fromtimestamp(now // SECOND, UTC) + timedelta(seconds=7)
    await store.put_task("orders", b"by date", start_time=when)
    await store.put_task("orders", b"by delta", delay=timedelta(seconds=8))
    assert data(await store.get_task("orders", 10)) == ["now", "at once"]
    assert await stat(store) == (6, 0, 2, 4)
    clock.advance(seconds=4.999999)
    assert await store.get_task("orders") == []
    clock.advance(seconds=0.000001)
    (task,) = await store.get_task("orders", 10)
    assert (task.data, task.start_time, task.attempts, task.prev_start_time) == (
        b"soon", now + 5 * SECOND, 0, None,
    )  # fmt: skip
    clock.advance(seconds=5)
    assert data(await store.get_task("orders", 10)) == ["by date", "by delta", "later"]


async def test_one_block_may_hold_tasks_of_several_times(rig: StoreRig) -> None:
    store, clock = rig.store, rig.clock
    await store.create_queue("orders")
    now = clock.now()
    times = [None, now + 2 * SECOND, now - SECOND, now + 2 * SECOND, now + SECOND, None]
    messages = [Message(b"%d" % i, start_time=at) for i, at in enumerate(times)]
    await store.put_task("orders", *messages)
    assert sorted(data(await store.get_task("orders", 10))) == ["0", "2", "5"]
    clock.advance(seconds=1)
    assert data(await store.get_task("orders", 10)) == ["4"]
    clock.advance(seconds=1)
    assert data(await store.get_task("orders", 10)) == ["1", "3"]


async def test_start_time_and_delay_exclude_each_other(store: Store) -> None:
    await store.create_queue("orders")
    with pytest.raises(Rejected, match="both start_time and delay"):
        await store.put_task("orders", b"x", start_time=5, delay=1)
    with pytest.raises(Rejected, match="a delay of -1 seconds"):
        await store.put_task("orders", b"x", delay=-1)
    for never in (1e12, 1e308, float("inf"), float("nan")):
        with pytest.raises(Rejected, match="a delay of"):
            await store.put_task("orders", b"x", delay=never)
    with pytest.raises(Rejected, match="no task to put"):
        await store.put_task("orders")
    for delay in (None, 1):
        with pytest.raises(Rejected, match="message 1 is str, neither a Message nor bytes"):
            await store.put_task("orders", b"x", "y", delay=delay)  # type: ignore[arg-type]
    assert await stat(store) == (0, 0, 0, 0)


async def test_a_put_with_the_same_id_is_one_put(store: Store) -> None:
    await store.create_queue("orders")
    block_id = mint()
    ids = await store.put_task("orders", b"x", b"y", id=block_id)
    assert await store.put_task("orders", b"x", b"y", id=block_id) == ids
    assert len(await store.get_task("orders", 10)) == 2


async def test_transaction_ids_are_put_once(store: Store) -> None:
    await store.create_queue("orders")
    first = await store.put_task("orders", Message(b"x", transaction_id="t"))
    again = await store.put_task("orders", Message(b"x", transaction_id="t"), Message(b"y"))
    assert again[0] == first[0]
    assert data(await store.get_task("orders", 10)) == ["x", "y"]


async def test_unknown_queues_and_groups_are_named(store: Store) -> None:
    await store.create_queue("orders")
    with pytest.raises(UnknownQueue, match="did you mean 'orders'"):
        await store.put_task("order", b"x")
    with pytest.raises(UnknownQueue):
        await store.get_task("order")
    with pytest.raises(UnknownGroup, match="has no group 'audit'"):
        await store.get_task("orders", group="audit")
    with pytest.raises(Rejected, match="0 tasks can't be taken"):
        await store.get_task("orders", 0)


async def test_an_id_is_not_enough_to_settle(store: Store) -> None:
    await store.create_queue("orders")
    await store.put_task("orders", b"x")
    (task,) = await store.get_task("orders")
    with pytest.raises(Rejected, match="pass the task itself"):
        await store.done_task([task.id])  # type: ignore[list-item]
    await store.done_task([task])


async def test_every_group_sees_every_task(store: Store) -> None:
    await store.create_queue("orders")
    await store.create_group("orders", "audit")
    await store.put_task("orders", b"x", b"y")
    await store.create_group("orders", "late", "latest")
    mine, theirs = await store.get_task("orders", 9), await store.get_task("orders", 9, group="audit")
    assert data(mine) == data(theirs) == ["x", "y"]
    assert await store.get_task("orders", group="late") == []
    await store.done_task(mine)
    await store.retry_task(theirs)
    assert await store.get_task("orders") == []
    assert data(await store.get_task("orders", 9, group="audit")) == ["x", "y"]


async def test_done_of_a_mixed_batch_settles_each_on_its_own(store: Store) -> None:
    await store.create_queue("orders")
    await store.put_task("orders", *[b"%d" % i for i in range(10)])
    tasks = await store.get_task("orders", 10)
    await store.settle(
        done=tasks[0:6:2], retry=[Retry(tasks[1], 0)], bury=tasks[3:4], reason="bad", release=tasks[6:]
    )
    group = await counts(store)
    assert (group.done, group.dead, group.difference) == (3, 1, 0)
    assert sorted(data(await store.get_task("orders", 10))) == ["1", "6", "7", "8", "9"]
    await store.done_task(tasks[5:6])


async def test_a_task_has_one_outcome(store: Store) -> None:
    await store.create_queue("orders")
    await store.put_task("orders", b"a", b"b")
    a, b = await store.get_task("orders", 2)
    for outcomes in ({"release": [b, a]}, {"bury": [a]}, {"retry": [Retry(a, 0)]}):
        with pytest.raises(Rejected, match=f"task {a.id} has two outcomes"):
            await store.settle(done=[a], **outcomes)
    assert await stat(store) == (2, 0, 2, 0)
    await store.settle(done=[a, a], retry=[Retry(b, 0)])


async def test_a_late_done_is_a_conflict_and_changes_nothing(rig: StoreRig) -> None:
    store = rig.store
    await store.create_queue("orders")
    await store.put_task("orders", b"x", b"y")
    first, second = await store.get_task("orders", 2, visibility_seconds=5)
    rig.clock.advance(seconds=4.999)
    await store.done_task([first])
    rig.clock.advance(seconds=0.001)
    for settle in (store.done_task, store.release, store.retry_task, store.extend):
        with pytest.raises(LeaseLost, match=f"1 tasks were no longer yours.*{second.id}"):
            await settle([second])
    with pytest.raises(LeaseLost):
        await store.bury([second], "late")
    await rig.embedded.tick()
    # A tick of the store's own may be under way with it.
    (again,) = await store.get_task("orders", 2, wait_seconds=10)
    assert again.attempts == 1
    with pytest.raises(LeaseLost):
        await store.done_task([second])
    await store.done_task([again])
    with pytest.raises(LeaseLost):
        await store.done_task([again])
    group = await counts(store)
    assert (group.done, group.held, group.deferred) == (2, 0, 0)


async def test_a_batch_that_is_partly_late_settles_the_rest(rig: StoreRig) -> None:
    store = rig.store
    await store.create_queue("orders")
    await store.put_task("orders", b"x")
    await store.put_task("orders", b"y")
    (late,) = await store.get_task("orders", visibility_seconds=5)
    (good,) = await store.get_task("orders")
    rig.clock.advance(seconds=6)
    with pytest.raises(LeaseLost, match=f"1 tasks .*: {late.id};"):
        await store.done_task([good, late])
    assert (await counts(store)).done == 1


async def test_extend_keeps_a_task(rig: StoreRig) -> None:
    store = rig.store
    await store.create_queue("orders")
    await store.put_task("orders", b"x")
    (task,) = await store.get_task("orders")
    rig.clock.advance(seconds=50)
    await store.extend([task], 100)
    rig.clock.advance(seconds=99)
    await rig.embedded.tick()
    assert await store.get_task("orders") == []
    await store.extend([task])
    rig.clock.advance(seconds=59)
    await store.done_task([task])


@pytest.mark.parametrize("seconds", [0, 0.0, -1, math.nan, math.inf, 1e12, True, "30"])
async def test_a_lease_of_no_time_or_for_ever_is_rejected(rig: StoreRig, seconds: Any) -> None:
    """0 isn't the queue's own: who computed it would be given a minute that nobody asked for."""
    store = rig.store
    await store.create_queue("orders")
    await store.put_task("orders", b"x")
    with pytest.raises(Rejected, match=r"a lease of .* seconds; give more than 0 and up to"):
        await store.get_task("orders", visibility_seconds=seconds)
    (task,) = await store.get_task("orders")
    for tasks in ([task], []):
        with pytest.raises(Rejected, match=r"a lease of .* seconds; give more than 0 and up to"):
            await store.extend(tasks, seconds)
    await store.done_task([task])


@pytest.mark.parametrize("count", [0, -1, 10_001, 1.5, 2.0, math.nan, math.inf, True, "1", None])
async def test_a_count_that_is_no_number_of_tasks_is_rejected(store: Store, count: Any) -> None:
    await store.create_queue("orders")
    await store.put_task("orders", b"x")
    with pytest.raises(Rejected, match="tasks can't be taken at once; ask for 1 to 10000"):
        await store.get_task("orders", count)
    with pytest.raises(Rejected, match="tasks can't be taken at once; ask for 1 to 10000"):
        await store.peek("orders", count)
    assert data(await store.get_task("orders")) == ["x"]


@pytest.mark.parametrize("count", [0, 1.5, math.nan, True, "1"])
async def test_partitions_that_are_no_number_are_rejected(store: Store, count: Any) -> None:
    await store.create_queue("orders", {"ordered": True})
    with pytest.raises(Rejected, match="partitions can't be taken; ask for 1 or more"):
        await store.get_task("orders", partitions_max=count)


async def test_released_tasks_come_back_first_and_uncounted(store: Store) -> None:
    await store.create_queue("orders")
    await store.put_task("orders", b"a", b"b", b"c", b"d")
    tasks = await store.get_task("orders", 3)
    await store.release(tasks[:2])
    assert [(t.data, t.attempts) for t in await store.get_task("orders", 9)] == [
        (b"a", 0), (b"b", 0), (b"d", 0),
    ]  # fmt: skip


async def test_postponed_tasks_come_at_their_time_and_uncounted(rig: StoreRig) -> None:
    store, clock = rig.store, rig.clock
    await store.create_queue("orders", {"retries_max": 0})
    await store.put_task("orders", b"a", b"b", b"c")
    first, second, third = await store.get_task("orders", 3)
    later = clock.now() + 3600 * SECOND
    await store.settle(
        done=[second], retry=[Retry(first, later, counts=False), Retry(third, later, counts=False)]
    )
    assert await stat(store) == (2, 0, 0, 2)
    assert await store.get_task("orders", 3) == []
    clock.advance(seconds=3600)
    back = await store.get_task("orders", 3)
    assert [(task.id, task.attempts, task.prev_start_time) for task in back] == [
        (first.id, 0, None),
        (third.id, 0, None),
    ]


async def test_a_queue_may_limit_returns(rig: StoreRig) -> None:
    store = rig.store
    await store.create_queue("orders", {"retries_max": 2, "visibility_seconds": 10})
    await store.put_task("orders", b"x", b"y")
    for attempts in range(2):
        tasks = await store.get_task("orders", 2)
        assert [task.attempts for task in tasks] == [attempts] * 2
        await store.retry_task(tasks)
    (retried,) = await store.get_task("orders")
    await store.retry_task([retried])
    (expired,) = await store.get_task("orders")
    rig.clock.advance(seconds=10)
    await rig.embedded.tick()
    assert await store.get_task("orders") == []
    letters = await store.dead_letters("orders")
    assert [letter.message().payload for letter in letters] == [b"x", b"y"]
    assert [letter.attempts for letter in letters] == [3, 3]
    assert letters[0].reason == "failed 3 times"
    assert letters[1].reason == "failed 3 times: no answer"
    assert expired.data == b"y"


async def test_without_a_limit_tasks_come_back_for_ever(store: Store) -> None:
    await store.create_queue("orders")
    await store.put_task("orders", b"x")
    for attempts in range(50):
        (task,) = await store.get_task("orders")
        assert task.attempts == attempts
        await store.retry_task([task])


async def test_buried_tasks_are_dead_letters(store: Store) -> None:
    await store.create_queue("orders")
    await store.put_task("orders", Message(b"x", "p", headers={"a": "b"}), b"y")
    tasks = await store.get_task("orders", 2)
    await store.bury(tasks[:1], "no such customer")
    (letter,) = await store.dead_letters("orders")
    assert (letter.message_id, letter.reason) == (tasks[0].id, "no such customer")
    assert letter.message() == Message(b"x", "p", headers={"a": "b"})


async def test_a_paused_queue_hands_out_nothing(rig: StoreRig) -> None:
    store = rig.store
    await store.create_queue("orders")
    await store.put_task("orders", b"a", b"b")
    (task,) = await store.get_task("orders")
    await store.pause("orders")
    assert await store.get_task("orders") == []
    waiting = asyncio.create_task(store.get_task("orders", 5, wait_seconds=30))
    await all_waiting(rig.embedded)
    await store.put_task("orders", b"c")
    await store.done_task([task])
    assert not waiting.done()
    await store.resume("orders")
    async with asyncio.timeout(10):
        assert data(await waiting) == ["b", "c"]


async def test_whoever_waits_is_woken_by_a_put(rig: StoreRig) -> None:
    store = rig.store
    await store.create_queue("orders")
    waiting = [asyncio.create_task(store.get_task("orders", wait_seconds=30)) for _ in range(3)]
    await all_waiting(rig.embedded, 3)
    for name in (b"a", b"b", b"c"):
        await store.put_task("orders", name)
    async with asyncio.timeout(10):
        found = [data(await task) for task in waiting]
    assert sorted(found) == [["a"], ["b"], ["c"]]


async def test_whoever_waits_is_woken_by_a_return(rig: StoreRig) -> None:
    store = rig.store
    await store.create_queue("orders")
    await store.put_task("orders", b"a", b"b")
    tasks = await store.get_task("orders", 2)
    waiting = asyncio.create_task(store.get_task("orders", 2, wait_seconds=30))
    await all_waiting(rig.embedded)
    await store.release(tasks[:1])
    async with asyncio.timeout(10):
        assert data(await waiting) == ["a"]
    waiting = asyncio.create_task(store.get_task("orders", 2, wait_seconds=30))
    await all_waiting(rig.embedded)
    await store.retry_task(tasks[1:])
    async with asyncio.timeout(10):
        assert [(t.data, t.attempts) for t in await waiting] == [(b"b", 1)]


async def test_waiting_ends_with_its_time(store: Store) -> None:
    await store.create_queue("orders")
    async with asyncio.timeout(10):
        assert await store.get_task("orders", wait_seconds=0.01) == []


async def test_whoever_stops_waiting_takes_nothing_away(rig: StoreRig) -> None:
    store = rig.store
    await store.create_queue("orders")
    waiting = asyncio.create_task(store.get_task("orders", wait_seconds=30))
    await all_waiting(rig.embedded)
    waiting.cancel()
    await store.put_task("orders", b"a")
    async with asyncio.timeout(10):
        assert data(await store.get_task("orders", wait_seconds=10)) == ["a"]


async def test_a_deleted_queue_begins_anew(store: Store) -> None:
    await store.create_queue("orders")
    await store.put_task("orders", b"old")
    (task,) = await store.get_task("orders")
    assert await store.delete_queue("orders")
    with pytest.raises(UnknownGroup):
        await store.done_task([task])
    await store.create_queue("orders")
    await store.put_task("orders", b"new")
    assert data(await store.get_task("orders", 9)) == ["new"]


async def test_peeking_takes_nothing(store: Store) -> None:
    await store.create_queue("orders")
    assert await store.peek("orders") == []
    await store.put_task("orders", Message(b"a", "p", "t", {"flow": "f"}), b"b", b"c", b"d")
    (first,) = await store.get_task("orders")
    seen = await store.peek("orders", 2)
    assert [peeked.data for peeked in seen] == [b"b", b"c"]
    assert await stat(store) == (4, 3, 1, 0)
    await store.retry_task([first])
    seen = await store.peek("orders", 9)
    assert min((p.data, p.attempts, p.partition, p.transaction_id, p.headers) for p in seen) == (
        b"a", 1, "p", "t", {"flow": "f"},
    )  # fmt: skip
    assert sorted(data(await store.get_task("orders", 9))) == ["a", "b", "c", "d"]
