"""Transactions: puts, outcomes and records in one write, or nothing at all."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from forebay.log.seam import VersionConflict
from forebay.log.values import GroupStats, Receipt, Record
from forebay.model import Block, Conflict, LeaseLost, Message, Rejected, Unavailable, UnknownQueue, mint
from forebay.store import transacting
from forebay.store.store import LogStore
from forebay.store.values import Burial, Retry, Task, Ticket
from tests.conformance.steps import SECOND, block_of, stored
from tests.conformance.store.rigs import StoreRig, all_waiting

KINDS = pytest.mark.parametrize("ordered", [False, True], ids=["unordered", "ordered"])


@pytest.fixture
def rig(embedded_rig: StoreRig) -> StoreRig:
    """Give each log with each tier; a transaction isn't sent over HTTP."""
    return embedded_rig


@pytest.fixture
def store(rig: StoreRig) -> LogStore:
    """Give the store in its process."""
    return rig.embedded


async def books(store: LogStore, queue: str = "a") -> GroupStats:
    number = (await store.queue(queue)).number
    return next(q for q in (await store.ledger()).queues if q.queue.number == number).groups[0]


async def taken(store: LogStore, count: int = 4, *, more: int = 0, **settings: Any) -> list[Task]:
    """Tasks of queue a that were just taken; there is a queue b, too, where nothing is."""
    await store.create_queue("a", settings)
    await store.create_queue("b", settings)
    messages = [Message(b"%d" % i, "p", f"t{i}", {"n": str(i)}) for i in range(count + more)]
    await store.put_task("a", *messages)
    return await store.get_task("a", count)


async def in_b(store: LogStore) -> list[str]:
    return await stored(store.log, await store.queue("b"))


async def in_turn(store: LogStore, queue: str = "a") -> list[tuple[bytes, int]]:
    """What is left of a queue, as it is handed out: payloads and attempts."""
    found: list[tuple[bytes, int]] = []
    while tasks := await store.get_task(queue, 3):
        found += [(task.data, task.attempts) for task in tasks]
        await store.done_task(tasks)
    return found


@KINDS
async def test_a_put_and_outcomes_are_one(store: LogStore, *, ordered: bool) -> None:
    tasks = await taken(store, ordered=ordered)
    (appended,) = await store.transact([("b", block_of("x", "y", partition="q"))], done=tasks)
    assert (await books(store)).done == 4
    assert [task.id for task in await store.get_task("b", 5)] == appended.ids()
    with pytest.raises(LeaseLost):
        await store.done_task(tasks)


async def test_whoever_waits_for_what_is_put_gets_it(store: LogStore) -> None:
    tasks = await taken(store)
    waiting = asyncio.create_task(store.get_task("b", wait_seconds=30))
    await all_waiting(store)
    await store.transact([("b", block_of("x"))], done=tasks)
    assert [task.data for task in await asyncio.wait_for(waiting, 10)] == [b"x"]


async def test_whoever_waits_for_a_partition_gets_it_when_it_is_settled(store: LogStore) -> None:
    tasks = await taken(store, 2, more=1, ordered=True)
    waiting = asyncio.create_task(store.get_task("a", wait_seconds=30))
    await all_waiting(store)
    await store.transact(done=tasks)
    assert [task.data for task in await asyncio.wait_for(waiting, 10)] == [b"2"]


async def test_nothing_is_nothing(store: LogStore) -> None:
    assert await store.transact() == []


@KINDS
async def test_outcomes_of_one_lease_may_differ(rig: StoreRig, store: LogStore, *, ordered: bool) -> None:
    first, second, third, fourth = await taken(store, ordered=ordered)
    ticket = Ticket(second.id, second.lease)
    bury = [Burial(ticket, "bad"), Burial(third, "worse")]
    later = rig.clock.now() + 5 * SECOND
    await store.transact(done=[first], retry=[Retry(fourth, later)], bury=bury)
    letters = await store.dead_letters("a")
    assert [(letter.message(), letter.reason) for letter in letters] == [
        (second.message(), "bad"), (third.message(), "worse"),
    ]  # fmt: skip
    found = await books(store)
    assert (found.done, found.deferred, found.dead) == (1, 1, 2)
    rig.clock.advance(seconds=5)
    await store.tick()
    assert await in_turn(store) == [(b"3", 1)]


async def test_a_settlement_has_reasons_of_its_own_too(store: LogStore) -> None:
    first, second, *_ = await taken(store)
    await store.settle(bury=[Burial(first, "bad"), second], reason="worse")
    assert [letter.reason for letter in await store.dead_letters("a")] == ["bad", "worse"]


async def test_several_queues_groups_and_partitions(store: LogStore) -> None:
    tasks = await taken(store, 2, ordered=True)
    await store.create_group("a", "others")
    others = await store.get_task("a", 1, group="others")
    await store.put_task("b", Message(b"x", "1"), Message(b"y", "1"))
    tasks += await store.get_task("b", 1)
    puts = [("a", block_of("z", partition="3")), ("b", block_of("v", partition="4")), ("a", block_of("w"))]
    done = [tasks[0], *tasks[2:], *others]
    appended = await store.transact(puts, done=done, retry=[Retry(tasks[1], 0)])
    assert [a.count for a in appended] == [1, 1, 1]
    assert sorted(await in_turn(store)) == [(b"1", 1), (b"w", 0), (b"z", 0)]
    assert sorted(await in_turn(store, "b")) == [(b"v", 0), (b"y", 0)]


# Nothing at all


async def unchanged(store: LogStore, before: GroupStats, good: Sequence[Task]) -> None:
    """Nothing was written, and what is still held is held as before."""
    assert (await books(store), await in_b(store)) == (before, [])
    assert await store.get_task("b") == []
    await store.transact([("b", block_of("x"))], done=good)
    assert (await books(store)).done == before.done + len(good)


@KINDS
async def test_an_expired_lease_leaves_everything_as_it_was(
    rig: StoreRig, store: LogStore, *, ordered: bool
) -> None:
    late = await taken(store, 2, ordered=ordered)
    await store.put_task("a", b"other", partition="o")
    rig.clock.advance(seconds=50)
    good = await store.get_task("a", 1)
    rig.clock.advance(seconds=20)
    before = await books(store)
    with pytest.raises(LeaseLost) as caught:
        await store.transact([("b", block_of("x"))], done=[*good, late[0]], retry=[Retry(late[1], 0)])
    assert caught.value.ids == sorted(task.id for task in late)
    await unchanged(store, before, good)


@KINDS
async def test_a_queue_that_is_unknown_leaves_everything_as_it_was(store: LogStore, *, ordered: bool) -> None:
    tasks = await taken(store, more=2, ordered=ordered)
    before = await books(store)
    with pytest.raises(UnknownQueue):
        await store.transact([("b", block_of("x")), ("c", block_of("y"))], retry=[Retry(tasks[0], 0)])
    await unchanged(store, before, tasks)


@KINDS
async def test_a_queue_that_another_server_deleted_leaves_everything_as_it_was(
    rig: StoreRig, store: LogStore, *, ordered: bool
) -> None:
    tasks = await taken(store, more=2, ordered=ordered)
    await store.create_queue("c", {"ordered": ordered})
    await rig.log_rig.log.delete_queue("c")
    before = await books(store)
    with pytest.raises(UnknownQueue):
        await store.transact([("b", block_of("x")), ("c", block_of("y"))], retry=[Retry(tasks[0], 0)])
    await unchanged(store, before, tasks)


@KINDS
async def test_what_the_log_refuses_is_named_and_the_rest_stays(store: LogStore, *, ordered: bool) -> None:
    tasks = await taken(store, more=2, ordered=ordered)
    (group,) = await store.groups("a")
    (claim,) = await store.log.recall(group, [tasks[0].lease.claim])
    await store.log.commit(settlements=[claim.settle(done=b"\1")])
    before = await books(store)
    with pytest.raises(LeaseLost) as caught:
        await store.transact([("b", block_of("x"))], done=tasks[:2], retry=[Retry(tasks[2], 0)])
    assert caught.value.ids == [tasks[0].id]
    await unchanged(store, before, tasks[1:])
    assert await in_turn(store) == [(b"4", 0), (b"5", 0)]


async def test_a_task_is_settled_once(store: LogStore) -> None:
    tasks = await taken(store)
    twice: list[dict[str, Any]] = [
        {"done": [tasks[0], tasks[0]]},
        {"done": [tasks[0]], "retry": [Retry(Ticket(tasks[0].id, tasks[0].lease), 0)]},
        {"retry": [Retry(tasks[0], 0), Retry(tasks[0], 1)]},
        {"bury": [Burial(tasks[0], "a"), Burial(tasks[0], "b")]},
    ]
    for outcomes in twice:
        with pytest.raises(Rejected, match="twice"):
            await store.transact([("b", block_of("x"))], **outcomes)
    assert await in_b(store) == []
    await store.done_task(tasks)


async def test_bad_input_changes_nothing(store: LogStore) -> None:
    tasks = await taken(store, ordered=True)
    mixed = Block.of([Message(b"x", "1"), Message(b"y", "2")])
    with pytest.raises(Rejected, match="partitions"):
        await store.transact([("b", mixed)], done=tasks)
    with pytest.raises(Rejected, match="15 bytes"):
        await store.transact(done=tasks, id=bytes(15))
    with pytest.raises(Rejected, match="reason"):
        await store.transact(done=tasks[1:], bury=[Burial(tasks[0], "\0")])
    await store.transact(done=tasks)


async def test_a_block_id_that_was_used_otherwise_is_a_conflict_and_no_lost_lease(store: LogStore) -> None:
    tasks = await taken(store)
    id = mint()
    await store.append("a", block_of("x", id=id))
    with pytest.raises(Conflict, match="another block") as caught:
        await store.transact([("b", block_of("x", "y", id=id))], done=tasks)
    assert not isinstance(caught.value, LeaseLost)
    await store.transact(done=tasks)


# Order


async def test_a_retry_takes_the_rest_of_its_partition_along(rig: StoreRig, store: LogStore) -> None:
    tasks = await taken(store, 3, more=3, ordered=True)
    await store.put_task("a", b"late", partition="p")
    await store.transact(done=tasks[:1], retry=[Retry(tasks[1], rig.clock.now() + 5 * SECOND)])
    assert await store.get_task("a") == []
    with pytest.raises(LeaseLost, match=f"{tasks[2].id}"):
        await store.done_task(tasks[2:])
    assert await store.get_task("a") == []
    rig.clock.advance(seconds=5)
    await store.tick()
    rest = [(b"2", 0), (b"3", 0), (b"4", 0), (b"5", 0), (b"late", 0)]
    assert await in_turn(store) == [(b"1", 1), *rest]


async def test_a_retry_later_and_the_rest_of_its_block_are_in_order_after_a_crash(
    rig: StoreRig, store: LogStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    tasks = await taken(store, 2, more=2, ordered=True)
    window = store._windows[(await store.queue("a")).number, "workers"]
    cut = asyncio.Event()

    async def conclude(_: object, **__: object) -> None:
        cut.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(window, "conclude", conclude)
    later = rig.clock.now() + 100 * SECOND
    call = asyncio.create_task(store.transact(done=tasks[:1], retry=[Retry(tasks[1], later)]))
    await cut.wait()
    call.cancel()
    await rig.crash()
    rig.clock.advance(seconds=61)
    await rig.embedded.tick()
    assert await rig.embedded.get_task("a") == []
    rig.clock.advance(seconds=40)
    await rig.embedded.tick()
    assert await in_turn(rig.embedded) == [(b"1", 1), (b"2", 0), (b"3", 0)]


async def test_what_was_withdrawn_for_one_that_failed_does_not_wait_for_its_time(
    rig: StoreRig, store: LogStore
) -> None:
    tasks = await taken(store, 2, more=2, ordered=True)
    await store.create_queue("c", {"ordered": True})
    await rig.log_rig.log.delete_queue("c")
    later = rig.clock.now() + 100 * SECOND
    with pytest.raises(UnknownQueue):
        await store.transact([("c", block_of("x"))], retry=[Retry(task, later) for task in tasks])
    await store.done_task(tasks)
    assert await in_turn(store) == [(b"2", 0), (b"3", 0)]


async def test_a_rest_that_the_log_no_longer_holds_is_nobodys_fault(store: LogStore) -> None:
    tasks = await taken(store, 1, more=1, ordered=True)
    (group,) = await store.groups("a")
    (claim,) = await store.log.recall(group, [tasks[0].lease.claim])
    await store.log.commit(settlements=[claim.settle(done=b"\2")])
    await store.transact([("b", block_of("x"))], retry=[Retry(tasks[0], 0)])
    assert (await in_turn(store), await in_b(store)) == ([(b"0", 1)], ["x"])


async def test_a_rest_that_changes_every_time_is_a_call_to_be_repeated_and_no_lost_lease(
    store: LogStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    tasks = await taken(store, 1, more=2, ordered=True)
    (group,) = await store.groups("a")
    (claim,) = await store.log.recall(group, [tasks[0].lease.claim])
    await store.log.commit(settlements=[claim.settle(done=b"\2")])
    call: dict[str, Any] = {"retry": [Retry(tasks[0], 0)], "id": mint()}
    puts = [("b", block_of("x", partition="p"))]
    with monkeypatch.context() as fewer:
        fewer.setattr(transacting, "TRIES", 1)
        with pytest.raises(Unavailable, match="in between") as caught:
            await store.transact(puts, **call)
    assert caught.value.retry_after_seconds
    assert await in_b(store) == []
    await store.transact(puts, **call)
    assert (await in_turn(store), await in_b(store)) == ([(b"0", 1), (b"2", 0)], ["x"])


async def test_one_that_failed_leaves_the_order_as_it_was(rig: StoreRig, store: LogStore) -> None:
    tasks = await taken(store, 2, more=2, ordered=True)
    await store.create_queue("c", {"ordered": True})
    await rig.log_rig.log.delete_queue("c")
    with pytest.raises(UnknownQueue):
        await store.transact([("c", block_of("x"))], retry=[Retry(task, 0) for task in tasks])
    assert await store.get_task("a") == []
    await store.done_task(tasks)
    assert await in_turn(store) == [(b"2", 0), (b"3", 0)]


# Again


async def test_duplicates_are_not_written_again(store: LogStore) -> None:
    tasks = await taken(store, 2)
    (first,) = await store.transact([("b", block_of("x", transaction_ids=["1"]))], done=tasks[:1])
    again = block_of("y", "z", transaction_ids=["1", "2"])
    (second,) = await store.transact([("b", again)], done=tasks[1:])
    assert (second.count, second.duplicates) == (1, {0: first.first})
    assert await in_b(store) == ["x", "z"]
    assert (await books(store)).done == 2


@KINDS
async def test_a_call_that_is_repeated_under_its_id_is_one(store: LogStore, *, ordered: bool) -> None:
    tasks = await taken(store, more=1, ordered=ordered)
    call: dict[str, Any] = {"done": tasks[:3], "retry": [Retry(tasks[3], 0)], "id": mint()}
    puts = [("b", block_of("x", partition="p"))]
    (first,) = await store.transact(puts, **call)
    (again,) = await store.transact(puts, **call)
    assert (again.ids(), again.known) == (first.ids(), True)
    assert await in_b(store) == ["x"]
    assert sorted(await in_turn(store)) == [(b"3", 1), (b"4", 0)]
    assert (await store.transact(puts, **call))[0].ids() == first.ids()


async def test_a_repeated_call_ends_the_leases_past_what_it_sent_back(
    store: LogStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also of what was handed out after the first time, whose answer was lost."""
    tasks = await taken(store, 3, ordered=True)
    log, commit = store.log, store.log.commit

    async def lose(*arguments: Any, **options: Any) -> Receipt:
        monkeypatch.setattr(log, "commit", commit)
        await commit(*arguments, **options)
        raise Unavailable("the answer was lost")

    call: dict[str, Any] = {"retry": [Retry(tasks[1], 0)], "id": mint()}
    monkeypatch.setattr(log, "commit", lose)
    with pytest.raises(Unavailable):
        await store.transact(**call)
    with pytest.raises(LeaseLost, match=f"{tasks[2].id}"):
        await store.done_task(tasks[2:])
    await store.transact(**call)
    await store.done_task(tasks[:1])
    assert await in_turn(store) == [(b"1", 1), (b"2", 0)]


async def test_another_call_under_another_id_is_too_late(store: LogStore) -> None:
    tasks = await taken(store)
    await store.transact([("b", block_of("x"))], done=tasks, id=mint())
    with pytest.raises(LeaseLost, match="4 tasks"):
        await store.transact([("b", block_of("y"))], done=tasks, id=mint())
    assert await in_b(store) == ["x"]


@KINDS
async def test_a_call_whose_answer_was_lost_is_repeated(
    store: LogStore, monkeypatch: pytest.MonkeyPatch, *, ordered: bool
) -> None:
    tasks = await taken(store, more=1, ordered=ordered)
    log, commit = store.log, store.log.commit

    async def lose(*arguments: Any, **options: Any) -> Receipt:
        monkeypatch.setattr(log, "commit", commit)
        await commit(*arguments, **options)
        raise Unavailable("the answer was lost")

    call: dict[str, Any] = {"done": tasks[:3], "retry": [Retry(tasks[3], 0)], "id": mint()}
    puts = [("b", block_of("x", partition="p"))]
    monkeypatch.setattr(log, "commit", lose)
    with pytest.raises(Unavailable):
        await store.transact(puts, **call)
    (again,) = await store.transact(puts, **call)
    assert again.known
    assert await in_b(store) == ["x"]
    assert sorted(await in_turn(store)) == [(b"3", 1), (b"4", 0)]


@KINDS
async def test_a_call_whose_answer_was_lost_and_that_nobody_repeats_stands(
    rig: StoreRig, store: LogStore, monkeypatch: pytest.MonkeyPatch, *, ordered: bool
) -> None:
    tasks = await taken(store, more=1, ordered=ordered)
    log, commit = store.log, store.log.commit

    async def lose(*arguments: Any, **options: Any) -> Receipt:
        monkeypatch.setattr(log, "commit", commit)
        await commit(*arguments, **options)
        raise Unavailable("the answer was lost")

    monkeypatch.setattr(log, "commit", lose)
    with pytest.raises(Unavailable):
        await store.transact([("b", block_of("x", partition="p"))], done=tasks)
    rig.clock.advance(seconds=61)
    await store.tick()
    assert await in_turn(store) == [(b"4", 0)]
    assert (await books(store)).done == 5


async def test_a_crash_after_the_write_loses_and_repeats_nothing(
    rig: StoreRig, store: LogStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    tasks = await taken(store, 2, more=2, ordered=True)
    window = store._windows[(await store.queue("a")).number, "workers"]
    cut = asyncio.Event()

    async def conclude(_: object, **__: object) -> None:
        cut.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(window, "conclude", conclude)
    puts = [("b", block_of("x", partition="p"))]
    call = asyncio.create_task(store.transact(puts, done=tasks[:1], retry=[Retry(tasks[1], 0)]))
    await cut.wait()
    call.cancel()
    await rig.crash()
    after = rig.embedded
    rig.clock.advance(seconds=61)
    await after.tick()
    assert await in_turn(after) == [(b"1", 1), (b"2", 0), (b"3", 0)]
    assert await in_turn(after, "b") == [(b"x", 0)]


# Records


async def kept(store: LogStore) -> dict[str, bytes]:
    return {record.key: record.value for record in await store.log.scan("s")}


@KINDS
async def test_records_are_written_along(store: LogStore, *, ordered: bool) -> None:
    tasks = await taken(store, ordered=ordered)
    await store.transact([("b", block_of("x"))], done=tasks[:2], records=[Record("s", "k", b"1", version=0)])
    await store.transact(done=tasks[2:], records=[Record("s", "k", b"2", version=1)])
    await store.transact(records=[Record("s", "l", b"3")])
    assert await kept(store) == {"k": b"2", "l": b"3"}
    assert (await books(store)).done == 4


@KINDS
async def test_a_record_of_another_version_leaves_everything_as_it_was(
    store: LogStore, *, ordered: bool
) -> None:
    tasks = await taken(store, more=2, ordered=ordered)
    await store.transact(records=[Record("s", "k", b"1")])
    before = await books(store)
    records = [Record("s", "j", b"2"), Record("s", "k", b"2", version=2)]
    with pytest.raises(VersionConflict) as caught:
        await store.transact([("b", block_of("x"))], retry=[Retry(tasks[0], 0)], records=records)
    assert (caught.value.key, caught.value.found) == ("k", 1)
    assert await kept(store) == {"k": b"1"}
    await unchanged(store, before, tasks)


async def test_a_lease_that_is_lost_writes_no_record(rig: StoreRig, store: LogStore) -> None:
    tasks = await taken(store)
    rig.clock.advance(seconds=61)
    with pytest.raises(LeaseLost):
        await store.transact(done=tasks, records=[Record("s", "k", b"1")])
    with pytest.raises(LeaseLost):
        await store.transact(done=tasks, records=[Record("s", "k", b"1")], id=mint())
    assert await kept(store) == {}


@KINDS
async def test_records_of_a_repeated_call_are_written_once(store: LogStore, *, ordered: bool) -> None:
    tasks = await taken(store, ordered=ordered)
    call: dict[str, Any] = {"done": tasks, "records": [Record("s", "k", b"1", version=0)], "id": mint()}
    puts = [("b", block_of("x"))]
    (first,) = await store.transact(puts, **call)
    await store.transact(records=[Record("s", "k", b"2")])
    assert (await store.transact(puts, **call))[0].ids() == first.ids()
    assert await kept(store) == {"k": b"2"}
    assert await in_b(store) == ["x"]


async def test_records_alone_are_repeatable(store: LogStore) -> None:
    id = mint()
    for _ in range(2):
        await store.transact(records=[Record("s", "k", b"1", version=0)], id=id)
    assert await kept(store) == {"k": b"1"}
