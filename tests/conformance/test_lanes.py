"""The partitions of an ordered queue, as a group sees them: what is kept, what waits, what is out."""

from __future__ import annotations

import pytest

from forebay.log.values import Death, Deferral, Group, LaneStats, Queue, Room
from forebay.model import Message, Rejected, UnknownGroup, UnknownQueue, bitmap
from tests.conformance.rigs import Rig
from tests.conformance.steps import ALL, DAY_SECONDS, SECOND, bits, finish, push


async def made(rig: Rig, **settings: object) -> tuple[Queue, Group]:
    """An ordered queue and its group."""
    queue = await rig.log.create_queue("q", {"ordered": True, **settings})
    return queue, await rig.log.create_group(queue, "g")


async def lane(rig: Rig, group: Group, partition: str = "p") -> LaneStats:
    """One partition."""
    (found,) = [lane for lane in await rig.log.lanes(group) if lane.partition == partition]
    return found


async def test_a_partition_is_counted_from_its_first_message_to_its_last(rig: Rig) -> None:
    queue, group = await made(rig)
    begin = rig.clock.now()
    first = await push(rig.log, queue, "1", "2", partition="p")
    await push(rig.log, queue, "else", partition="q")
    rig.clock.advance(seconds=5)
    last = await push(rig.log, queue, "3", partition="p")
    found = await lane(rig, group)
    assert found == LaneStats(
        partition="p",
        first=first.first,
        last=last.first,
        oldest_at=begin,
        newest_at=begin + 5 * SECOND,
        messages=3,
        waiting=3,
        handed=0,
        oldest_waiting_at=begin,
    )


async def test_what_is_out_does_not_wait(rig: Rig) -> None:
    queue, group = await made(rig)
    other = await rig.log.create_group(queue, "other")
    begin = rig.clock.now()
    await push(rig.log, queue, "1", "2", partition="p")
    rig.clock.advance(seconds=1)
    await push(rig.log, queue, "3", "4", partition="p")

    (claim,) = (await rig.log.claim(group, "me", Room(2), partition="p")).claims
    assert (found := await lane(rig, group), found.waiting, found.handed)[1:] == (4, 0)
    await rig.log.mark([claim.mark(handed=bits(claim, 0))])
    found = await lane(rig, group)
    assert (found.waiting, found.handed, found.oldest_waiting_at) == (3, 1, begin)
    await rig.log.mark([claim.mark(handed=bits(claim, 1))])
    found = await lane(rig, group)
    assert (found.waiting, found.handed, found.oldest_waiting_at) == (2, 2, begin + SECOND)
    await rig.log.commit(settlements=[claim.settle(done=bits(claim, 0))])
    found = await lane(rig, group)
    assert (found.messages, found.waiting, found.handed) == (4, 2, 1)
    await rig.log.commit(settlements=[claim.settle(deferred=(Deferral(1, rig.clock.now() + SECOND),))])
    found = await lane(rig, group)
    assert (found.waiting, found.handed, found.oldest_waiting_at) == (3, 0, begin)
    assert (await lane(rig, other)).waiting == 4


async def test_what_was_given_back_waits(rig: Rig) -> None:
    queue, group = await made(rig)
    await push(rig.log, queue, "1", "2", partition="p")
    (claim,) = (await rig.log.claim(group, "me", ALL)).claims
    await rig.log.mark([claim.mark(handed=bitmap.full(2))])
    await rig.log.retire("me")
    found = await lane(rig, group)
    assert (found.waiting, found.handed) == (2, 0)


async def test_a_partition_that_is_finished_is_still_there(rig: Rig) -> None:
    queue, group = await made(rig)
    await push(rig.log, queue, "1", partition="p")
    await finish(rig.log, *(await rig.log.claim(group, "me", ALL)).claims)
    found = await lane(rig, group)
    assert (found.messages, found.waiting, found.handed, found.oldest_waiting_at) == (1, 0, 0, None)
    rig.clock.advance(seconds=3 * DAY_SECONDS)
    assert (await rig.log.trim()).blocks == 1
    assert await rig.log.lanes(group) == []
    assert await rig.log.lane_count(queue) == 0


async def test_a_group_that_began_later_sees_less(rig: Rig) -> None:
    queue, _ = await made(rig)
    await push(rig.log, queue, "1", partition="p")
    late = await rig.log.create_group(queue, "late", "latest")
    found = await lane(rig, late)
    assert (found.messages, found.waiting, found.oldest_waiting_at) == (1, 0, None)
    await push(rig.log, queue, "2", partition="p")
    assert (await lane(rig, late)).waiting == 1


async def test_claims_on_what_has_expired_do_not_wait(rig: Rig) -> None:
    queue, group = await made(rig, expire_seconds=float(DAY_SECONDS))
    await push(rig.log, queue, "1", partition="p")
    await rig.log.claim(group, "me", ALL)
    rig.clock.advance(seconds=3 * DAY_SECONDS)
    assert (await rig.log.trim()).blocks == 1
    await push(rig.log, queue, "2", partition="p")
    found = await lane(rig, group)
    assert (found.messages, found.waiting, found.oldest_waiting_at) == (1, 1, rig.clock.now())


async def test_a_redriven_message_waits_as_long_as_its_letter(rig: Rig) -> None:
    queue, group = await made(rig)
    await push(rig.log, queue, "1", partition="p")
    (claim,) = (await rig.log.claim(group, "me", ALL)).claims
    rig.clock.advance(seconds=1)
    await rig.log.commit(settlements=[claim.settle(dead=(Death(0, "because", 1, Message(b"1", "p")),))])
    assert (await lane(rig, group)).waiting == 0
    died_at = rig.clock.now()
    rig.clock.advance(seconds=1)
    await rig.log.redrive(group, [claim.first])
    found = await lane(rig, group)
    assert (found.waiting, found.handed, found.oldest_waiting_at) == (1, 0, died_at)
    (again,) = (await rig.log.due(group, "me", ALL)).claims
    await rig.log.mark([again.mark(handed=bits(again, 0))])
    found = await lane(rig, group)
    assert (found.waiting, found.handed, found.oldest_waiting_at) == (0, 1, None)


async def test_partitions_come_by_name_page_by_page(rig: Rig) -> None:
    queue, group = await made(rig)
    other = await rig.log.create_queue("other", {"ordered": True})
    names = ["b", "", "a b", "B", "é", "\uff5a", "😀", "z", "a", "ab", "_", "a-b"]
    for name in names:
        await push(rig.log, queue, "1", partition=name)
        await push(rig.log, other, "1", partition=f"{name}!")
        await push(rig.log, queue, "2", partition=name)
    expected = sorted(names, key=str.encode)
    assert [lane.partition for lane in await rig.log.lanes(group)] == expected
    paged: list[str] = []
    while page := await rig.log.lanes(group, after=paged[-1] if paged else None, limit=5):
        paged.extend(lane.partition for lane in page)
    assert paged == expected
    assert [lane.partition for lane in await rig.log.lanes(group, after="a!", limit=2)] == ["a-b", "ab"]
    assert await rig.log.lane_count(queue) == len(names)


async def test_an_unordered_queue_has_none(rig: Rig) -> None:
    queue = await rig.log.create_queue("q")
    group = await rig.log.create_group(queue, "g")
    await push(rig.log, queue, "1", partition="p")
    assert await rig.log.lanes(group) == []
    assert await rig.log.lane_count(queue) == 0


async def test_what_is_not_there_cannot_be_listed(rig: Rig) -> None:
    queue, group = await made(rig)
    for limit in (0, 10_001):
        with pytest.raises(Rejected):
            await rig.log.lanes(group, limit=limit)
    await rig.log.delete_group(group)
    with pytest.raises(UnknownGroup):
        await rig.log.lanes(group)
    await rig.log.delete_queue("q")
    with pytest.raises(UnknownQueue):
        await rig.log.lane_count(queue)
