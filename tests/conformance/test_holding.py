"""Claims that are asked for by their messages: those that somebody holds, with their blocks."""

from __future__ import annotations

import pytest

from forebay.log.values import Death, Deferral, Group, Queue, Room
from forebay.model import Corrupt, Message, Rejected, UnknownGroup, bitmap, sequence_of
from tests.conformance.rigs import Rig
from tests.conformance.steps import ALL, DAY_SECONDS, SECOND, defer, finish, push, take, take_one, texts


async def made(rig: Rig, **settings: object) -> tuple[Queue, Group]:
    """A queue and its group."""
    queue = await rig.log.create_queue("q", settings)
    return queue, await rig.log.create_group(queue, "g")


@pytest.mark.parametrize("ordered", [False, True], ids=["unordered", "ordered"])
async def test_claims_are_found_by_their_messages(rig: Rig, *, ordered: bool) -> None:
    queue, group = await made(rig, ordered=ordered)
    for text in "abc":
        await push(rig.log, queue, f"{text}1", f"{text}2", f"{text}3", partition=text)
    (mine,) = (await rig.log.claim(group, "me", Room(3))).claims
    other, third = await take(rig.log, group, "other")
    assert await rig.log.holding(group, [other.first + 2, mine.first, mine.first + 2]) == [mine, other]
    assert await rig.log.holding(group, [third.first + 1]) == [third]
    assert await rig.log.holding(group, []) == []


async def test_of_a_block_in_several_claims_the_right_one_is_found(rig: Rig) -> None:
    queue, group = await made(rig)
    await push(rig.log, queue, *"abcdef")
    claims = [claim for _ in range(3) for claim in (await rig.log.claim(group, "me", Room(2))).claims]
    assert [await rig.log.holding(group, [claims[0].first + n]) for n in range(6)] == [
        [claim] for claim in claims for _ in range(2)
    ]


async def test_only_what_is_unfinished_counts(rig: Rig) -> None:
    queue, group = await made(rig)
    await push(rig.log, queue, *"abc")
    claim = await take_one(rig.log, group)
    await rig.log.mark([claim.mark(handed=bitmap.full(3))])
    later = Deferral(1, rig.clock.now() + SECOND)
    await rig.log.commit(settlements=[claim.settle(done=bitmap.of([0], 3), deferred=(later,))])
    assert await rig.log.holding(group, [claim.first]) == []
    assert await rig.log.holding(group, [claim.first + 1]) == []
    (found,) = await rig.log.holding(group, [claim.first + n for n in range(3)])
    assert (bitmap.indexes(found.done), bitmap.indexes(found.handed)) == ([0, 1], [0, 1, 2])
    rig.clock.advance(seconds=1)
    (back,) = (await rig.log.due(group, "me", ALL)).claims
    assert await rig.log.holding(group, [claim.first + n for n in range(3)]) == [found, back]
    assert await rig.log.holding(group, [claim.first + 1]) == [back]


async def test_what_nobody_holds_is_left_out(rig: Rig) -> None:
    queue, group = await made(rig)
    other = await rig.log.create_group(queue, "other")
    for text in "abcd":
        await push(rig.log, queue, text)
    ids = [block.first for block in await rig.log.read(queue)]
    done, deferred, held = (await rig.log.claim(group, "owner", Room(3))).claims
    await take(rig.log, other)
    await finish(rig.log, done)
    await defer(rig.log, deferred, rig.clock.now() + SECOND)
    strange = [0, -1, 1 << 70, ids[0] + 100, ids[2] + (1 << 45)]
    assert await rig.log.holding(group, [*ids, *strange]) == [held]
    await rig.log.retire("owner")
    assert await rig.log.holding(group, ids) == []


async def test_a_redriven_message_comes_with_its_letters_own_copy(rig: Rig) -> None:
    queue, group = await made(rig, expire_seconds=float(DAY_SECONDS))
    await push(rig.log, queue, "old", "older")
    claim = await take_one(rig.log, group)
    dead = Death(1, "because", 1, Message(b"copy"))
    await rig.log.commit(settlements=[claim.settle(done=bitmap.of([0], 2), dead=(dead,))])
    await rig.log.redrive(group, [claim.first + 1])
    (again,) = (await rig.log.due(group, "owner", ALL)).claims
    assert await rig.log.holding(group, [claim.first, claim.first + 1]) == [again]
    rig.clock.advance(seconds=3 * DAY_SECONDS)
    assert (await rig.log.trim()).blocks == 1
    assert await rig.log.holding(group, [claim.first + 1]) == [again]
    assert texts(again) == ["copy"]


async def test_a_claim_whose_block_has_expired_is_left_out(rig: Rig) -> None:
    queue, group = await made(rig, expire_seconds=float(DAY_SECONDS))
    await push(rig.log, queue, "a")
    claim = await take_one(rig.log, group)
    rig.clock.advance(seconds=3 * DAY_SECONDS)
    assert (await rig.log.trim()).blocks == 1
    assert await rig.log.holding(group, [claim.first]) == []


async def test_a_block_that_cannot_be_read_is_reported_and_stays(rig: Rig) -> None:
    queue, group = await made(rig)
    await push(rig.log, queue, "a")
    claim = await take_one(rig.log, group)
    await rig.flip_bit(queue, sequence_of(claim.first))
    with pytest.raises(Corrupt, match=r"block 1\.\.1 of queue 'q'"):
        await rig.log.holding(group, [claim.first])
    await finish(rig.log, claim)


async def test_too_many_at_once_are_rejected(rig: Rig) -> None:
    _, group = await made(rig)
    with pytest.raises(Rejected, match="10001 messages"):
        await rig.log.holding(group, range(10_001))


async def test_a_group_that_was_deleted_holds_nothing(rig: Rig) -> None:
    _, group = await made(rig)
    await rig.log.delete_group(group)
    with pytest.raises(UnknownGroup):
        await rig.log.holding(group, [1])
