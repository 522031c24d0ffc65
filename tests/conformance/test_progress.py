"""How far a group has come: its position, what is open, what is dead, all of one moment."""

from __future__ import annotations

import pytest

from forebay.log.values import Death, Deferral, Position, Room
from forebay.model import Message, UnknownGroup, bitmap
from tests.conformance.rigs import Rig
from tests.conformance.steps import SECOND, bits, defer, finish, push, take, take_one


async def test_progress_tells_what_is_claimed_and_what_is_finished(rig: Rig) -> None:
    queue = await rig.log.create_queue("q")
    group = await rig.log.create_group(queue, "g")
    first = (await push(rig.log, queue, *"abcdef")).first
    begun = await rig.log.progress(group)
    assert (begun.position, begun.next, begun.floor, begun.open, begun.dead) == (1, 7, 1, [], [])

    (claim,) = (await rig.log.claim(group, "me", Room(4))).claims
    await rig.log.mark([claim.mark(handed=bits(claim, 1, 2))])
    death = Death(0, "broken", 1, Message(b"a"))
    deferral = Deferral(3, begun.at + 3600 * SECOND, 2)
    await rig.log.commit(settlements=[claim.settle(done=bits(claim, 2), deferred=(deferral,), dead=(death,))])
    found = await rig.log.progress(group)

    assert (found.position, found.earlier, found.purged) == (5, 0, 0)
    assert [message_id for message_id, _ in found.dead] == [first]
    held, deferred = found.open
    assert (held.first, held.count, held.is_held, held.attempts) == (first, 4, True, 0)
    assert bitmap.indexes(held.done) == [0, 2, 3]
    assert bitmap.indexes(bitmap.minus(held.handed, held.done)) == [1]
    assert (deferred.first, deferred.count, deferred.is_held, deferred.attempts) == (first + 3, 1, False, 2)
    assert deferred.due_at == deferred.start_time == begun.at + 3600 * SECOND


async def test_progress_sees_letters_go_and_groups_being_sent_elsewhere(rig: Rig) -> None:
    queue = await rig.log.create_queue("q")
    group = await rig.log.create_group(queue, "g")
    first = (await push(rig.log, queue, *"abc")).first
    claim = await take_one(rig.log, group)
    deaths = tuple(Death(i, "broken", 1, Message(b"x")) for i in range(2))
    await rig.log.commit(settlements=[claim.settle(done=bits(claim, 2), dead=deaths)])
    await rig.log.purge(group, [first])
    await rig.log.redrive(group, [first + 1])
    found = await rig.log.progress(group)
    assert (found.dead, found.purged, found.position) == ([], 1, 4)
    assert [(run.first, run.count, run.is_held) for run in found.open] == [(first + 1, 1, False)]

    await rig.log.seek(group, Position(2))
    again = await rig.log.progress(group)
    assert (again.position, again.open, again.group.sought) == (2, [], 1)
    assert [message_id for message_id, _ in again.dead] == [first + 1]
    assert again.earlier - again.group.start > found.earlier - found.group.start


async def test_progress_in_an_ordered_queue_is_told_by_partition(rig: Rig) -> None:
    queue = await rig.log.create_queue("q", {"ordered": True})
    group = await rig.log.create_group(queue, "g")
    await push(rig.log, queue, "a1", "a2", partition="a")
    await push(rig.log, queue, "b1", partition="b")
    claims = await take(rig.log, group, room=Room(2))
    found = await rig.log.progress(group)
    assert (found.position, found.lanes["a"], found.lanes.get("b", 1) <= 3) == (1, 3, True)
    await defer(rig.log, claims[0], found.at + SECOND)
    await finish(rig.log, *claims[1:])
    assert [run.is_held for run in (await rig.log.progress(group)).open] == [False]


async def test_progress_of_a_group_that_is_gone_is_refused(rig: Rig) -> None:
    queue = await rig.log.create_queue("q")
    group = await rig.log.create_group(queue, "g")
    await rig.log.delete_group(group)
    with pytest.raises(UnknownGroup):
        await rig.log.progress(group)
