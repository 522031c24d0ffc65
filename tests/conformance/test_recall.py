"""Claims that are asked for by their tokens: as they are held now, with their blocks, or not at all."""

from __future__ import annotations

import pytest

from forebay.log.values import Death, Group, Queue
from forebay.model import Corrupt, Message, Rejected, UnknownGroup, bitmap, sequence_of
from tests.conformance.rigs import Rig
from tests.conformance.steps import ALL, DAY_SECONDS, SECOND, defer, finish, push, take, take_one, texts


async def made(rig: Rig, **settings: object) -> tuple[Queue, Group]:
    """A queue and its group."""
    queue = await rig.log.create_queue("q", settings)
    return queue, await rig.log.create_group(queue, "g")


@pytest.mark.parametrize("ordered", [False, True], ids=["unordered", "ordered"])
async def test_a_claim_is_recalled_as_it_was_handed_out(rig: Rig, *, ordered: bool) -> None:
    queue, group = await made(rig, ordered=ordered)
    for text in "ab":
        await push(rig.log, queue, f"{text}1", f"{text}2", partition=text)
    claims = await take(rig.log, group)
    tokens = [claim.token for claim in claims]
    assert await rig.log.recall(group, tokens[::-1]) == claims
    assert await rig.log.recall(group, tokens[:1] * 2) == claims[:1]


async def test_what_happened_since_is_part_of_it(rig: Rig) -> None:
    queue, group = await made(rig)
    await push(rig.log, queue, *"abc")
    claim = await take_one(rig.log, group)
    await rig.log.mark([claim.mark(handed=bitmap.full(3))])
    await rig.log.commit(settlements=[claim.settle(done=bitmap.of([1], 3))])

    (found,) = await rig.log.recall(group, [claim.token])

    assert (bitmap.indexes(found.done), bitmap.indexes(found.handed)) == ([1], [0, 1, 2])
    assert [text.decode() for text in found.block.decode().payloads] == ["a", "b", "c"]


async def test_a_body_that_the_claim_left_out_comes_with_it(rig: Rig) -> None:
    queue, group = await made(rig)
    await push(rig.log, queue, "a")
    (claim,) = (await rig.log.claim(group, "owner", ALL, known=1)).claims
    assert claim.block.body == b""
    (found,) = await rig.log.recall(group, [claim.token])
    assert texts(found) == ["a"]


async def test_a_redriven_message_comes_with_its_letters_own_copy(rig: Rig) -> None:
    queue, group = await made(rig)
    await push(rig.log, queue, "old")
    claim = await take_one(rig.log, group)
    await rig.log.commit(settlements=[claim.settle(dead=(Death(0, "because", 1, Message(b"copy")),))])
    await rig.log.redrive(group, [claim.first])
    (again,) = (await rig.log.due(group, "owner", ALL)).claims
    assert await rig.log.recall(group, [again.token]) == [again]
    assert texts(again) == ["copy"]


async def test_what_nobody_holds_is_left_out(rig: Rig) -> None:
    queue, group = await made(rig)
    other = await rig.log.create_group(queue, "other")
    for text in "abcd":
        await push(rig.log, queue, text)
    done, deferred, moved, held = await take(rig.log, group)
    (elsewhere, *_) = await take(rig.log, other)
    await finish(rig.log, done)
    await defer(rig.log, deferred, rig.clock.now() + SECOND)
    tokens = [c.token for c in (done, deferred, moved, held, elsewhere)]
    assert [texts(c) for c in await rig.log.recall(group, [*tokens, 0, -1, 1 << 70])] == [["c"], ["d"]]
    await rig.log.retire("owner")
    assert await rig.log.recall(group, tokens) == []


async def test_a_claim_whose_block_has_expired_is_left_out(rig: Rig) -> None:
    queue, group = await made(rig, expire_seconds=float(DAY_SECONDS))
    await push(rig.log, queue, "a")
    claim = await take_one(rig.log, group)
    rig.clock.advance(seconds=3 * DAY_SECONDS)
    assert (await rig.log.trim()).blocks == 1
    assert await rig.log.recall(group, [claim.token]) == []


async def test_a_block_that_cannot_be_read_is_reported_and_stays(rig: Rig) -> None:
    queue, group = await made(rig)
    await push(rig.log, queue, "a")
    claim = await take_one(rig.log, group)
    await rig.flip_bit(queue, sequence_of(claim.first))
    with pytest.raises(Corrupt, match=r"block 1\.\.1 of queue 'q'"):
        await rig.log.recall(group, [claim.token])
    assert await rig.log.quarantined(queue) == []
    await finish(rig.log, claim)


async def test_too_many_at_once_are_rejected(rig: Rig) -> None:
    _, group = await made(rig)
    with pytest.raises(Rejected, match="1001 claims"):
        await rig.log.recall(group, range(1_001))


async def test_a_group_that_was_deleted_has_nothing_to_recall(rig: Rig) -> None:
    _, group = await made(rig)
    await rig.log.delete_group(group)
    with pytest.raises(UnknownGroup):
        await rig.log.recall(group, [1])
