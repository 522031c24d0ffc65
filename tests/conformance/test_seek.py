"""Groups that go on from another place: what is handed out, what is fenced, and what the books say."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from forebay.log.values import Claim, Death, Deferral, Group, Position, Queue, Room, Start
from forebay.model import Message, Rejected, UnknownGroup, bitmap
from tests.conformance.rigs import Rig
from tests.conformance.steps import (
    ALL,
    DAY_SECONDS,
    SECOND,
    check_ledger,
    counts,
    defer,
    drain,
    finish,
    push,
    take,
    take_one,
    texts,
    unfinished,
)

KINDS = pytest.mark.parametrize("ordered", [False, True], ids=["unordered", "ordered"])


async def made(rig: Rig, *, ordered: bool = False, **settings: Any) -> tuple[Queue, Group]:
    """A queue and a group that has seen nothing yet."""
    queue = await rig.log.create_queue("q", {"ordered": ordered, **settings})
    return queue, await rig.log.create_group(queue, "g")


async def fill(rig: Rig, queue: Queue) -> None:
    """Three blocks of two messages, in two partitions where it matters."""
    for payloads, partition in ((("a1", "a2"), "a"), (("b1", "b2"), "b"), (("a3", "a4"), "a")):
        await push(rig.log, queue, *payloads, partition=partition)
        rig.clock.advance(seconds=10)


async def bury(rig: Rig, claim: Claim, *offsets: int) -> None:
    """Messages of a claim die."""
    dead = tuple(Death(o, "because", 1, Message(texts(claim)[o].encode())) for o in offsets)
    (await rig.log.commit(settlements=[claim.settle(dead=dead)])).raise_for_conflicts()


@KINDS
async def test_what_was_done_is_handed_out_again_from_the_place_on(rig: Rig, *, ordered: bool) -> None:
    queue, group = await made(rig, ordered=ordered)
    await fill(rig, queue)
    assert sorted(await drain(rig.log, group)) == ["a1", "a2", "a3", "a4", "b1", "b2"]

    sought = await rig.log.seek(group, Position(4))

    assert (sought.skipped, sought.again, sought.returned) == (0, 3, 0)
    assert (sought.group.start, sought.group.sought) == (4, 1)
    books = await counts(rig.log, group)
    assert (books.accepted, books.ready, books.done) == (9, 3, 6)
    assert sorted(await drain(rig.log, group)) == ["a3", "a4", "b2"]
    assert (await counts(rig.log, group)).done == 9


@KINDS
async def test_what_is_skipped_and_was_not_finished_is_purged(rig: Rig, *, ordered: bool) -> None:
    queue, group = await made(rig, ordered=ordered)
    await fill(rig, queue)
    (claim, *_) = (await rig.log.claim(group, "owner", ALL, partition="a" if ordered else None)).claims
    await rig.log.commit(settlements=[claim.settle(done=bitmap.of([0], claim.count))])

    sought = await rig.log.seek(group, "latest")

    assert (sought.skipped, sought.again, sought.returned) == (5, 0, 0)
    books = await counts(rig.log, group)
    assert (books.accepted, books.ready, books.held, books.purged, books.done) == (6, 0, 0, 5, 1)
    assert await take(rig.log, group) == []
    await push(rig.log, queue, "new", partition="a")
    assert await drain(rig.log, group) == ["new"]


@KINDS
async def test_a_claim_that_lies_on_both_sides_is_dropped_and_returned_in_part(
    rig: Rig, *, ordered: bool
) -> None:
    queue, group = await made(rig, ordered=ordered)
    await push(rig.log, queue, *"abcdefgh", partition="p")
    claim = await take_one(rig.log, group)
    await rig.log.commit(settlements=[claim.settle(done=bitmap.of([0, 6], claim.count))])

    sought = await rig.log.seek(group, Position(5))

    assert (sought.skipped, sought.again, sought.returned) == (3, 1, 3)
    books = await counts(rig.log, group)
    assert (books.accepted, books.ready, books.purged, books.done) == (9, 4, 3, 2)
    (again,) = await take(rig.log, group)
    assert texts(again) == list("efgh")
    assert (again.attempts, bitmap.count(again.done)) == (0, 0)


@KINDS
async def test_late_settlements_and_marks_are_refused(rig: Rig, *, ordered: bool) -> None:
    queue, group = await made(rig, ordered=ordered)
    await fill(rig, queue)
    claims = await take(rig.log, group)
    await rig.log.seek(group, "earliest")

    receipt = await rig.log.commit(settlements=[claim.settle_all() for claim in claims])
    marks = [claim.mark(handed=bitmap.full(claim.count)) for claim in claims]

    assert list(receipt.conflicts) == [0, 1, 2]
    assert list(await rig.log.mark(marks)) == [0, 1, 2]
    assert await rig.log.recall(group, [claim.token for claim in claims]) == []
    assert (await counts(rig.log, group)).done == 0
    assert len(await drain(rig.log, group)) == 6


@KINDS
async def test_what_was_deferred_begins_anew_or_is_purged(rig: Rig, *, ordered: bool) -> None:
    queue, group = await made(rig, ordered=ordered)
    await fill(rig, queue)
    for claim in await take(rig.log, group):
        await defer(rig.log, claim, rig.clock.now() + 60 * SECOND, attempts=3)

    sought = await rig.log.seek(group, Position(3))

    assert (sought.skipped, sought.again, sought.returned) == (2, 0, 4)
    assert [claim.attempts for claim in await take(rig.log, group)] == [0, 0]
    rig.clock.advance(seconds=60)
    due = await rig.log.due(group, "owner", ALL)
    assert (list(due.claims), due.next_due_at) == ([], None)


async def test_dead_letters_stay_and_redriven_ones_are_listed_again(rig: Rig) -> None:
    queue, group = await made(rig)
    await push(rig.log, queue, *"abc")
    claim = await take_one(rig.log, group)
    first, second, third = range(claim.first, claim.first + claim.count)
    await bury(rig, claim, 0, 1, 2)
    await rig.log.redrive(group, [first, second])
    held = [c for c in (await rig.log.due(group, "owner", ALL)).claims if c.first == first]
    await finish(rig.log, *held)

    sought = await rig.log.seek(group, "latest")

    assert (sought.skipped, sought.again, sought.returned) == (0, 0, 0)
    assert [d.message_id for d in await rig.log.dead_letters(group)] == [second, third]
    books = await counts(rig.log, group)
    assert (books.accepted, books.done, books.dead, books.held, books.deferred) == (3, 1, 2, 0, 0)
    assert await rig.log.redrive(group, [second]) == [second]
    assert unfinished((await rig.log.due(group, "owner", ALL)).claims) == ["b"]


async def test_a_message_that_dies_again_replaces_its_letter(rig: Rig) -> None:
    queue, group = await made(rig)
    await push(rig.log, queue, "a")
    await bury(rig, await take_one(rig.log, group), 0)
    await rig.log.seek(group, "earliest")
    claim = await take_one(rig.log, group)
    rig.clock.advance(seconds=5)
    await bury(rig, claim, 0)

    (letter,) = await rig.log.dead_letters(group)
    books = await counts(rig.log, group)

    assert letter.died_at == rig.clock.now()
    assert (books.accepted, books.dead, books.purged) == (2, 1, 1)
    await rig.log.purge(group, [letter.message_id])
    books = await counts(rig.log, group)
    assert (books.dead, books.purged) == (0, 2)


async def test_a_message_that_dies_while_its_letter_is_out_leaves_the_letter_alone(rig: Rig) -> None:
    queue, group = await made(rig)
    await push(rig.log, queue, "a")
    await bury(rig, await take_one(rig.log, group), 0)
    await rig.log.seek(group, "earliest")
    (letter,) = await rig.log.dead_letters(group)
    await rig.log.redrive(group, [letter.message_id])
    await bury(rig, await take_one(rig.log, group), 0)

    assert await rig.log.dead_letters(group) == []
    books = await counts(rig.log, group)
    assert (books.accepted, books.deferred, books.dead, books.purged) == (2, 1, 0, 1)
    (again,) = (await rig.log.due(group, "owner", ALL)).claims
    await bury(rig, again, 0)
    assert len(await rig.log.dead_letters(group)) == 1


@KINDS
async def test_a_dry_run_says_the_same_and_changes_nothing(rig: Rig, *, ordered: bool) -> None:
    queue, group = await made(rig, ordered=ordered)
    await fill(rig, queue)
    (claim,) = (await rig.log.claim(group, "owner", ALL, partition="b" if ordered else None)).claims[-1:]
    before = await counts(rig.log, group)

    dry = await rig.log.seek(group, Position(4), dry_run=True)

    assert await counts(rig.log, group) == before
    assert (dry.group, len(await rig.log.recall(group, [claim.token]))) == (before.group, 1)
    sought = await rig.log.seek(group, Position(4))
    assert (sought.skipped, sought.again, sought.returned) == (dry.skipped, dry.again, dry.returned)


@KINDS
async def test_a_group_can_go_back_before_its_start(rig: Rig, *, ordered: bool) -> None:
    queue, _ = await made(rig, ordered=ordered)
    await fill(rig, queue)
    late = await rig.log.create_group(queue, "late", "latest")

    sought = await rig.log.seek(late, "earliest")

    assert (sought.skipped, sought.again) == (0, 6)
    assert (await counts(rig.log, late)).accepted == 6
    assert len(await drain(rig.log, late)) == 6


@KINDS
async def test_a_group_may_seek_to_a_time(rig: Rig, *, ordered: bool) -> None:
    queue, group = await made(rig, ordered=ordered)
    began = rig.clock.now()
    await fill(rig, queue)
    await drain(rig.log, group)
    await rig.log.seek(group, began + 10 * SECOND)
    assert sorted(await drain(rig.log, group)) == ["a3", "a4", "b1", "b2"]


@KINDS
async def test_seeking_often_keeps_the_books(rig: Rig, *, ordered: bool) -> None:
    queue, group = await made(rig, ordered=ordered)
    await fill(rig, queue)
    places: tuple[Start, ...] = (Position(3), "latest", "earliest", Position(6), Position(2), Position(7))
    for place in places:
        await take(rig.log, group)
        await rig.log.seek(group, place)
        await check_ledger(rig.log)
    assert (await counts(rig.log, group)).group.sought == len(places)


@KINDS
async def test_the_books_balance_whatever_happens_at_the_same_time(rig: Rig, *, ordered: bool) -> None:
    queue, group = await made(rig, ordered=ordered)
    await fill(rig, queue)

    async def work(owner: str) -> None:
        for turn in range(15):
            due = await rig.log.due(group, owner, Room(3))
            claimed = await rig.log.claim(group, owner, Room(3))
            for claim in (*due.claims, *claimed.claims):
                rest = bitmap.minus(bitmap.full(claim.count), claim.done)
                (first, *others) = bitmap.indexes(rest)
                settlement = claim.settle(
                    done=bitmap.of(others, claim.count), deferred=(Deferral(first, rig.clock.now(), 1),)
                )
                await rig.log.mark([claim.mark(handed=rest)])
                await rig.log.commit(settlements=[settlement])
            await push(rig.log, queue, str(turn), partition=owner)

    async def seek() -> None:
        for turn in range(15):
            await rig.log.seek(group, ("latest", "earliest", Position(4))[turn % 3])
            await check_ledger(rig.log)

    await asyncio.gather(work("a"), work("b"), work("c"), seek(), seek())
    await rig.log.seek(group, "earliest")
    assert len(await drain(rig.log, group)) == 6 + 3 * 15


@KINDS
async def test_other_groups_go_on_as_they_were(rig: Rig, *, ordered: bool) -> None:
    queue, group = await made(rig, ordered=ordered)
    other = await rig.log.create_group(queue, "other")
    await fill(rig, queue)
    claims = await take(rig.log, other)
    await rig.log.seek(group, "latest")
    await finish(rig.log, *claims)
    assert (await counts(rig.log, other)).done == 6


@KINDS
async def test_retention_keeps_what_a_group_needs_again(rig: Rig, *, ordered: bool) -> None:
    queue, group = await made(rig, ordered=ordered, keep_seconds=float(DAY_SECONDS))
    await fill(rig, queue)
    await drain(rig.log, group)
    await rig.log.seek(group, "earliest")
    rig.clock.advance(seconds=3 * DAY_SECONDS)

    assert (await rig.log.trim()).blocks == 0
    assert len(await drain(rig.log, group)) == 6
    rig.clock.advance(seconds=3 * DAY_SECONDS)
    assert (await rig.log.trim()).blocks == 3


@KINDS
async def test_a_place_before_what_is_kept_is_the_oldest_kept(rig: Rig, *, ordered: bool) -> None:
    queue, group = await made(rig, ordered=ordered, keep_seconds=float(DAY_SECONDS))
    await fill(rig, queue)
    await drain(rig.log, group)
    rig.clock.advance(seconds=3 * DAY_SECONDS)
    await rig.log.trim()
    await push(rig.log, queue, "kept", partition="a")
    await drain(rig.log, group)

    sought = await rig.log.seek(group, Position(2))

    assert sought.group.start == 7
    assert await drain(rig.log, group) == ["kept"]


async def test_a_group_may_begin_at_a_position_within_a_block(rig: Rig) -> None:
    queue = await rig.log.create_queue("q", {"ordered": True})
    await push(rig.log, queue, *"abcd", partition="p")
    group = await rig.log.create_group(queue, "g", Position(3))
    assert group.start == 3
    assert await drain(rig.log, group) == ["c", "d"]


@pytest.mark.parametrize(
    "start", [Position(0), Position(1 << 45), Position(8), "first", -1, 1 << 62, True, None, 1.5], ids=repr
)
async def test_a_bad_place_is_rejected_and_changes_nothing(rig: Rig, start: Any) -> None:
    queue, group = await made(rig)
    await fill(rig, queue)
    claim = (await take(rig.log, group))[0]
    with pytest.raises(Rejected) as caught:
        await rig.log.seek(group, start)
    assert caught.value.hint
    with pytest.raises(Rejected):
        await rig.log.create_group(queue, "other", start)
    await finish(rig.log, claim)


async def test_a_group_that_was_deleted_can_go_nowhere(rig: Rig) -> None:
    _, group = await made(rig)
    await rig.log.delete_group(group)
    with pytest.raises(UnknownGroup):
        await rig.log.seek(group, "latest")


async def test_a_seek_outlives_the_process(durable_rig: Rig) -> None:
    queue, group = await made(durable_rig)
    await fill(durable_rig, queue)
    await durable_rig.log.seek(group, Position(5))
    await durable_rig.reopen()
    assert [g.start for g in await durable_rig.log.groups(queue)] == [5]
    assert await drain(durable_rig.log, group) == ["a3", "a4"]
