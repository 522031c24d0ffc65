"""Finding one message: where it is, for every group, as it goes through the log."""

from __future__ import annotations

import pytest

from forebay.log.values import Append, Death, Deferral, Found, Queue, Standing
from forebay.model import Message, UnknownQueue, bitmap, pack
from tests.conformance.rigs import Rig

SECOND = 1_000_000


async def filled(rig: Rig, count: int = 3, **settings: object) -> tuple[Queue, list[int]]:
    """A queue with a group and one block."""
    queue = await rig.log.create_queue("orders", settings)
    await rig.log.create_group(queue, "workers")
    messages = [Message(b"%d" % i, "p") for i in range(count)]
    (appended,) = (await rig.log.commit([Append.of(queue, messages)])).appended
    return queue, appended.ids()


async def standing(rig: Rig, message_id: int) -> Standing:
    """Where a message is for the first group."""
    return (await rig.log.find(message_id)).standings[0]


@pytest.mark.parametrize("ordered", [False, True])
async def test_a_message_that_nobody_claimed_is_found_in_its_block(rig: Rig, *, ordered: bool) -> None:
    queue, ids = await filled(rig, ordered=ordered)
    found = await rig.log.find(ids[1])
    assert found.block is not None
    assert (found.block.first, found.block.count, found.next) == (ids[0], 3, 4)
    (stands,) = found.standings
    assert not stands.claimed
    assert stands.claim is None
    assert stands.letter is None
    assert not stands.outcomes
    assert found.queue == queue


@pytest.mark.parametrize("ordered", [False, True])
async def test_an_open_claim_says_who_holds_a_message_and_whether_it_is_out(
    rig: Rig, *, ordered: bool
) -> None:
    queue, ids = await filled(rig, ordered=ordered)
    (group,) = await rig.log.groups(queue)
    (claim,) = (await rig.log.claim(group, "me")).claims
    await rig.log.mark([claim.mark(handed=bitmap.of([0, 1], 3))])
    out, kept = await standing(rig, ids[1]), await standing(rig, ids[2])
    assert out.claimed
    assert out.claim is not None
    assert (out.claim.owner, out.claim.handed) == ("me", True)
    assert kept.claim is not None
    assert (kept.claim.owner, kept.claim.handed) == ("me", False)


async def test_each_message_of_a_claim_is_found_by_what_became_of_it(rig: Rig) -> None:
    queue, ids = await filled(rig)
    (group,) = await rig.log.groups(queue)
    (claim,) = (await rig.log.claim(group, "me")).claims
    later = rig.clock.now() + 9 * SECOND
    death = Death(2, "no good", 1, Message(b"2"))
    await rig.log.commit(
        settlements=[
            claim.settle(
                done=bitmap.of([0], 3), deferred=(Deferral(1, later, 1, 5),), dead=(death,), worker="w"
            )
        ]
    )
    done, deferred, dead = [await standing(rig, i) for i in ids]
    assert done.claim is None
    assert done.letter is None
    assert deferred.claim is not None
    assert (deferred.claim.owner, deferred.claim.due_at, deferred.claim.attempts) == (None, later, 1)
    assert dead.claim is None
    assert dead.letter is not None
    assert (dead.letter.state, dead.letter.letter.reason) == ("dead", "no good")
    for stands in (done, deferred, dead):
        assert [outcome.worker for outcome in stands.outcomes] == ["w"]


async def test_only_the_entries_about_a_message_are_found_with_it(rig: Rig) -> None:
    queue, ids = await filled(rig)
    (group,) = await rig.log.groups(queue)
    (claim,) = (await rig.log.claim(group, "me")).claims
    for offset in range(3):
        rig.clock.advance(seconds=0.001)
        await rig.log.commit(settlements=[claim.settle(done=bitmap.of([offset], 3), worker=f"w{offset}")])
    for offset, message_id in enumerate(ids):
        stands = await standing(rig, message_id)
        assert [outcome.worker for outcome in stands.outcomes] == [f"w{offset}"]


async def test_a_letter_is_found_redriven_and_purged(rig: Rig) -> None:
    queue, ids = await filled(rig, count=2)
    (group,) = await rig.log.groups(queue)
    (claim,) = (await rig.log.claim(group, "me")).claims
    deaths = tuple(Death(i, "no good", 1, Message(b"%d" % i)) for i in range(2))
    await rig.log.commit(settlements=[claim.settle(dead=deaths)])
    rig.clock.advance(seconds=1)
    changed_at = rig.clock.now()
    await rig.log.redrive(group, ids[:1])
    await rig.log.purge(group, ids[1:])
    redriven, purged = [await standing(rig, i) for i in ids]
    assert redriven.letter is not None
    assert (redriven.letter.state, redriven.letter.changed_at) == ("redriven", changed_at)
    assert redriven.claim is not None
    assert redriven.claim.owner is None
    assert purged.letter is not None
    assert (purged.letter.state, purged.letter.changed_at) == ("purged", changed_at)
    assert purged.claim is None


@pytest.mark.parametrize("redriven_first", [False, True])
async def test_of_a_letter_redriven_and_its_message_read_again_the_one_to_come_first_is_found(
    rig: Rig, *, redriven_first: bool
) -> None:
    queue, ids = await filled(rig, count=1)
    (group,) = await rig.log.groups(queue)
    (claim,) = (await rig.log.claim(group, "me")).claims
    await rig.log.commit(settlements=[claim.settle(dead=(Death(0, "no good", 1, Message(b"0")),))])
    await rig.log.seek(group, "earliest")
    now = rig.clock.now()

    async def read_again() -> None:
        (claim,) = (await rig.log.claim(group, "me")).claims
        await rig.log.commit(settlements=[claim.settle(deferred=(Deferral(0, now + SECOND, 1, now),))])

    if redriven_first:
        await rig.log.redrive(group, ids)
    await read_again()
    if not redriven_first:
        await rig.log.redrive(group, ids)
    found = (await standing(rig, ids[0])).claim
    assert found is not None
    assert (found.owner, found.due_at, found.attempts) == (None, now, 0)


async def test_a_letter_is_found_after_its_block_was_dropped(rig: Rig) -> None:
    queue, ids = await filled(rig, keep_seconds=1)
    (group,) = await rig.log.groups(queue)
    (claim,) = (await rig.log.claim(group, "me")).claims
    death = Death(1, "no good", 1, Message(b"1"))
    await rig.log.commit(settlements=[claim.settle(done=bitmap.of([0, 2], 3), dead=(death,))])
    rig.clock.advance(seconds=3 * 86_400)
    await rig.log.trim()
    found = await rig.log.find(ids[1])
    assert found.block is None
    assert found.standings[0].claimed
    assert found.standings[0].letter is not None
    assert found.next == 4


async def test_groups_are_found_apart_and_one_that_began_later_has_not_claimed(rig: Rig) -> None:
    queue, ids = await filled(rig)
    other = await rig.log.create_group(queue, "others")
    (group,) = [g for g in await rig.log.groups(queue) if g.name == "workers"]
    (claim,) = (await rig.log.claim(group, "me")).claims
    await rig.log.commit(settlements=[claim.settle_all()])
    mine, theirs = (await rig.log.find(ids[0])).standings
    assert (mine.group, mine.claimed, len(mine.outcomes)) == (group, True, 1)
    assert (theirs.group, theirs.claimed, len(theirs.outcomes)) == (other, False, 0)


async def test_a_block_in_quarantine_is_found_corrupt(rig: Rig) -> None:
    queue, ids = await filled(rig)
    (group,) = await rig.log.groups(queue)
    await rig.flip_bit(queue, 1)
    assert (await rig.log.claim(group, "me")).corrupt
    stands = await standing(rig, ids[2])
    assert stands.corrupt
    assert stands.claim is None


async def test_what_is_not_there_yet_is_found_nowhere_and_no_queue_is_an_error(rig: Rig) -> None:
    queue, ids = await filled(rig)
    found: Found = await rig.log.find(ids[-1] + 1)
    assert found.block is None
    assert found.next == 4
    with pytest.raises(UnknownQueue):
        await rig.log.find(pack(queue.number + 1, 1))
