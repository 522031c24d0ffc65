"""Ordered queues: a partition is out with one owner at a time, in push order."""

import asyncio

import pytest

from forebay.log.values import Append, Claim, Deferral, Group, Queue, Room
from forebay.model import Block, Conflict, Message, Rejected, mint
from tests.conformance.rigs import Rig
from tests.conformance.steps import (
    ALL,
    SECOND,
    append_of,
    bits,
    counts,
    defer,
    drain,
    finish,
    first_texts,
    push,
    stored,
    take,
    unfinished,
)


async def ordered(rig: Rig) -> tuple[Queue, Group]:
    """An ordered queue with a group."""
    queue = await rig.log.create_queue("orders", {"ordered": True})
    return queue, await rig.log.create_group(queue, "workers")


async def test_a_partition_is_out_with_one_owner_at_a_time(rig: Rig) -> None:
    queue, group = await ordered(rig)
    await push(rig.log, queue, "a1", "a2", partition="a")
    (claim,) = await take(rig.log, group, "one")
    await push(rig.log, queue, "a3", partition="a")
    assert await take(rig.log, group, "two") == []
    assert await take(rig.log, group, "one") == []
    await rig.log.commit(settlements=[claim.settle(done=bits(claim, 0))])
    assert await take(rig.log, group, "two") == []
    await finish_rest(rig, group, "one")
    assert unfinished(await take(rig.log, group, "two")) == ["a3"]


async def finish_rest(rig: Rig, group: Group, owner: str) -> None:
    """Finish what an owner holds, by way of a reclaim."""
    claims = (await rig.log.reclaim(group, "tidy", ALL, of=[owner])).claims
    await finish(rig.log, *claims)


async def test_a_stuck_partition_holds_up_nobody_else(rig: Rig) -> None:
    queue, group = await ordered(rig)
    await push(rig.log, queue, "a1", partition="a")
    await take(rig.log, group, "stuck")
    for n in range(3):
        await push(rig.log, queue, f"a{n + 2}", partition="a")
        await push(rig.log, queue, f"b{n}", partition="b")
        await push(rig.log, queue, f"c{n}", partition="c")
    found = await drain(rig.log, group, "two")
    assert [text for text in found if text[0] == "b"] == ["b0", "b1", "b2"]
    assert [text for text in found if text[0] == "c"] == ["c0", "c1", "c2"]
    assert not [text for text in found if text[0] == "a"]
    assert (await counts(rig.log, group)).ready == 3
    await finish_rest(rig, group, "stuck")
    assert await drain(rig.log, group, "two") == ["a2", "a3", "a4"]


async def test_blocks_of_a_partition_come_together_in_order(rig: Rig) -> None:
    queue, group = await ordered(rig)
    for n in range(4):
        await push(rig.log, queue, f"a{n}", f"A{n}", partition="a")
    claims = await take(rig.log, group)
    assert unfinished(claims) == [f"{x}{n}" for n in range(4) for x in "aA"]
    await finish(rig.log, *claims[:2])
    await push(rig.log, queue, "a9", partition="a")
    assert await take(rig.log, group) == []
    await finish(rig.log, *claims[2:])
    assert await drain(rig.log, group) == ["a9"]


async def test_room_cuts_the_first_block_of_a_partition(rig: Rig) -> None:
    queue, group = await ordered(rig)
    await push(rig.log, queue, "a1", "a2", "a3", partition="a")
    await push(rig.log, queue, "a4", partition="a")
    found = []
    while claims := await take(rig.log, group, room=Room(2)):
        found.append(unfinished(claims))
        await finish(rig.log, *claims)
    assert found == [["a1", "a2"], ["a3", "a4"]]


async def test_a_named_partition_is_taken_alone(rig: Rig) -> None:
    queue, group = await ordered(rig)
    for text in ("a1", "b1", "a2", "c1", "b2"):
        await push(rig.log, queue, text, partition=text[0])
    claimed = await rig.log.claim(group, "owner", ALL, partition="b")
    assert first_texts(claimed) == [["b1"], ["b2"]]
    assert list((await rig.log.claim(group, "owner", ALL, partition="b")).claims) == []
    assert list((await rig.log.claim(group, "owner", ALL, partition="none")).claims) == []
    await finish(rig.log, *claimed.claims)
    await push(rig.log, queue, "b3", partition="b")
    claimed = await rig.log.claim(group, "owner", Room(1), partition="b")
    assert first_texts(claimed) == [["b3"]]
    assert sorted(unfinished(await take(rig.log, group))) == ["a1", "a2", "c1"]


async def test_a_named_partition_goes_on_behind_what_its_owner_holds(rig: Rig) -> None:
    queue, group = await ordered(rig)
    await push(rig.log, queue, "a1", "a2", "a3", partition="a")
    first = await rig.log.claim(group, "one", Room(2), partition="a")
    await push(rig.log, queue, "a4", partition="a")
    assert list((await rig.log.claim(group, "two", ALL, partition="a")).claims) == []
    assert await take(rig.log, group, "one") == []
    second = await rig.log.claim(group, "one", ALL, partition="a")
    assert first_texts(first) == [["a1", "a2"]]
    assert first_texts(second) == [["a3"], ["a4"]]
    await finish(rig.log, *second.claims)
    await push(rig.log, queue, "a5", partition="a")
    assert await take(rig.log, group, "two") == []
    await defer(rig.log, first.claims[0], rig.clock.now(), attempts=1)
    assert list((await rig.log.claim(group, "one", ALL, partition="a")).claims) == []
    (back,) = (await rig.log.due(group, "one", ALL, partition="a")).claims
    assert first_texts(await rig.log.claim(group, "one", ALL, partition="a")) == [["a5"]]
    assert unfinished([back]) == ["a1", "a2"]


async def test_what_is_due_of_a_named_partition_comes_alone(rig: Rig) -> None:
    queue, group = await ordered(rig)
    for text in ("a1", "b1", "a2", "b2"):
        await push(rig.log, queue, text, partition=text[0])
    now = rig.clock.now()
    for claim in await take(rig.log, group):
        text = unfinished([claim])[0]
        await defer(rig.log, claim, now + (9 * SECOND if text == "b2" else 0), attempts=1)
    claimed = await rig.log.due(group, "owner", ALL, partition="b")
    assert (unfinished(claimed.claims), claimed.next_due_at) == (["b1"], now + 9 * SECOND)
    claimed = await rig.log.due(group, "owner", Room(1), partition="a")
    assert (unfinished(claimed.claims), claimed.next_due_at) == (["a1"], now)
    claimed = await rig.log.due(group, "owner", ALL, partition="a")
    assert (unfinished(claimed.claims), claimed.next_due_at) == (["a2"], None)
    claimed = await rig.log.due(group, "owner", ALL, partition="none")
    assert (list(claimed.claims), claimed.next_due_at) == ([], None)


async def test_the_default_partition_is_one_too(rig: Rig) -> None:
    queue, group = await ordered(rig)
    await push(rig.log, queue, "1")
    await push(rig.log, queue, "a1", partition="a")
    assert first_texts(await rig.log.claim(group, "owner", ALL, partition="")) == [["1"]]
    await push(rig.log, queue, "2")
    assert unfinished(await take(rig.log, group)) == ["a1"]


async def test_a_deferral_keeps_its_partition_waiting(rig: Rig) -> None:
    queue, group = await ordered(rig)
    await push(rig.log, queue, "a1", "a2", partition="a")
    await push(rig.log, queue, "b1", partition="b")
    await push(rig.log, queue, "a3", partition="a")
    claimed = await rig.log.claim(group, "owner", Room(2), partition="a")
    due_at = rig.clock.now() + 10 * SECOND
    await defer(rig.log, claimed.claims[0], due_at, attempts=1)
    assert await drain(rig.log, group) == ["b1"]
    assert list((await rig.log.claim(group, "owner", ALL, partition="a")).claims) == []
    rig.clock.set(due_at)
    assert await take(rig.log, group) == []
    (back,) = (await rig.log.due(group, "owner", ALL)).claims
    assert unfinished([back]) == ["a1", "a2"]
    assert await take(rig.log, group) == []
    await finish(rig.log, back)
    assert await drain(rig.log, group) == ["a3"]


async def test_deferred_runs_of_a_partition_come_back_in_order(rig: Rig) -> None:
    queue, group = await ordered(rig)
    for n in range(4):
        await push(rig.log, queue, f"a{n}", f"A{n}", partition="a")
    claims = await take(rig.log, group)
    due_at = rig.clock.now() + SECOND
    for claim in reversed(claims):
        await defer(rig.log, claim, due_at)
    rig.clock.set(due_at)
    back = (await rig.log.due(group, "owner", ALL)).claims
    assert unfinished(back) == [f"{x}{n}" for n in range(4) for x in "aA"]


@pytest.mark.parametrize("way", ["retire", "silent"])
async def test_runs_that_change_hands_stay_together(rig: Rig, way: str) -> None:
    """Whoever has the earlier run of a partition gets the later one too."""
    queue, group = await ordered(rig)
    for text in ("a1", "a2", "b1", "a3"):
        await push(rig.log, queue, text, partition=text[0])
    await take(rig.log, group, "old")

    async def next_runs(owner: str, room: Room) -> list[list[str]]:
        if way == "retire":
            return first_texts(await rig.log.due(group, owner, room))
        return first_texts(await rig.log.reclaim(group, owner, room, of=["old"]))

    if way == "retire":
        await rig.log.retire("old")
    assert await next_runs("one", Room(1)) == [["a1"]]
    assert await next_runs("two", ALL) == [["b1"]]
    assert await next_runs("one", Room(1)) == [["a2"]]
    await finish_rest(rig, group, "one")
    assert await next_runs("two", ALL) == [["a3"]]


async def test_a_run_does_not_overtake_a_deferral(rig: Rig) -> None:
    queue, group = await ordered(rig)
    await push(rig.log, queue, "a1", partition="a")
    await push(rig.log, queue, "a2", partition="a")
    first, _ = await take(rig.log, group, "old")
    due_at = rig.clock.now() + 10 * SECOND
    await defer(rig.log, first, due_at)
    await rig.log.retire("old")
    assert list((await rig.log.due(group, "new", ALL)).claims) == []
    rig.clock.set(due_at)
    found: list[str] = []
    while claims := (await rig.log.due(group, "new", ALL)).claims:
        found += unfinished(claims)
    assert found == ["a1", "a2"]


async def test_the_rest_of_a_run_does_not_overtake_its_deferred_beginning(rig: Rig) -> None:
    queue, group = await ordered(rig)
    await push(rig.log, queue, "a1", "a2", "a3", partition="a")
    (run,) = await take(rig.log, group, "old")
    due_at = rig.clock.now() + 10 * SECOND
    await rig.log.commit(settlements=[run.settle(deferred=(Deferral(0, due_at, 1),))])
    await rig.log.retire("old")
    assert list((await rig.log.due(group, "new", ALL)).claims) == []
    rig.clock.set(due_at)
    found: list[str] = []
    while claims := (await rig.log.due(group, "new", ALL)).claims:
        found += unfinished(claims)
    assert found == ["a1", "a2", "a3"]


async def test_what_is_left_of_a_run_behind_what_goes_back_goes_along(rig: Rig) -> None:
    queue, group = await ordered(rig)
    await push(rig.log, queue, *(f"a{n}" for n in range(10)), partition="a")
    await push(rig.log, queue, "a10", partition="a")
    run, later = await take(rig.log, group, "owner")
    now = rig.clock.now()
    parts = (
        run.settle(done=bits(run, 0, 6), deferred=(Deferral(4, now, 1), Deferral(7, now + SECOND, 1))),
        run.settle(done=bits(run, 9)),
    )
    assert not (await rig.log.commit(settlements=parts, id=mint())).conflicts
    late = await rig.log.commit(settlements=[run.settle(done=bits(run, n)) for n in (5, 8, 1)], id=mint())
    assert list(late.conflicts) == [0, 1]
    found = await counts(rig.log, group)
    assert (found.held, found.deferred, found.done, found.difference) == (3, 4, 4, 0)
    rig.clock.advance(seconds=1)
    assert list((await rig.log.due(group, "other", ALL)).claims) == [], "it would overtake what is held"
    await rig.log.retire("owner")
    back: list[Claim] = []
    while claims := (await rig.log.due(group, "other", ALL)).claims:
        back += claims
    assert unfinished(back) == ["a2", "a3", "a4", "a5", "a7", "a8", "a10"]
    assert [claim.attempts for claim in back] == [0, 1, 0, 1, 0, 0]
    assert later.token not in {claim.token for claim in back}


async def test_what_goes_along_is_one_write_with_what_goes_back(rig: Rig) -> None:
    queue, group = await ordered(rig)
    await push(rig.log, queue, *"abcd", partition="a")
    (run,) = await take(rig.log, group, "owner")
    now = rig.clock.now()
    parts = [run.settle(deferred=(Deferral(1, now, 1),)), run.settle(deferred=(Deferral(2, now),))]
    await rig.log.commit(settlements=parts, atomic=True, id=mint())
    with pytest.raises(Conflict):
        await rig.log.commit(settlements=[run.settle(done=bits(run, 0, 3))], atomic=True, id=mint())
    assert not (await rig.log.commit(settlements=[run.settle(done=bits(run, 0))], id=mint())).conflicts
    assert unfinished((await rig.log.due(group, "owner", ALL)).claims) == ["b", "c", "d"]


async def test_what_has_gone_back_is_not_handed_out_by_its_former_run(rig: Rig) -> None:
    queue, group = await ordered(rig)
    await push(rig.log, queue, *"abcd", partition="a")
    (run,) = await take(rig.log, group, "owner")
    await rig.log.commit(settlements=[run.settle(deferred=(Deferral(1, rig.clock.now(), 1),))], id=mint())
    assert await rig.log.mark([run.mark(handed=bits(run, 0, 2))]) == [0]
    assert await rig.log.mark([run.mark(handed=bits(run, 2))]) == [0]
    assert await rig.log.mark([run.mark(handed=bits(run, 0))]) == []


async def test_a_block_of_several_partitions_is_rejected(rig: Rig) -> None:
    queue, _ = await ordered(rig)
    mixed = Block.of([Message(b"1", "a"), Message(b"2", "b")])
    with pytest.raises(Rejected):
        await rig.log.commit([append_of(queue, "good", partition="a"), Append.of(queue, mixed)])
    assert await stored(rig.log, queue) == []


@pytest.mark.parametrize("room", [ALL, Room(150)])
async def test_many_partitions_of_one_message_are_all_delivered(rig: Rig, room: Room) -> None:
    queue, group = await ordered(rig)
    for start in range(0, 2000, 500):
        await rig.log.commit([append_of(queue, str(n), partition=f"p{n}") for n in range(start, start + 500)])
    assert sorted(map(int, await drain(rig.log, group, room=room))) == list(range(2000))
    assert (await counts(rig.log, group)).done == 2000


async def test_many_partitions_interleaved_keep_their_order(rig: Rig) -> None:
    queue, group = await ordered(rig)
    await rig.log.commit([append_of(queue, f"p{n % 7}.{n}", partition=f"p{n % 7}") for n in range(70)])
    found = await drain(rig.log, group, room=Room(3))
    for lane in range(7):
        numbers = [int(text[3:]) for text in found if text.startswith(f"p{lane}.")]
        assert numbers == [n for n in range(70) if n % 7 == lane]


async def test_a_late_group_does_not_see_older_messages(rig: Rig) -> None:
    queue, group = await ordered(rig)
    await push(rig.log, queue, "a1", partition="a")
    await push(rig.log, queue, "b1", partition="b")
    late = await rig.log.create_group(queue, "late", "latest")
    assert await take(rig.log, late) == []
    assert list((await rig.log.claim(late, "owner", ALL, partition="a")).claims) == []
    await push(rig.log, queue, "a2", partition="a")
    assert await drain(rig.log, late) == ["a2"]
    assert list((await rig.log.claim(late, "owner", ALL, partition="b")).claims) == []
    assert sorted(await drain(rig.log, group)) == ["a1", "a2", "b1"]


async def test_groups_have_their_own_partitions(rig: Rig) -> None:
    queue, one = await ordered(rig)
    other = await rig.log.create_group(queue, "other")
    await push(rig.log, queue, "a1", partition="a")
    await take(rig.log, one, "stuck")
    assert await drain(rig.log, other) == ["a1"]


async def test_concurrent_claims_do_not_share_a_partition(rig: Rig) -> None:
    queue, group = await ordered(rig)
    await rig.log.commit([append_of(queue, f"p{n % 10}.{n}", partition=f"p{n % 10}") for n in range(60)])
    claimed = await asyncio.gather(*[rig.log.claim(group, f"owner-{n}", Room(5)) for n in range(20)])
    owners: dict[str | None, set[int]] = {}
    for number, answer in enumerate(claimed):
        for claim in answer.claims:
            owners.setdefault(claim.block.partition, set()).add(number)
    assert owners
    assert all(len(numbers) == 1 for numbers in owners.values())
    for number in range(20):
        await finish_rest(rig, group, f"owner-{number}")
    await drain(rig.log, group)
    assert (await counts(rig.log, group)).done == 60


async def test_known_bodies_are_left_out_of_partitions(rig: Rig) -> None:
    queue = await rig.log.create_queue("orders", {"ordered": True})
    group = await rig.log.create_group(queue, "workers")
    appends = [append_of(queue, text, partition=text[0]) for text in ("a1", "b1", "a2", "b2", "b3")]
    answers = (await rig.log.commit(appends)).appended
    known = answers[2].first
    named = (await rig.log.claim(group, "owner", ALL, partition="a", known=known)).claims
    assert [claim.block.body for claim in named] == [appends[0].body, b""]
    two = Room(100, len(appends[1].body) + len(appends[3].body))
    rest = (await rig.log.claim(group, "owner", two, known=known)).claims
    assert [claim.block.body for claim in rest] == [appends[1].body, b""]
    assert [claim.first for claim in rest] == [answers[1].first, answers[3].first]
    assert [claim.block.partition for claim in rest] == ["b", "b"]
    taken = (await rig.log.reclaim(group, "new", ALL, of=["owner"])).claims
    assert unfinished(taken) == ["a1", "b1", "a2", "b2"]


async def test_a_mark_does_not_overtake_what_is_earlier_and_not_out(rig: Rig) -> None:
    queue, group = await ordered(rig)
    for text in ("a1", "a2", "b1"):
        await push(rig.log, queue, text, partition=text[0])
    one, two, other = await take(rig.log, group, "owner")
    assert await rig.log.mark([two.mark(handed=b"\x01"), other.mark(handed=b"\x01")]) == [0]
    assert await rig.log.mark([two.mark(handed=b"\x01"), one.mark(handed=b"\x01")]) == []
    await defer(rig.log, one, rig.clock.now() + SECOND)
    assert await rig.log.mark([two.mark(handed=b"\x01")]) == [0]


async def test_a_mark_does_not_overtake_what_the_same_call_returns(rig: Rig) -> None:
    queue, group = await ordered(rig)
    for text in ("a1", "a2"):
        await push(rig.log, queue, text, partition="a")
    one, two = await take(rig.log, group, "owner")
    assert await rig.log.mark([one.mark(handed=b"\x01")]) == []
    assert await rig.log.mark([one.mark(returned=b"\x01"), two.mark(handed=b"\x01")]) == [1]
    assert (await counts(rig.log, group)).handed == 0
    said = [two.mark(handed=b"\x01"), two.mark(returned=b"\x01"), two.mark(handed=b"\x01")]
    assert await rig.log.mark(said) == [0, 1, 2], "what is said of one claim is one mark"


async def test_an_owner_gets_its_own_back_also_behind_a_deferral(rig: Rig) -> None:
    queue, group = await ordered(rig)
    for text in ("a1", "a2"):
        await push(rig.log, queue, text, partition="a")
    one, _ = await take(rig.log, group, "owner")
    await defer(rig.log, one, rig.clock.now() + SECOND)
    assert first_texts(await rig.log.reclaim(group, "other", ALL, of=["owner"])) == []
    assert first_texts(await rig.log.reclaim(group, "owner", ALL, of=["owner"])) == [["a2"]]
