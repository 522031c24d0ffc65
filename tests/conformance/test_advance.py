"""Groups whose readers keep their own place: what they have done with is told, and the books say so."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from forebay.log.values import DeadLetter, Death, Deferral, Group, Position, Queue, Room, dead_letter_body
from forebay.model import Message, Rejected, UnknownGroup, bitmap, pack
from tests.conformance.rigs import Rig
from tests.conformance.steps import (
    ALL,
    DAY_SECONDS,
    SECOND,
    check_ledger,
    counts,
    drain,
    finish,
    push,
    take,
    take_one,
    texts,
)

KINDS = pytest.mark.parametrize("ordered", [False, True], ids=["unordered", "ordered"])


async def made(rig: Rig, *, ordered: bool = False, **settings: Any) -> tuple[Queue, Group]:
    """A queue with three blocks of two messages, in two partitions where it matters, and a group."""
    queue = await rig.log.create_queue("q", {"ordered": ordered, **settings})
    group = await rig.log.create_group(queue, "g")
    for payloads, partition in ((("a1", "a2"), "a"), (("b1", "b2"), "b"), (("a3", "a4"), "a")):
        await push(rig.log, queue, *payloads, partition=partition)
    return queue, group


async def books_of(rig: Rig, group: Group) -> tuple[int, int, int, int]:
    """Accepted, ready, held or deferred, done."""
    books = await counts(rig.log, group)
    assert (books.purged, books.expired, books.corrupt) == (0, 0, 0)
    return books.accepted, books.ready, books.held + books.deferred, books.done


@KINDS
async def test_what_lies_before_the_place_is_done(rig: Rig, *, ordered: bool) -> None:
    queue, group = await made(rig, ordered=ordered)
    assert await rig.log.advance(group, 4) == 3
    assert await books_of(rig, group) == (6, 3, 0, 3)
    assert await rig.log.advance(group, 7) == 3
    assert await books_of(rig, group) == (6, 0, 0, 6)
    assert await take(rig.log, group) == []
    await push(rig.log, queue, "new", partition="a")
    assert await drain(rig.log, group) == ["new"]
    assert await books_of(rig, group) == (7, 0, 0, 7)


@KINDS
async def test_what_lies_behind_the_place_is_handed_out(rig: Rig, *, ordered: bool) -> None:
    _, group = await made(rig, ordered=ordered)
    await rig.log.advance(group, 4)
    assert sorted(await drain(rig.log, group)) == ["a3", "a4", "b2"]


@KINDS
async def test_it_never_goes_back(rig: Rig, *, ordered: bool) -> None:
    queue, group = await made(rig, ordered=ordered)
    assert await rig.log.advance(group, 5) == 4
    for to in (5, 3, 1):
        assert await rig.log.advance(group, to) == 0
    (now,) = await rig.log.groups(queue)
    assert (now.start, now.sought) == (5, 1)
    assert await books_of(rig, group) == (6, 2, 0, 4)


@KINDS
async def test_it_leaves_alone_a_group_that_has_finished_what_lies_before_the_place(
    rig: Rig, *, ordered: bool
) -> None:
    """Workers have done it; claims on what comes later stay theirs."""
    queue, group = await made(rig, ordered=ordered)
    await drain(rig.log, group)
    await push(rig.log, queue, "new", partition="a")
    claim = await take_one(rig.log, group)
    for to in (1, 4, 7):
        assert await rig.log.advance(group, to) == 0
    assert await books_of(rig, group) == (7, 0, 1, 6)
    await finish(rig.log, claim)
    assert await books_of(rig, group) == (7, 0, 0, 7)


@KINDS
async def test_claims_end_and_their_messages_are_done_or_ready(rig: Rig, *, ordered: bool) -> None:
    _, group = await made(rig, ordered=ordered)
    claims = await take(rig.log, group)
    assert await rig.log.advance(group, 4) == 3
    assert await books_of(rig, group) == (6, 3, 0, 3)

    late = await rig.log.commit(settlements=[claim.settle_all() for claim in claims])

    assert list(late.conflicts) == list(range(len(claims)))
    marks = [claim.mark(handed=bitmap.full(claim.count)) for claim in claims]
    assert list(await rig.log.mark(marks)) == list(range(len(claims)))
    assert sorted(await drain(rig.log, group)) == ["a3", "a4", "b2"]
    assert await books_of(rig, group) == (6, 0, 0, 6)


@KINDS
async def test_a_claim_that_lies_on_both_sides_is_done_and_ready_in_part(rig: Rig, *, ordered: bool) -> None:
    """Messages that were done behind the place are handed out again, as the reader's place says."""
    queue = await rig.log.create_queue("q", {"ordered": ordered})
    group = await rig.log.create_group(queue, "g")
    await push(rig.log, queue, *"abcdefgh", partition="p")
    claim = await take_one(rig.log, group)
    await rig.log.commit(settlements=[claim.settle(done=bitmap.of([0, 6], claim.count))])
    assert await rig.log.advance(group, 5) == 3
    assert await books_of(rig, group) == (9, 4, 0, 5)
    (again,) = await take(rig.log, group)
    assert (texts(again), again.attempts, bitmap.count(again.done)) == (list("efgh"), 0, 0)


@KINDS
async def test_what_is_deferred_before_the_place_is_done(rig: Rig, *, ordered: bool) -> None:
    _, group = await made(rig, ordered=ordered)
    claims = {claim.first & 0xFF: claim for claim in await take(rig.log, group)}
    later = (Deferral(0, rig.clock.now() + 60 * SECOND, 1),)
    await rig.log.commit(settlements=[claims[1].settle(deferred=later, done=bitmap.of([1], 2))])
    assert await rig.log.advance(group, 3) == 1
    rig.clock.advance(seconds=100)
    assert not (await rig.log.due(group, "owner", ALL)).claims
    assert sorted(await drain(rig.log, group)) == ["a3", "a4", "b1", "b2"]
    assert await books_of(rig, group) == (6, 0, 0, 6)


async def test_dead_letters_stay_and_redriven_ones_are_handed_out(rig: Rig) -> None:
    _, group = await made(rig)
    claim = (await take(rig.log, group))[0]
    dead = tuple(Death(o, "because", 1, Message(texts(claim)[o].encode())) for o in (0, 1))
    (await rig.log.commit(settlements=[claim.settle(dead=dead)])).raise_for_conflicts()
    await rig.log.redrive(group, [claim.first])
    assert await rig.log.advance(group, 7) == 4
    assert [letter.message_id for letter in await rig.log.dead_letters(group)] == [claim.first + 1]
    books = await counts(rig.log, group)
    assert (books.dead, books.deferred, books.done) == (1, 1, 4)
    (again,) = (await rig.log.due(group, "owner", ALL)).claims
    assert texts(again) == ["a1"]
    await finish(rig.log, again)
    assert (await counts(rig.log, group)).done == 5
    await check_ledger(rig.log)


async def died(rig: Rig, queue: Queue, sequence: int, reason: str = "because") -> DeadLetter:
    """A letter to a message of a queue."""
    message_id = pack(queue.number, sequence)
    (block,) = [b for b in await rig.log.read(queue) if b.first <= message_id <= b.last]
    message = block.decode().message(message_id - block.first)
    return DeadLetter(message_id, 0, reason, 3, dead_letter_body(Death(0, reason, 3, message)))


@KINDS
async def test_some_of_what_lies_before_the_place_may_have_died(rig: Rig, *, ordered: bool) -> None:
    queue, group = await made(rig, ordered=ordered)
    dead = [await died(rig, queue, 2), await died(rig, queue, 3)]
    assert await rig.log.advance(group, 4, dead) == 3
    books = await counts(rig.log, group)
    assert (books.ready, books.done, books.dead, books.difference) == (3, 1, 2, 0)
    letters = await rig.log.dead_letters(group)
    assert [(x.message().payload, x.reason, x.attempts) for x in letters] == [
        (b"a2", "because", 3),
        (b"b1", "because", 3),
    ]
    assert all(letter.died_at == rig.clock.now() for letter in letters)


@KINDS
async def test_saying_it_again_buries_nobody_twice(rig: Rig, *, ordered: bool) -> None:
    queue, group = await made(rig, ordered=ordered)
    dead = [await died(rig, queue, 2)]
    await rig.log.advance(group, 4, dead)
    await rig.log.purge(group, [dead[0].message_id])
    assert await rig.log.advance(group, 4, dead) == 0
    assert await rig.log.advance(group, 5, dead) == 1
    books = await counts(rig.log, group)
    assert (books.done, books.dead, books.purged, books.difference) == (3, 0, 1, 0)


@KINDS
async def test_a_letter_of_a_reader_can_be_redriven(rig: Rig, *, ordered: bool) -> None:
    queue, group = await made(rig, ordered=ordered)
    await rig.log.advance(group, 7, [await died(rig, queue, 2)])
    assert await rig.log.redrive(group, [pack(queue.number, 2)]) == [pack(queue.number, 2)]
    (claim,) = (await rig.log.due(group, "owner", ALL)).claims
    assert texts(claim) == ["a2"]
    await finish(rig.log, claim)
    books = await counts(rig.log, group)
    assert (books.done, books.dead, books.difference) == (6, 0, 0)


async def test_a_message_that_dies_again_after_a_seek_has_one_letter(rig: Rig) -> None:
    queue, group = await made(rig)
    await rig.log.advance(group, 7, [await died(rig, queue, 2, "first")])
    await rig.log.seek(group, "earliest")
    await rig.log.advance(group, 7, [await died(rig, queue, 2, "second")])
    assert [letter.reason for letter in await rig.log.dead_letters(group)] == ["second"]
    assert (await counts(rig.log, group)).dead == 1
    await check_ledger(rig.log)


@KINDS
async def test_nobody_buries_what_workers_hold(rig: Rig, *, ordered: bool) -> None:
    queue, group = await made(rig, ordered=ordered)
    await take(rig.log, group)
    before = await counts(rig.log, group)
    with pytest.raises(Rejected, match="claimed by workers"):
        await rig.log.advance(group, 7, [await died(rig, queue, 2)])
    assert await counts(rig.log, group) == before


async def test_letters_that_are_none_of_the_place_are_rejected(rig: Rig) -> None:
    queue, group = await made(rig)
    letter = await died(rig, queue, 4)
    with pytest.raises(Rejected, match="not before position 4"):
        await rig.log.advance(group, 4, [letter])
    with pytest.raises(Rejected, match="dies twice"):
        await rig.log.advance(group, 6, [letter, letter])
    assert await books_of(rig, group) == (6, 6, 0, 0)


@KINDS
async def test_retention_drops_what_a_group_is_done_with(rig: Rig, *, ordered: bool) -> None:
    queue, group = await made(rig, ordered=ordered, keep_seconds=float(DAY_SECONDS))
    rig.clock.advance(seconds=3 * DAY_SECONDS)
    assert (await rig.log.trim()).blocks == 0
    await rig.log.advance(group, 5)
    await push(rig.log, queue, "new", partition="a")
    await rig.log.trim()
    kept = await rig.log.read(queue)
    assert kept[-1].count == 1
    assert sorted(await drain(rig.log, group)) == ["a3", "a4", "new"]
    await rig.log.advance(group, 8)
    rig.clock.advance(seconds=3 * DAY_SECONDS)
    await rig.log.trim()
    assert await rig.log.read(queue) == []
    assert await rig.log.advance(group, 2) == 0
    await check_ledger(rig.log)


@KINDS
async def test_other_groups_go_on_as_they_were(rig: Rig, *, ordered: bool) -> None:
    queue, group = await made(rig, ordered=ordered)
    other = await rig.log.create_group(queue, "other")
    claims = await take(rig.log, other)
    await rig.log.advance(group, 7)
    await finish(rig.log, *claims)
    assert (await counts(rig.log, other)).done == 6


@KINDS
async def test_the_books_balance_whatever_happens_at_the_same_time(rig: Rig, *, ordered: bool) -> None:
    queue, group = await made(rig, ordered=ordered)

    async def work(owner: str) -> None:
        for turn in range(10):
            for claim in (await rig.log.claim(group, owner, Room(3))).claims:
                await rig.log.commit(settlements=[claim.settle_all()])
            await push(rig.log, queue, str(turn), partition=owner)

    async def advance() -> None:
        for to in range(1, 16):
            await rig.log.advance(group, min(to, 7))
            await check_ledger(rig.log)

    await asyncio.gather(work("a"), work("b"), advance(), advance())
    await rig.log.advance(group, 27)
    assert (await counts(rig.log, group)).ready == 0


@pytest.mark.parametrize("to", [0, -1, 8, 1 << 45, True, "7", 1.5, None], ids=repr)
async def test_a_place_that_is_none_is_rejected_and_changes_nothing(rig: Rig, to: Any) -> None:
    _, group = await made(rig)
    claims = await take(rig.log, group)
    with pytest.raises(Rejected) as caught:
        await rig.log.advance(group, to)
    assert caught.value.hint
    await finish(rig.log, *claims)
    assert await books_of(rig, group) == (6, 0, 0, 6)


async def test_a_group_that_was_deleted_is_unknown(rig: Rig) -> None:
    _, group = await made(rig)
    await rig.log.delete_group(group)
    with pytest.raises(UnknownGroup):
        await rig.log.advance(group, 2)


async def test_a_seek_may_still_go_back(rig: Rig) -> None:
    _, group = await made(rig)
    await rig.log.advance(group, 7)
    await rig.log.seek(group, Position(6))
    assert await drain(rig.log, group) == ["a4"]
    assert await books_of(rig, group) == (7, 0, 0, 7)


async def test_it_outlives_the_process(durable_rig: Rig) -> None:
    _, group = await made(durable_rig)
    await durable_rig.log.advance(group, 5)
    await durable_rig.reopen()
    assert await books_of(durable_rig, group) == (6, 2, 0, 4)
    assert await durable_rig.log.advance(group, 5) == 0
