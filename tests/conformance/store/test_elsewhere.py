"""Tickets for tasks that another server handed out: the log vouches for them, and shelves follow."""

from __future__ import annotations

from typing import Any

import pytest

from forebay.model import LeaseLost, Message, Unavailable
from forebay.store.store import LogStore
from forebay.store.values import Burial, Retry, Task, Ticket
from tests.conformance.steps import SECOND, block_of, stored
from tests.conformance.store.rigs import StoreRig

PATIENCE_SECONDS = 30.0
"""A tier that stalls is given up for a moment; whoever waits gets its tasks nevertheless."""
KINDS = pytest.mark.parametrize("ordered", [False, True], ids=["unordered", "ordered"])


@pytest.fixture
def rig(embedded_rig: StoreRig) -> StoreRig:
    """Give each log with each tier."""
    return embedded_rig


async def two(rig: StoreRig) -> tuple[LogStore, LogStore]:
    """Two servers on one log; they share the warm tier if the rig has one to share."""
    await rig.open()
    return rig._open[0], rig._open[1]


async def taken(store: LogStore, count: int = 3, *, more: int = 2, **settings: Any) -> list[Task]:
    """Tasks that were taken, of more that are in one block and one partition."""
    await store.create_queue("q", settings)
    messages = [Message(b"%d" % i, "p", f"t{i}") for i in range(count + more)]
    await store.put_task("q", *messages)
    return await store.get_task("q", count, wait_seconds=PATIENCE_SECONDS)


async def tickets(rig: StoreRig, store: LogStore, tasks: list[Task]) -> list[Ticket]:
    found = await store.tickets("q", "workers", [task.id for task in tasks], since=rig.clock.now())
    return [found[id] for id in sorted(found)]


async def rest_of(store: LogStore) -> list[tuple[bytes, int]]:
    """What is left of the queue, as it is handed out: payloads and attempts."""
    found: list[tuple[bytes, int]] = []
    while tasks := await store.get_task("q", 2):
        found += [(task.data, task.attempts) for task in tasks]
        await store.done_task(tasks)
    return found


@KINDS
async def test_only_what_is_out_has_a_ticket(rig: StoreRig, *, ordered: bool) -> None:
    one, other = await two(rig)
    tasks = await taken(one, ordered=ordered)
    await one.done_task(tasks[:1])
    ids = [task.id for task in tasks]
    asked = [*ids, ids[-1] + 1, ids[-1] + 50, 1, -1]
    found = await other.tickets("q", "workers", asked, since=rig.clock.now())
    assert sorted(found) == ids[1:]
    assert [ticket.id for ticket in found.values()] == list(found)


@KINDS
async def test_every_outcome(rig: StoreRig, *, ordered: bool) -> None:
    one, other = await two(rig)
    tasks = await taken(one, ordered=ordered)
    first, second, third = await tickets(rig, other, tasks)
    await other.settle(done=[first], bury=[Burial(second, "bad")])
    await other.transact([("q", block_of("x", partition="p"))], retry=[Retry(third, rig.clock.now())])
    assert [letter.message() for letter in await other.dead_letters("q")] == [tasks[1].message()]
    with pytest.raises(LeaseLost):
        await one.done_task(tasks)
    rig.clock.advance(seconds=61)
    await one.tick()
    await other.tick()
    rest = await rest_of(one) + await rest_of(other)
    assert rest == [(b"2", 1), (b"3", 0), (b"4", 0), (b"x", 0)] if ordered else len(rest) == 4


async def test_a_lease_is_kept_by_the_server_that_gave_it_out(rig: StoreRig) -> None:
    one, other = await two(rig)
    tasks = await taken(one)
    if rig.shared:
        await other.extend(tasks)
    else:
        with pytest.raises(Unavailable, match="kept by another server"):
            await other.extend(tasks)
    await one.extend(tasks)
    await other.done_task(tasks[:1])
    await one.done_task(tasks[1:])
    with pytest.raises(LeaseLost) as caught:
        await other.extend(tasks)
    assert sorted(caught.value.ids) == [task.id for task in tasks]


async def test_what_comes_back_ends_the_leases_of_what_comes_after(rig: StoreRig) -> None:
    one, other = await two(rig)
    tasks = await taken(one, 4, ordered=True)
    (second,) = await tickets(rig, other, tasks[1:2])
    await other.retry_task([second])
    with pytest.raises(LeaseLost) as caught:
        await one.done_task(tasks)
    assert sorted(caught.value.ids) == [task.id for task in tasks[1:]]
    rig.clock.advance(seconds=61)
    await one.tick()
    assert await rest_of(one) == [(b"1", 1), (b"2", 0), (b"3", 0), (b"4", 0), (b"5", 0)]


@KINDS
async def test_whoever_settles_first_wins(rig: StoreRig, *, ordered: bool) -> None:
    one, other = await two(rig)
    tasks = await taken(one, ordered=ordered)
    late = await tickets(rig, other, tasks)
    await one.transact([("q", block_of("x", partition="p"))], done=tasks[:1])
    with pytest.raises(LeaseLost) as caught:
        await other.transact([("q", block_of("y", partition="p"))], done=late)
    assert caught.value.ids == [tasks[0].id]
    with pytest.raises(LeaseLost) as caught:
        await other.done_task(late)
    assert caught.value.ids == [tasks[0].id]
    assert await stored(one.log, await one.queue("q")) == ["0", "1", "2", "3", "4", "x"]


@KINDS
async def test_a_lease_that_is_over_finds_nothing(rig: StoreRig, *, ordered: bool) -> None:
    one, other = await two(rig)
    tasks = await taken(one, ordered=ordered)
    given_out = rig.clock.now()
    early = await tickets(rig, other, tasks)
    rig.clock.advance(seconds=61)
    await one.tick()
    again = await one.get_task("q", 3)
    assert await other.tickets("q", "workers", [task.id for task in tasks], since=given_out) == {}
    with pytest.raises(LeaseLost, match="3 tasks"):
        await other.done_task(early)
    with pytest.raises(LeaseLost, match="3 tasks"):
        await other.transact(done=early)
    await one.done_task(again)


@KINDS
async def test_it_cannot_be_extended_nor_used_where_it_was_handed_out(
    rig: StoreRig, *, ordered: bool
) -> None:
    one, other = await two(rig)
    tasks = await taken(one, ordered=ordered)
    found = await tickets(rig, other, tasks)
    with pytest.raises(LeaseLost):
        await other.extend(found)
    with pytest.raises(LeaseLost):
        await one.done_task(found)
    await one.done_task(tasks)


@pytest.mark.parametrize("count", [2, 3], ids=["some of a block", "all of it"])
@KINDS
async def test_the_server_that_handed_it_out_notices(rig: StoreRig, count: int, *, ordered: bool) -> None:
    one, other = await two(rig)
    tasks = await taken(one, count, more=3 - count, ordered=ordered)
    await one.put_task("q", Message(b"next", "p"))
    assert not ordered or await one.get_task("q") == []
    await other.done_task(await tickets(rig, other, tasks))
    rig.clock.advance(seconds=6)
    await one._rounds._keep_up()
    assert await one.running() == []
    left = [(b"%d" % i, 0) for i in range(count, 3)]
    assert await rest_of(one) == [*left, (b"next", 0)]


@KINDS
async def test_nobody_drops_what_is_out(rig: StoreRig, *, ordered: bool) -> None:
    one, other = await two(rig)
    tasks = await taken(one, ordered=ordered)
    await other.done_task((await tickets(rig, other, tasks))[:1])
    rig.clock.advance(seconds=30)
    await one._rounds._keep_up()
    assert [running.count for running in await one.running()] == [2]
    await one.done_task(tasks[1:])


async def test_a_retry_elsewhere_keeps_the_order_when_it_is_noticed(rig: StoreRig) -> None:
    one, other = await two(rig)
    tasks = await taken(one, ordered=True)
    found = await tickets(rig, other, tasks)
    later = rig.clock.now() + 40 * SECOND
    await other.settle(done=found[:1], retry=[Retry(ticket, later) for ticket in found[1:]])
    rig.clock.advance(seconds=6)
    await one._rounds._keep_up()
    assert [await one.get_task("q"), await other.get_task("q")] == [[], []]
    rig.clock.advance(seconds=35)
    await one.tick()
    await other.tick()
    assert await rest_of(one) + await rest_of(other) == [(b"1", 1), (b"2", 1), (b"3", 0), (b"4", 0)]


async def test_a_retry_elsewhere_keeps_the_order_when_nobody_lives_to_notice(rig: StoreRig) -> None:
    one, other = await two(rig)
    tasks = await taken(one, ordered=True)
    found = await tickets(rig, other, tasks)
    later = rig.clock.now() + 40 * SECOND
    await other.transact(done=found[:1], retry=[Retry(ticket, later) for ticket in found[1:]])
    await rig.kill()
    await other._rounds._keep_up()
    assert await other.get_task("q") == []
    rig.clock.advance(seconds=61)
    await other.tick()
    assert await rest_of(other) == [(b"1", 1), (b"2", 1), (b"3", 0), (b"4", 0)]


async def test_a_restart_on_a_shared_tier_knows_what_is_out(shared_rig: StoreRig) -> None:
    tasks = await taken(shared_rig.embedded, ordered=True)
    await shared_rig.crash()
    after = shared_rig.embedded
    await after.done_task(await tickets(shared_rig, after, tasks))
    shared_rig.clock.advance(seconds=6)
    await after._rounds._keep_up()
    assert await rest_of(after) == [(b"3", 0), (b"4", 0)]


async def test_what_expired_is_held_while_it_is_out(rig: StoreRig) -> None:
    one, other = await two(rig)
    tasks = await taken(one, more=0, expire_seconds=20, visibility_seconds=100)
    await tickets(rig, other, tasks)
    rig.clock.advance(seconds=50)
    await one._rounds._keep_up()
    assert [running.count for running in await one.running()] == [3]
    await one.done_task(tasks)


# The lease itself, at another server


@KINDS
async def test_a_lease_settles_at_another_server(rig: StoreRig, *, ordered: bool) -> None:
    one, other = await two(rig)
    tasks = await taken(one, 4, more=1, ordered=ordered)
    assert await other.done_task(tasks[:1]) == "log"
    await other.settle(done=[tasks[1]], bury=[Burial(tasks[2], "bad")])
    await other.transact([("q", block_of("x", partition="p"))], retry=[Retry(tasks[3], rig.clock.now())])
    assert [letter.message() for letter in await other.dead_letters("q")] == [tasks[2].message()]
    for store in (one, other):
        with pytest.raises(LeaseLost) as caught:
            await store.done_task(tasks)
        assert sorted(caught.value.ids) == [task.id for task in tasks]
    rig.clock.advance(seconds=61)
    await one.tick()
    await other.tick()
    rest = await rest_of(one) + await rest_of(other)
    assert sorted(rest) == [(b"3", 1), (b"4", 0), (b"x", 0)]
    assert (await one.ledger()).queues[0].groups[0].done == 5


@KINDS
async def test_a_lease_that_is_over_settles_nothing_at_another_server(
    rig: StoreRig, *, ordered: bool
) -> None:
    one, other = await two(rig)
    tasks = await taken(one, 2, more=0, ordered=ordered)
    rig.clock.advance(seconds=61)
    await one.tick()
    again = await one.get_task("q", 2)
    assert [task.id for task in again] == [task.id for task in tasks]
    with pytest.raises(LeaseLost) as caught:
        await other.done_task(tasks)
    assert sorted(caught.value.ids) == [task.id for task in tasks]
    assert await other.done_task(again) == "log"


async def test_a_lease_that_was_released_settles_nothing_where_it_was_given_out(rig: StoreRig) -> None:
    one, _ = await two(rig)
    tasks = await taken(one, 2, more=0)
    await one.release(tasks)
    again = await one.get_task("q", 2)
    with pytest.raises(LeaseLost):
        await one.done_task(tasks)
    assert await one.done_task(again) == "log"


async def test_what_was_never_out_is_not_settled_by_a_forged_lease(rig: StoreRig) -> None:
    one, other = await two(rig)
    (task, *_) = await taken(one, 1, more=2)
    forged = [Ticket(task.id + n, task.lease) for n in range(3)]
    with pytest.raises(LeaseLost) as caught:
        await other.done_task(forged)
    assert list(caught.value.ids) == [task.id + 1, task.id + 2]
