"""Marks: what was out with a worker when its claim changes hands."""

import asyncio

import pytest

from forebay.log.values import Claim, Group, Mark
from forebay.model import Rejected, bitmap
from tests.conformance.rigs import Rig
from tests.conformance.steps import ALL, bits, counts, finish, push, take, take_one


async def one_group(rig: Rig, *payloads: str) -> Group:
    """A group on a new queue, with one block."""
    queue = await rig.log.create_queue("orders")
    await push(rig.log, queue, *payloads)
    return await rig.log.create_group(queue, "workers")


async def taken_over(rig: Rig, group: Group, of: str = "old") -> Claim:
    """The one claim of an owner, with whoever takes it over."""
    (taken,) = (await rig.log.reclaim(group, f"after {of}", ALL, of=[of])).claims
    return taken


async def test_marks_come_back_when_a_claim_is_taken_over(rig: Rig) -> None:
    group = await one_group(rig, *"abcdefghij")
    claim = await take_one(rig.log, group, "old")
    assert await rig.log.mark([claim.mark(handed=bits(claim, 0, 1, 2, 9))]) == []
    assert await rig.log.mark([claim.mark(returned=bits(claim, 1, 5))]) == []
    await rig.log.commit(settlements=[claim.settle(done=bits(claim, 0))])
    assert await rig.log.mark([claim.mark(handed=bits(claim, 3))]) == []
    stats = await counts(rig.log, group)
    assert (stats.held, stats.done) == (9, 1)
    taken = await taken_over(rig, group)
    assert bitmap.indexes(taken.done) == [0]
    assert bitmap.indexes(bitmap.minus(taken.handed, taken.done)) == [2, 3, 9]
    await finish(rig.log, taken)


async def test_marks_come_back_from_an_owner_that_retires(rig: Rig) -> None:
    group = await one_group(rig, *"abc")
    claim = await take_one(rig.log, group, "old")
    await rig.log.mark([claim.mark(handed=bits(claim, 1))])
    await rig.log.retire("old")
    (taken,) = (await rig.log.due(group, "new", ALL)).claims
    assert bitmap.indexes(taken.handed) == [1]


async def test_what_is_handed_and_returned_at_once_is_not_out(rig: Rig) -> None:
    group = await one_group(rig, *"abc")
    claim = await take_one(rig.log, group, "old")
    await rig.log.mark([claim.mark(handed=bits(claim, 0, 1), returned=bits(claim, 1, 2))])
    assert bitmap.indexes((await taken_over(rig, group)).handed) == [0]


async def test_marks_of_one_claim_count_in_their_order(rig: Rig) -> None:
    group = await one_group(rig, *"abcd")
    claim = await take_one(rig.log, group, "old")
    marks = [
        claim.mark(handed=bits(claim, 0, 1, 2)),
        claim.mark(returned=bits(claim, 1, 2, 3)),
        claim.mark(handed=bits(claim, 2, 3)),
        claim.mark(returned=bits(claim, 3)),
    ]
    assert await rig.log.mark(marks) == []
    assert bitmap.indexes((await taken_over(rig, group)).handed) == [0, 2]


async def test_a_mark_may_be_repeated(rig: Rig) -> None:
    group = await one_group(rig, "a", "b")
    claim = await take_one(rig.log, group, "old")
    for _ in range(2):
        assert await rig.log.mark([claim.mark(handed=bits(claim, 0))]) == []
    assert bitmap.indexes((await taken_over(rig, group)).handed) == [0]


async def test_no_marks_and_marks_of_nothing_change_nothing(rig: Rig) -> None:
    group = await one_group(rig, "a", "b")
    claim = await take_one(rig.log, group, "old")
    await rig.log.mark([claim.mark(handed=bits(claim, 1))])
    assert await rig.log.mark([]) == []
    assert await rig.log.mark([claim.mark()]) == []
    assert bitmap.indexes((await taken_over(rig, group)).handed) == [1]


async def test_only_the_holder_of_a_claim_marks_it(rig: Rig) -> None:
    group = await one_group(rig, "a", "b")
    other = await rig.log.create_group(await rig.log.queue("orders"), "other")
    claim = await take_one(rig.log, group, "old")
    everything = bits(claim, 0, 1)
    wrong = [
        Mark(group.number, claim.token + 1_000, 2, everything),
        Mark(other.number, claim.token, 2, everything),
        Mark(group.number, claim.token, 3, everything),
    ]
    for mark in wrong:
        assert await rig.log.mark([mark]) == [0]
    right = claim.mark(handed=bits(claim, 0))
    assert await rig.log.mark([wrong[0], right, wrong[1], right, wrong[2]]) == [0, 2, 4]
    taken = await taken_over(rig, group)
    assert bitmap.indexes(taken.handed) == [0]
    assert await rig.log.mark([claim.mark(handed=everything)]) == [0]
    assert await rig.log.mark([taken.mark(returned=everything)]) == []
    assert bitmap.indexes((await taken_over(rig, group, "after old")).handed) == []


async def test_a_claim_that_was_given_back_or_finished_is_not_marked(rig: Rig) -> None:
    queue = await rig.log.create_queue("orders")
    group = await rig.log.create_group(queue, "workers")
    await push(rig.log, queue, "a")
    await push(rig.log, queue, "b")
    given, finished = await take(rig.log, group, "old")
    await finish(rig.log, finished)
    await rig.log.retire("old")
    marks = [claim.mark(handed=b"\x01") for claim in (given, finished)]
    assert await rig.log.mark(marks) == [0, 1]
    (taken,) = (await rig.log.due(group, "new", ALL)).claims
    assert bitmap.count(taken.handed) == 0


async def test_claims_of_a_group_that_is_gone_are_not_marked(rig: Rig) -> None:
    group = await one_group(rig, "a")
    claim = await take_one(rig.log, group)
    await rig.log.delete_group(group)
    assert await rig.log.mark([claim.mark(handed=b"\x01")]) == [0]


async def test_a_mark_outside_its_claim_is_rejected_with_its_company(rig: Rig) -> None:
    group = await one_group(rig, "a", "b")
    claim = await take_one(rig.log, group, "old")
    for wrong in (claim.mark(handed=b"\x04"), claim.mark(returned=b"\x01\x00"), Mark(1, 1, 0)):
        with pytest.raises(Rejected):
            await rig.log.mark([claim.mark(handed=b"\x03"), wrong])
    assert bitmap.count((await taken_over(rig, group)).handed) == 0


async def test_concurrent_marks_each_get_their_answer(rig: Rig) -> None:
    queue = await rig.log.create_queue("orders")
    group = await rig.log.create_group(queue, "workers")
    for n in range(10):
        await push(rig.log, queue, *(f"{n}-{i}" for i in range(20)))
    claims = await take(rig.log, group, "old")
    lost = claims[3]
    await finish(rig.log, lost)
    answers = await asyncio.gather(*[
        rig.log.mark([claim.mark(handed=bits(claim, n)) for claim in claims]) for n in range(20)
    ])  # fmt: skip
    assert [list(answer) for answer in answers] == [[3]] * 20
    taken = (await rig.log.reclaim(group, "new", ALL, of=["old"])).claims
    assert [bitmap.count(claim.handed) for claim in taken] == [20] * 9


async def test_marks_and_settlements_of_one_claim_do_not_disturb_each_other(rig: Rig) -> None:
    group = await one_group(rig, *(str(n) for n in range(40)))
    claim = await take_one(rig.log, group, "old")
    await asyncio.gather(
        *[rig.log.mark([claim.mark(handed=bits(claim, n))]) for n in range(40)],
        *[rig.log.commit(settlements=[claim.settle(done=bits(claim, n))]) for n in range(0, 40, 2)],
    )
    taken = await taken_over(rig, group)
    assert bitmap.indexes(taken.done) == list(range(0, 40, 2))
    assert bitmap.indexes(bitmap.minus(taken.handed, taken.done)) == list(range(1, 40, 2))
