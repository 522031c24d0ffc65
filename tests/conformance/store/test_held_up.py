"""Ordered queues: what comes back ends the leases of what comes after it in its partition."""

from __future__ import annotations

from typing import Any

import pytest

from forebay.model import LeaseLost, Message, mint
from forebay.store.seam import Store
from forebay.store.values import Retry, Task
from forebay.warm.seam import WarmAway
from forebay.warm.valkey import ValkeyWarm
from tests.conformance.store.rigs import StoreRig
from tests.conformance.store.test_ordered import attempts, data, lost_of, ordered, put, put_block


async def taken(store: Store, *names: str, blocks: bool = True, count: int = 9) -> list[Task]:
    """Take a partition of so many messages, each in a block of its own, or all in one."""
    await ordered(store)
    await (put if blocks else put_block)(store, "p", *names)
    tasks = await store.get_task("orders", count)
    assert data(tasks) == list(names)
    return tasks


@pytest.mark.parametrize("blocks", [True, False], ids=["blocks", "block"])
@pytest.mark.parametrize("verb", ["retry", "release"])
async def test_what_comes_back_ends_the_leases_of_what_comes_after(
    store: Store, verb: str, *, blocks: bool
) -> None:
    tasks = await taken(store, "1", "2", "3", "4", "5", blocks=blocks)
    await (store.retry_task([tasks[1]]) if verb == "retry" else store.release([tasks[1]]))
    assert await lost_of(store.extend(tasks)) == [task.id for task in tasks[1:]]
    assert await lost_of(store.done_task(tasks)) == [task.id for task in tasks[1:]]
    again = await store.get_task("orders", 9)
    assert attempts(again) == [("2", int(verb == "retry")), ("3", 0), ("4", 0), ("5", 0)]
    await store.done_task(again)
    assert await store.get_task("orders", 9) == []


async def test_what_comes_before_stays_with_its_holder(store: Store) -> None:
    tasks = await taken(store, "1", "2", "3")
    await store.retry_task([tasks[2]])
    assert await store.get_task("orders", 9) == []
    await store.retry_task([tasks[1]])
    await store.done_task(tasks[:1])
    assert attempts(await store.get_task("orders", 9)) == [("2", 1), ("3", 1)]


async def test_other_partitions_go_on(store: Store) -> None:
    await ordered(store)
    await put(store, "p", "p1", "p2")
    await put(store, "q", "q1", "q2")
    tasks = await store.get_task("orders", 9)
    assert data(tasks) == ["p1", "p2", "q1", "q2"]
    await store.retry_task([tasks[0]], delay=10)
    await store.done_task(tasks[2:])
    assert await store.get_task("orders", 9) == []


async def test_in_one_call_nothing_ends_past_what_comes_back(rig: StoreRig) -> None:
    store = rig.store
    tasks = await taken(store, "1", "2", "3", "4", "5", "6")
    at = rig.clock.now()
    settling = store.settle(
        done=[tasks[2], tasks[0]],
        retry=[Retry(tasks[1], at), Retry(tasks[4], at)],
        bury=[tasks[3]],
        reason="bad",
    )
    assert await lost_of(settling) == [tasks[2].id, tasks[3].id]
    assert await store.dead_letters("orders") == []
    again = await store.get_task("orders", 9)
    assert attempts(again) == [("2", 1), ("3", 0), ("4", 0), ("5", 1), ("6", 0)]
    await store.done_task(again)


async def test_a_retry_that_waits_lets_all_that_comes_after_wait(rig: StoreRig) -> None:
    store = rig.store
    tasks = await taken(store, "1", "2", "3")
    now = rig.clock.now()
    await store.settle(retry=[Retry(tasks[0], now + 10_000_000), Retry(tasks[2], now)])
    rig.clock.advance(seconds=9)
    assert await store.get_task("orders", 9) == []
    rig.clock.advance(seconds=1)
    assert attempts(await store.get_task("orders", 9)) == [("1", 1), ("2", 0), ("3", 1)]


async def test_what_is_given_up_holds_up_nothing(store: Store) -> None:
    tasks = await taken(store, "1", "2", "3")
    await store.bury([tasks[0]], "bad")
    await store.settle(bury=[tasks[1]], done=[tasks[2]], reason="bad")
    assert [letter.message_id for letter in await store.dead_letters("orders")] == [t.id for t in tasks[:2]]


async def test_the_last_retry_holds_up_nothing(store: Store) -> None:
    await ordered(store, retries_max=0)
    await put(store, "p", "1", "2", "3")
    tasks = await store.get_task("orders", 9)
    await store.retry_task([tasks[0]])
    await store.settle(retry=[Retry(tasks[1], 1)], done=[tasks[2]])
    assert [letter.message_id for letter in await store.dead_letters("orders")] == [t.id for t in tasks[:2]]
    assert await store.get_task("orders", 9) == []


async def test_an_expired_lease_ends_those_that_come_after(rig: StoreRig) -> None:
    store = rig.store
    tasks = await taken(store, "1", "2", "3")
    rig.clock.advance(seconds=30)
    await store.extend(tasks[1:])
    rig.clock.advance(seconds=30)
    await rig.embedded.tick()
    assert await lost_of(store.done_task(tasks[1:])) == [task.id for task in tasks[1:]]
    assert attempts(await store.get_task("orders", 9)) == [("1", 1), ("2", 0), ("3", 0)]


async def test_an_expired_lease_leaves_those_that_come_before(rig: StoreRig) -> None:
    store = rig.store
    tasks = await taken(store, "1", "2", "3")
    rig.clock.advance(seconds=30)
    await store.extend(tasks[:1])
    rig.clock.advance(seconds=30)
    await rig.embedded.tick()
    assert await store.get_task("orders", 9) == []
    await store.done_task(tasks[:1])
    assert attempts(await store.get_task("orders", 9)) == [("2", 1), ("3", 1)]


async def test_all_that_expires_at_once_counts(rig: StoreRig) -> None:
    store = rig.store
    await taken(store, "1", "2", "3")
    rig.clock.advance(seconds=60)
    await rig.embedded.tick()
    assert attempts(await store.get_task("orders", 9)) == [("1", 1), ("2", 1), ("3", 1)]


async def test_what_expired_for_the_last_time_holds_up_nothing(rig: StoreRig) -> None:
    store = rig.store
    await ordered(store, retries_max=0)
    await put(store, "p", "1", "2")
    tasks = await store.get_task("orders", 9)
    rig.clock.advance(seconds=30)
    await store.extend(tasks[1:])
    rig.clock.advance(seconds=30)
    await rig.embedded.tick()
    await store.done_task(tasks[1:])
    assert [letter.message_id for letter in await store.dead_letters("orders")] == [tasks[0].id]


async def test_what_was_done_before_stays_done(store: Store) -> None:
    tasks = await taken(store, "1", "2", "3", "4")
    await store.done_task([tasks[2]])
    await store.retry_task([tasks[0]])
    assert attempts(await store.get_task("orders", 9)) == [("1", 1), ("2", 0), ("4", 0)]


async def test_a_named_partition_is_held_up_alike(rig: StoreRig) -> None:
    store = rig.store
    await ordered(store, in_memory_queue_size=3)
    await put_block(store, "p", "1", "2")
    await put(store, "p", "3", "4")
    tasks = await store.get_task("orders", 3, partition="p")
    assert data(tasks) == ["1", "2", "3"]
    await store.settle(done=tasks[:1], retry=[Retry(tasks[1], rig.clock.now())])
    assert await lost_of(store.done_task(tasks[2:])) == [tasks[2].id]
    again = await store.get_task("orders", 9, partitions_max=1)
    assert attempts(again) == [("2", 1), ("3", 0), ("4", 0)]


async def test_another_group_goes_on(store: Store) -> None:
    tasks = await taken(store, "1", "2")
    await store.create_group("orders", "audit")
    others = await store.get_task("orders", 9, group="audit")
    await store.retry_task(tasks[:1])
    await store.done_task(others)
    assert attempts(await store.get_task("orders", 9)) == [("1", 1), ("2", 0)]


async def test_a_letter_that_comes_again_ends_no_lease(rig: StoreRig) -> None:
    store = rig.store
    tasks = await taken(store, "1", "2", "3")
    await store.bury(tasks[:1], "bad")
    await store.redrive("orders")
    await store.done_task(tasks[1:])
    rig.clock.advance(seconds=1)
    assert data(await store.get_task("orders", 9)) == ["1"]


async def test_a_transaction_past_what_comes_back_is_refused_whole(rig: StoreRig) -> None:
    rig.embedded_only("a transaction is a call of the embedded store")
    store, now = rig.embedded, rig.clock.now()
    tasks = await taken(store, "1", "2", "3")
    with pytest.raises(LeaseLost) as raised:
        await store.transact(done=tasks[1:], retry=[Retry(tasks[0], now)])
    assert sorted(raised.value.ids) == [task.id for task in tasks[1:]]
    await store.done_task(tasks[:1])
    await store.transact(retry=[Retry(tasks[1], now)], id=mint())
    assert await lost_of(store.done_task(tasks[2:])) == [tasks[2].id]
    assert attempts(await store.get_task("orders", 9)) == [("2", 1), ("3", 0)]


async def test_a_transaction_that_is_refused_ends_no_lease(rig: StoreRig) -> None:
    rig.embedded_only("a transaction is a call of the embedded store")
    store, now = rig.embedded, rig.clock.now()
    tasks = await taken(store, "1", "2", "3")
    await put(store, "q", "q1")
    (other,) = await store.get_task("orders", 9)
    await store.done_task([other])
    with pytest.raises(LeaseLost):
        await store.transact(retry=[Retry(tasks[0], now)], done=[other])
    await store.done_task(tasks)


async def test_it_holds_across_servers(rig: StoreRig) -> None:
    if not rig.shared:
        pytest.skip("servers that share no warm tier share no partition")
    tasks = await taken(rig.store, "1", "2", "3", "4")
    other = await rig.open()
    await other.retry_task([tasks[1]])
    assert await lost_of(rig.store.done_task(tasks)) == [task.id for task in tasks[1:]]
    assert attempts(await other.get_task("orders", 9)) == [("2", 1), ("3", 0), ("4", 0)]


async def test_it_holds_at_a_server_that_could_not_ask_the_shared_tier_at_first(
    shared_rig: StoreRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig, run = shared_rig, ValkeyWarm._run
    tasks = await taken(rig.store, "1", "2", "3", "4")
    other = await rig.open()

    async def stutter(*_: Any) -> Any:
        monkeypatch.setattr(ValkeyWarm, "_run", run)
        raise WarmAway("it was not heard")

    monkeypatch.setattr(ValkeyWarm, "_run", stutter)
    await other.retry_task([tasks[1]])
    assert await lost_of(rig.store.done_task(tasks)) == [task.id for task in tasks[1:]]
    assert attempts(await rig.store.get_task("orders", 9)) == [("2", 1), ("3", 0), ("4", 0)]


async def test_unordered_tasks_hold_up_nothing(store: Store) -> None:
    await store.create_queue("orders")
    await store.put_task("orders", *[Message(b"%d" % n, "p") for n in range(3)])
    tasks = await store.get_task("orders", 9)
    await store.settle(retry=[Retry(tasks[0], 1)], done=[tasks[1]])
    await store.done_task(tasks[2:])
