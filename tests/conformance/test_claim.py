"""Claiming: every message once, in order, within the room that was asked for."""

import asyncio

import pytest

from forebay.log.values import Room
from forebay.model import Rejected, bitmap
from tests.conformance.rigs import Rig
from tests.conformance.steps import (
    ALL,
    append_of,
    counts,
    drain,
    finish,
    first_texts,
    push,
    take,
    take_one,
    unfinished,
)


async def test_messages_come_in_the_order_of_pushes(rig: Rig) -> None:
    queue = await rig.log.create_queue("orders")
    group = await rig.log.create_group(queue, "workers")
    for n in range(5):
        await push(rig.log, queue, f"{n}a", f"{n}b")
    claims = await take(rig.log, group)
    assert unfinished(claims) == [f"{n}{x}" for n in range(5) for x in "ab"]
    assert len({claim.token for claim in claims}) == 5


async def test_a_fresh_claim_says_what_it_is(rig: Rig) -> None:
    queue = await rig.log.create_queue("orders")
    group = await rig.log.create_group(queue, "workers")
    answer = await push(rig.log, queue, "a", "b", "c")
    appended_at = rig.clock.now()
    rig.clock.advance(seconds=5)
    claim = await take_one(rig.log, group)
    assert (claim.group, claim.first, claim.count) == (group.number, answer.first, 3)
    assert (claim.done, claim.handed) == (bitmap.empty(3), bitmap.empty(3))
    assert (claim.attempts, claim.prev_start_time) == (0, None)
    assert claim.start_time == claim.block.appended_at == appended_at


async def test_nothing_is_handed_out_twice(rig: Rig) -> None:
    queue = await rig.log.create_queue("orders")
    group = await rig.log.create_group(queue, "workers")
    await push(rig.log, queue, "a", "b")
    assert len(await take(rig.log, group)) == 1
    assert await take(rig.log, group) == []
    assert await take(rig.log, group, "other") == []


async def test_an_empty_queue_gives_nothing(rig: Rig) -> None:
    queue = await rig.log.create_queue("orders")
    group = await rig.log.create_group(queue, "workers")
    assert await take(rig.log, group) == []
    await push(rig.log, queue, "a")
    assert await drain(rig.log, group) == ["a"]
    assert await take(rig.log, group) == []


async def test_room_cuts_the_first_block_and_no_other(rig: Rig) -> None:
    queue = await rig.log.create_queue("orders")
    group = await rig.log.create_group(queue, "workers")
    await push(rig.log, queue, "a", "b", "c", "d", "e")
    await push(rig.log, queue, "f", "g")
    await push(rig.log, queue, "h", "i", "j")
    found = [first_texts(await rig.log.claim(group, "owner", Room(n))) for n in (2, 6, 2, 2)]
    assert found == [[["a", "b"]], [["c", "d", "e"], ["f", "g"]], [["h", "i"]], [["j"]]]


async def test_parts_of_a_block_are_settled_apart(rig: Rig) -> None:
    queue = await rig.log.create_queue("orders")
    group = await rig.log.create_group(queue, "workers")
    await push(rig.log, queue, *"abcde")
    (head,) = await take(rig.log, group, room=Room(2))
    (tail,) = await take(rig.log, group)
    assert tail.first == head.first + 2
    assert tail.block.first == head.block.first
    await finish(rig.log, tail)
    assert (await counts(rig.log, group)).held == 2
    await finish(rig.log, head)
    assert (await counts(rig.log, group)).done == 5


async def test_room_in_bytes_leaves_out_later_blocks(rig: Rig) -> None:
    queue = await rig.log.create_queue("orders")
    group = await rig.log.create_group(queue, "workers")
    appends = [append_of(queue, text) for text in ("a", "b", "c")]
    await rig.log.commit(appends)
    two = len(appends[0].body) + len(appends[1].body)
    assert first_texts(await rig.log.claim(group, "owner", Room(100, two))) == [["a"], ["b"]]
    assert first_texts(await rig.log.claim(group, "owner", Room(100, two))) == [["c"]]


async def test_the_first_block_fits_whatever_its_size(rig: Rig) -> None:
    queue = await rig.log.create_queue("orders")
    group = await rig.log.create_group(queue, "workers")
    await push(rig.log, queue, "a" * 1000, "b")
    await push(rig.log, queue, "c")
    assert await drain(rig.log, group, room=Room(100, 1)) == ["a" * 1000, "b", "c"]


@pytest.mark.parametrize("room", [Room(0), Room(1, 0), Room(-1)])
async def test_no_room_is_rejected(rig: Rig, room: Room) -> None:
    queue = await rig.log.create_queue("orders")
    group = await rig.log.create_group(queue, "workers")
    await push(rig.log, queue, "a")
    with pytest.raises(Rejected):
        await rig.log.claim(group, "owner", room)
    with pytest.raises(Rejected):
        await rig.log.due(group, "owner", room)
    with pytest.raises(Rejected):
        await rig.log.reclaim(group, "owner", room)
    assert (await counts(rig.log, group)).ready == 1


async def test_known_bodies_are_left_out(rig: Rig) -> None:
    queue = await rig.log.create_queue("orders")
    group = await rig.log.create_group(queue, "workers")
    answers = [await push(rig.log, queue, *texts) for texts in ("abc", "de", "f")]
    (head,) = (await rig.log.claim(group, "owner", Room(2), known=answers[1].first)).claims
    assert unfinished([head]) == ["a", "b"]
    tail, *rest = (await rig.log.claim(group, "owner", ALL, known=answers[1].first)).claims
    assert unfinished([tail]) == ["c"]
    assert [claim.block.body for claim in rest] == [b"", b""]
    assert [(claim.first, claim.count) for claim in rest] == [(a.first, a.count) for a in answers[1:]]
    stored = await rig.log.read(queue)
    assert [claim.block.id for claim in rest] == [block.id for block in stored[1:]]
    taken = (await rig.log.reclaim(group, "new", ALL, of=["owner"])).claims
    assert unfinished(taken) == list("abcdef")
    await finish(rig.log, *taken)


async def test_a_block_that_began_before_the_known_ones_comes_whole(rig: Rig) -> None:
    queue = await rig.log.create_queue("orders")
    group = await rig.log.create_group(queue, "workers")
    answer = await push(rig.log, queue, *"abc")
    (claim,) = (await rig.log.claim(group, "owner", ALL, known=answer.first + 1)).claims
    assert unfinished([claim]) == ["a", "b", "c"]


async def test_known_bodies_take_up_their_room(rig: Rig) -> None:
    queue = await rig.log.create_queue("orders")
    group = await rig.log.create_group(queue, "workers")
    appends = [append_of(queue, text) for text in ("a", "b", "c")]
    first = (await rig.log.commit(appends)).appended[0].first
    two = Room(100, len(appends[0].body) + len(appends[1].body))
    found = [len((await rig.log.claim(group, "owner", two, known=first)).claims) for _ in range(3)]
    assert found == [2, 1, 0]


async def test_two_owners_share_without_overlap(rig: Rig) -> None:
    queue = await rig.log.create_queue("orders")
    group = await rig.log.create_group(queue, "workers")
    for n in range(6):
        await push(rig.log, queue, f"{n}a", f"{n}b", f"{n}c")
    found: dict[str, list[str]] = {"one": [], "two": []}
    for owner in ("one", "two") * 5:
        found[owner] += unfinished(await take(rig.log, group, owner, Room(2)))
    assert found["one"]
    assert found["two"]
    assert (
        sorted(found["one"] + found["two"])
        == sorted(f"{n}{x}" for n in range(6) for x in "abc")[: len(found["one"] + found["two"])]
    )


async def test_concurrent_claims_do_not_overlap(rig: Rig) -> None:
    queue = await rig.log.create_queue("orders")
    group = await rig.log.create_group(queue, "workers")
    await rig.log.commit([append_of(queue, f"{n}a", f"{n}b", f"{n}c") for n in range(30)])
    claimed = await asyncio.gather(*[rig.log.claim(group, f"owner-{n}", Room(7)) for n in range(40)])
    claims = [claim for answer in claimed for claim in answer.claims]
    claims += await take(rig.log, group, room=ALL)
    assert sorted(unfinished(claims)) == sorted(f"{n}{x}" for n in range(30) for x in "abc")
    await finish(rig.log, *claims)
    assert (await counts(rig.log, group)).done == 90


async def test_claims_among_concurrent_pushes_miss_nothing(rig: Rig) -> None:
    queue = await rig.log.create_queue("orders")
    group = await rig.log.create_group(queue, "workers")
    pushes = [push(rig.log, queue, f"{n}a", f"{n}b") for n in range(40)]
    answers = await asyncio.gather(*pushes, *[take(rig.log, group, room=Room(5)) for _ in range(40)])
    claims = [claim for answer in answers if isinstance(answer, list) for claim in answer]
    claims += await take(rig.log, group)
    assert sorted(unfinished(claims)) == sorted(f"{n}{x}" for n in range(40) for x in "ab")


async def test_a_block_of_duplicates_only_is_no_work(rig: Rig) -> None:
    queue = await rig.log.create_queue("orders")
    group = await rig.log.create_group(queue, "workers")
    for text in ("a", "again"):
        await push(rig.log, queue, text, transaction_ids=["t1"])
    assert await drain(rig.log, group) == ["a"]
    assert (await counts(rig.log, group)).accepted == 1
