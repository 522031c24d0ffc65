"""Claims that are given to another owner, whoever has them: who had them before is fenced off."""

from __future__ import annotations

import pytest

from forebay.log.values import Claim, Death, Group, Queue
from forebay.model import Message, Rejected, UnknownGroup, bitmap
from tests.conformance.rigs import Rig
from tests.conformance.steps import ALL, SECOND, counts, defer, finish, push, take, take_one, texts


async def made(rig: Rig, *, ordered: bool = True) -> tuple[Queue, Group]:
    """A queue and its group."""
    queue = await rig.log.create_queue("q", {"ordered": ordered})
    return queue, await rig.log.create_group(queue, "g")


async def seized(rig: Rig, group: Group) -> list[Claim]:
    """What the new owner gets."""
    return list((await rig.log.reclaim(group, "hand", ALL, of=["hand"])).claims)


@pytest.mark.parametrize("ordered", [False, True], ids=["unordered", "ordered"])
async def test_only_the_claims_of_the_messages_change_hands(rig: Rig, *, ordered: bool) -> None:
    queue, group = await made(rig, ordered=ordered)
    for text in "abc":
        await push(rig.log, queue, f"{text}1", f"{text}2", partition=text)
    a, b, c = await take(rig.log, group)

    assert await rig.log.seize(group, "hand", ids=[b.first + 1, b.first]) == 1
    (claim,) = await seized(rig, group)

    assert texts(claim) == ["b1", "b2"]
    receipt = await rig.log.commit(settlements=[one.settle_all() for one in (a, b, c)])
    assert list(receipt.conflicts) == [1]
    await finish(rig.log, claim)
    assert (await counts(rig.log, group)).done == 6


@pytest.mark.parametrize("owners", [("a", "b"), ("b", "a"), ("a", "a")])
@pytest.mark.parametrize("redriven_first", [False, True])
async def test_a_message_comes_before_its_letter_when_both_change_hands(
    rig: Rig, owners: tuple[str, str], *, redriven_first: bool
) -> None:
    queue, group = await made(rig, ordered=False)
    await push(rig.log, queue, "a")
    claim = await take_one(rig.log, group)
    await rig.log.commit(settlements=[claim.settle(dead=(Death(0, "no good", 1, Message(b"letter")),))])
    await rig.log.seek(group, "earliest")

    async def take_letter(owner: str) -> None:
        await rig.log.redrive(group, [claim.first])
        (taken,) = (await rig.log.due(group, owner)).claims
        assert texts(taken) == ["letter"]

    async def take_message(owner: str) -> None:
        (taken,) = (await rig.log.claim(group, owner)).claims
        assert texts(taken) == ["a"]

    steps = [take_letter, take_message] if redriven_first else [take_message, take_letter]
    for step, owner in zip(steps, owners, strict=True):
        await step(owner)
    found = (await rig.log.reclaim(group, "hand", ALL, of=sorted(set(owners)))).claims
    assert [texts(taken) for taken in found] == [["a"], ["letter"]]


async def test_what_was_marked_before_is_known_and_what_comes_after_is_refused(rig: Rig) -> None:
    queue, group = await made(rig)
    await push(rig.log, queue, "a", "b")
    claim = await take_one(rig.log, group)
    await rig.log.mark([claim.mark(handed=bitmap.of([0], 2))])
    await rig.log.seize(group, "hand", ids=[claim.first + 1])
    (mine,) = await seized(rig, group)
    assert bitmap.indexes(mine.handed) == [0]
    assert await rig.log.mark([claim.mark(handed=bitmap.of([1], 2))]) == [0]


async def test_a_message_that_is_finished_leaves_its_claim_where_it_is(rig: Rig) -> None:
    queue, group = await made(rig)
    await push(rig.log, queue, "a", "b")
    claim = await take_one(rig.log, group)
    await rig.log.commit(settlements=[claim.settle(done=bitmap.of([0], 2))])
    assert await rig.log.seize(group, "hand", ids=[claim.first]) == 0
    assert await seized(rig, group) == []
    assert list((await rig.log.commit(settlements=[claim.settle(done=bitmap.of([1], 2))])).conflicts) == []


async def test_what_waits_for_its_time_is_had_at_once(rig: Rig) -> None:
    queue, group = await made(rig)
    await push(rig.log, queue, "a")
    claim = await take_one(rig.log, group)
    await defer(rig.log, claim, rig.clock.now() + SECOND)
    assert await rig.log.seize(group, "hand", ids=[claim.first], held=False) == 1
    (mine,) = await seized(rig, group)
    assert (texts(mine), mine.start_time) == (["a"], rig.clock.now() + SECOND)


async def test_a_partition_changes_hands_as_a_whole(rig: Rig) -> None:
    queue, group = await made(rig)
    for text in ("a1", "b1", "a2"):
        await push(rig.log, queue, text, partition=text[0])
    first, other, second = sorted(await take(rig.log, group), key=lambda claim: claim.first)
    await defer(rig.log, first, rig.clock.now() + SECOND)

    assert await rig.log.seize(group, "hand", partition="a", held=False) == 1
    assert await rig.log.seize(group, "hand", partition="a") == 1

    assert [texts(claim) for claim in await seized(rig, group)] == [["a1"], ["a2"]]
    assert list((await rig.log.commit(settlements=[second.settle_all()])).conflicts) == [0]
    await finish(rig.log, other)


async def test_a_redriven_letter_changes_hands_too(rig: Rig) -> None:
    queue, group = await made(rig)
    await push(rig.log, queue, "old")
    claim = await take_one(rig.log, group)
    await rig.log.commit(settlements=[claim.settle(dead=(Death(0, "because", 1, Message(b"copy")),))])
    await rig.log.redrive(group, [claim.first])
    assert await rig.log.seize(group, "hand", ids=[claim.first]) == 1
    assert [texts(one) for one in await seized(rig, group)] == [["copy"]]


async def test_what_is_given_back_is_there_for_others(rig: Rig) -> None:
    queue, group = await made(rig)
    await push(rig.log, queue, "a", "b")
    claim = await take_one(rig.log, group)
    await defer(rig.log, claim, rig.clock.now() + SECOND)
    await rig.log.seize(group, "hand", partition="")
    assert await rig.log.retire("hand") == 1
    (again,) = (await rig.log.due(group, "owner", ALL)).claims
    assert texts(again) == ["a", "b"]
    await counts(rig.log, group)


async def test_other_groups_and_queues_keep_their_claims(rig: Rig) -> None:
    queue, group = await made(rig)
    other = await rig.log.create_group(queue, "other")
    await push(rig.log, queue, "a")
    claim, elsewhere = await take_one(rig.log, group), await take_one(rig.log, other)
    assert (
        await rig.log.seize(group, "hand", ids=[claim.first, (queue.number + 1) << 45 | 1], partition="x")
        == 1
    )
    assert list((await rig.log.commit(settlements=[elsewhere.settle_all()])).conflicts) == []


async def test_nothing_is_seized_of_a_group_that_is_gone(rig: Rig) -> None:
    _, group = await made(rig)
    await rig.log.delete_group(group)
    with pytest.raises(UnknownGroup):
        await rig.log.seize(group, "hand", partition="a")


async def test_too_many_messages_are_rejected(rig: Rig) -> None:
    _, group = await made(rig)
    with pytest.raises(Rejected, match="10001 messages"):
        await rig.log.seize(group, "hand", ids=range(10_001))
