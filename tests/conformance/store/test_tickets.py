"""Tickets: every verb that settles takes an id and a lease in place of the task."""

from __future__ import annotations

from functools import partial
from typing import Any

import msgspec
import pytest

from forebay.log.values import GroupStats
from forebay.model import LeaseLost, Message, Rejected
from forebay.store.seam import Store
from forebay.store.values import Retry, Task, Ticket
from forebay.warm.values import Lease
from tests.conformance.steps import SECOND
from tests.conformance.store.rigs import StoreRig

KINDS = pytest.mark.parametrize("ordered", [False, True], ids=["unordered", "ordered"])


def tickets(tasks: list[Task]) -> list[Ticket]:
    """What is left of tasks after a way there and back as text."""
    kept = [Ticket(task.id, task.lease) for task in tasks]
    return msgspec.json.decode(msgspec.json.encode(kept), type=list[Ticket])


async def counts(store: Store) -> GroupStats:
    return (await store.ledger()).queues[0].groups[0]


async def taken(store: Store, count: int = 4, **settings: Any) -> list[Task]:
    """Tasks that were just taken, one after the other in one partition."""
    await store.create_queue("q", settings)
    messages = [Message(b"%d" % i, "p", f"t{i}", {"n": str(i)}) for i in range(count)]
    await store.put_task("q", *messages)
    return await store.get_task("q", count)


@KINDS
async def test_done(store: Store, *, ordered: bool) -> None:
    tasks = await taken(store, ordered=ordered)
    await store.done_task(tickets(tasks[:3]))
    await store.done_task(tickets(tasks[3:]))
    assert ((await counts(store)).done, await store.get_task("q")) == (4, [])
    with pytest.raises(LeaseLost):
        await store.done_task(tickets(tasks))


@KINDS
async def test_retry(rig: StoreRig, *, ordered: bool) -> None:
    tasks = await taken(rig.store, ordered=ordered)
    *rest, third, fourth = tickets(tasks)
    await rig.store.retry_task([fourth])
    await rig.store.retry_task([Retry(third, rig.clock.now() + 5 * SECOND)])
    await rig.store.done_task(rest)
    rig.clock.advance(seconds=5)
    await rig.embedded.tick()
    again = []
    while tasks_now := await rig.store.get_task("q", 4):
        again += tasks_now
        await rig.store.done_task(tasks_now)
    assert [(t.id, t.attempts, t.prev_start_time) for t in again] == [
        (task.id, 1, task.start_time) for task in (tasks[2:] if ordered else reversed(tasks[2:]))
    ]


@KINDS
async def test_release_keeps_attempts_and_both_times(rig: StoreRig, *, ordered: bool) -> None:
    tasks = await taken(rig.store, ordered=ordered)
    await rig.store.retry_task(tasks)
    rig.clock.advance(seconds=3)
    again = await rig.store.get_task("q", 4)
    await rig.store.release(tickets(again))
    back = await rig.store.get_task("q", 4)
    assert [(t.id, t.attempts, t.prev_start_time) for t in back] == [
        (t.id, 1, t.prev_start_time) for t in again
    ]
    assert back[0].prev_start_time == tasks[0].start_time


@KINDS
async def test_extend(rig: StoreRig, *, ordered: bool) -> None:
    tasks = await taken(rig.store, ordered=ordered)
    await rig.store.extend(tickets(tasks), 100)
    rig.clock.advance(seconds=90)
    await rig.store.done_task(tickets(tasks))
    with pytest.raises(LeaseLost):
        await rig.store.extend(tickets(tasks), 100)


@KINDS
async def test_bury_keeps_the_whole_message(store: Store, *, ordered: bool) -> None:
    tasks = await taken(store, ordered=ordered)
    await store.settle(bury=tickets(tasks[1:3]), reason="bad", done=[tasks[0], *tickets(tasks[3:])])
    letters = await store.dead_letters("q")
    assert [letter.message() for letter in letters] == [task.message() for task in tasks[1:3]]
    assert [(letter.message_id, letter.reason) for letter in letters] == [(t.id, "bad") for t in tasks[1:3]]
    assert (await counts(store)).done == 2


@KINDS
async def test_the_last_retry_is_a_dead_letter(store: Store, *, ordered: bool) -> None:
    tasks = await taken(store, ordered=ordered, retries_max=0)
    await store.retry_task(tickets(tasks))
    letters = await store.dead_letters("q")
    assert [(letter.message(), letter.attempts) for letter in letters] == [(t.message(), 1) for t in tasks]


async def test_a_redriven_message_is_buried_again_with_its_own_copy(store: Store) -> None:
    tasks = await taken(store)
    await store.bury(tickets(tasks), "once")
    await store.redrive("q")
    again = await store.get_task("q", 4)
    await store.bury(tickets(again), "twice")
    letters = await store.dead_letters("q")
    assert [(letter.message(), letter.reason) for letter in letters] == [
        (t.message(), "twice") for t in tasks
    ]


@KINDS
@pytest.mark.parametrize("verb", ["done_task", "retry_task", "bury", "release", "extend"])
async def test_a_ticket_that_came_too_late_changes_nothing(
    rig: StoreRig, verb: str, *, ordered: bool
) -> None:
    late = tickets(await taken(rig.store, ordered=ordered))
    rig.clock.advance(seconds=61)
    await rig.embedded.tick()
    now = await rig.store.get_task("q", 4)
    before = await counts(rig.store)
    arguments = ["too late"] if verb == "bury" else []
    with pytest.raises(LeaseLost, match="4 tasks"):
        await getattr(rig.store, verb)(late, *arguments)
    assert await counts(rig.store) == before
    await rig.store.done_task(tickets(now))


async def test_a_ticket_whose_claim_is_gone_is_lost_and_the_others_are_buried(rig: StoreRig) -> None:
    tasks = await taken(rig.store)
    await rig.store.put_task("q", b"other")
    (other,) = await rig.store.get_task("q")
    group = (await rig.embedded.log.groups(await rig.store.queue("q")))[0]
    (claim,) = await rig.embedded.log.recall(group, [tasks[0].lease.claim])
    await rig.embedded.log.commit(settlements=[claim.settle_all()])
    with pytest.raises(LeaseLost, match="4 tasks"):
        await rig.store.bury(tickets([*tasks, other]), "bad")
    assert [letter.message_id for letter in await rig.store.dead_letters("q")] == [other.id]


async def test_a_batch_whose_claim_is_gone_is_lost_as_a_whole(rig: StoreRig) -> None:
    store = rig.store
    tasks = await taken(store)
    (group,) = await store.groups("q")
    (claim,) = await rig.embedded.log.recall(group, [tasks[0].lease.claim])
    await rig.embedded.log.commit(settlements=[claim.settle_all()])
    with pytest.raises(LeaseLost, match="4 tasks"):
        await store.settle(done=tickets(tasks[:2]), bury=tickets(tasks[2:]), reason="bad")
    assert await store.dead_letters("q") == []


async def test_another_server_settles_with_a_ticket(shared_rig: StoreRig) -> None:
    tasks = await taken(shared_rig.store)
    other = await shared_rig.open()
    await other.bury(tickets(tasks[:1]), "bad")
    await other.done_task(tickets(tasks[1:]))
    found = await counts(other)
    assert (found.done, found.dead) == (3, 1)


BAD: list[dict[str, object]] = [
    {"group": 0}, {"group": 1 << 31}, {"number": -1}, {"number": 1 << 60}, {"claim": -1}, {"claim": 1 << 63},
    {"first": 0}, {"first": 1 << 63}, {"count": 0}, {"count": 100_001}, {"count": 2}, {"attempts": -1},
    {"attempts": 1 << 31}, {"start_time": -1}, {"start_time": 1 << 62}, {"prev_start_time": -1},
    {"epoch": "x" * 101}, {"epoch": "\u00e9"}, {"partition": "x" * 256}, {"partition": "\0"}, {"count": 2.5},
]  # fmt: skip


@pytest.mark.parametrize("change", BAD, ids=repr)
async def test_numbers_that_no_lease_can_have_are_rejected(store: Store, change: dict[str, object]) -> None:
    tasks = await taken(store)
    lease = msgspec.structs.replace(tasks[3].lease, **change)
    bad = Ticket(tasks[3].id, lease)
    good = tickets(tasks[:3])
    for call in (
        store.done_task,
        store.retry_task,
        store.release,
        store.extend,
        partial(store.bury, reason=""),
    ):
        with pytest.raises(Rejected) as caught:
            await call([*good, bad])
        assert caught.value.hint
    await store.done_task(tasks)
    assert (await counts(store)).done == 4


@pytest.mark.parametrize("shift", [-1, 4, 1 << 63, -(1 << 63)])
async def test_an_id_outside_its_lease_is_rejected(store: Store, shift: int) -> None:
    tasks = await taken(store)
    bad = Ticket(tasks[0].id + shift, tasks[0].lease)
    for call in (store.done_task, store.retry_task, store.release, store.extend):
        with pytest.raises(
            Rejected, match=r"is not among those of its lease|message id -?\d+ is out of range"
        ):
            await call([*tickets(tasks), bad])
    await store.done_task(tasks)


async def test_a_lease_that_was_made_up_settles_nothing(store: Store) -> None:
    tasks = await taken(store)
    lease = tasks[0].lease
    made_up = [
        msgspec.structs.replace(lease, number=lease.number + 50),
        msgspec.structs.replace(lease, epoch="m999.0"),
        Lease(lease.group, "", 0, 1, lease.first, lease.count, 0, 0),
    ]
    for forged in made_up:
        with pytest.raises(LeaseLost):
            await store.done_task([Ticket(lease.first, forged)])
    await store.done_task(tasks)


@pytest.mark.parametrize(
    "reason", ["a\0b", "\ud800", "x" * 70_000, 5], ids=["zero", "surrogate", "long", "number"]
)
async def test_a_reason_that_cannot_be_kept_is_rejected(store: Store, reason: Any) -> None:
    tasks = await taken(store)
    with pytest.raises(Rejected, match="reason"):
        await store.bury(tickets(tasks), reason)
    await store.done_task(tasks)


@pytest.mark.parametrize("moment", [-1, 1 << 62, 1.5, None])
async def test_a_retry_at_no_time_is_rejected(store: Store, moment: Any) -> None:
    tasks = await taken(store)
    with pytest.raises(Rejected, match="start time of a retry"):
        await store.settle(retry=[Retry(tickets(tasks)[0], moment)])
    await store.done_task(tasks)
