"""Owners: claims change hands when their owner is silent, is named, or retires."""

import asyncio

import pytest

from forebay.log.values import Owner, Room
from forebay.model import Rejected, bitmap
from tests.conformance.rigs import REMEMBER_SECONDS, Rig
from tests.conformance.steps import (
    ALL,
    SECOND,
    bits,
    counts,
    defer,
    finish,
    first_texts,
    push,
    take,
    take_one,
    unfinished,
)


async def test_only_a_silent_owner_loses_its_claims(rig: Rig) -> None:
    queue = await rig.log.create_queue("orders")
    group = await rig.log.create_group(queue, "workers")
    await push(rig.log, queue, "a", "b")
    claim = await take_one(rig.log, group, "old")
    rig.clock.advance(seconds=29)
    assert list((await rig.log.reclaim(group, "new", silent_seconds=30)).claims) == []
    await rig.log.heartbeat("old")
    rig.clock.advance(seconds=29.999)
    assert list((await rig.log.reclaim(group, "new", silent_seconds=30)).claims) == []
    rig.clock.advance(seconds=0.001)
    (taken,) = (await rig.log.reclaim(group, "new", silent_seconds=30)).claims
    assert (unfinished([taken]), taken.attempts) == (["a", "b"], 0)
    assert taken.start_time == claim.start_time
    assert list((await rig.log.commit(settlements=[claim.settle_all()])).conflicts) == [0]
    await finish(rig.log, taken)


async def test_a_reclaimed_claim_remembers_what_was_finished(rig: Rig) -> None:
    queue = await rig.log.create_queue("orders")
    group = await rig.log.create_group(queue, "workers")
    await push(rig.log, queue, *"abcdefghij")
    claim = await take_one(rig.log, group, "old")
    await rig.log.mark([claim.mark(handed=bits(claim, 1, 2))])
    await rig.log.commit(settlements=[claim.settle(done=bits(claim, 0, 9))])
    (taken,) = (await rig.log.reclaim(group, "new", of=["old"])).claims
    assert bitmap.indexes(taken.done) == [0, 9]
    assert bitmap.indexes(taken.handed) == [1, 2]
    assert taken.remaining() == 8
    assert (await counts(rig.log, group)).held == 8
    await finish(rig.log, taken)
    assert (await counts(rig.log, group)).done == 10


async def test_named_owners_lose_their_claims_at_once(rig: Rig) -> None:
    queue = await rig.log.create_queue("orders")
    group = await rig.log.create_group(queue, "workers")
    for text in ("a", "b", "c"):
        await push(rig.log, queue, text)
    for owner in ("one", "two", "three"):
        await take(rig.log, group, owner, Room(1))
    claimed = await rig.log.reclaim(group, "new", of=["one", "three", "nobody"])
    assert first_texts(claimed) == [["a"], ["c"]]
    assert list((await rig.log.reclaim(group, "new", of=["one", "three"])).claims) == []


async def test_an_owner_reclaims_from_itself_only_what_it_does_not_know(rig: Rig) -> None:
    queue = await rig.log.create_queue("orders")
    group = await rig.log.create_group(queue, "workers")
    await push(rig.log, queue, "a")
    claim = await take_one(rig.log, group, "old")
    rig.clock.advance(seconds=100)
    assert list((await rig.log.reclaim(group, "old")).claims) == []
    assert list((await rig.log.reclaim(group, "old", of=["old"], besides=[claim.token])).claims) == []
    (again,) = (await rig.log.reclaim(group, "old", of=["old"])).claims
    assert again.token != claim.token
    await finish(rig.log, again)


async def test_reclaim_leaves_other_groups_alone(rig: Rig) -> None:
    queue = await rig.log.create_queue("orders")
    one = await rig.log.create_group(queue, "one")
    other = await rig.log.create_group(queue, "other")
    await push(rig.log, queue, "a")
    await take_one(rig.log, one, "old")
    claim = await take_one(rig.log, other, "old")
    assert len((await rig.log.reclaim(one, "new", of=["old"])).claims) == 1
    await finish(rig.log, claim)


async def test_reclaim_leaves_deferrals_alone(rig: Rig) -> None:
    queue = await rig.log.create_queue("orders")
    group = await rig.log.create_group(queue, "workers")
    await push(rig.log, queue, "a")
    await defer(rig.log, await take_one(rig.log, group, "old"), rig.clock.now() + 999 * SECOND)
    rig.clock.advance(seconds=500)
    assert list((await rig.log.reclaim(group, "new", of=["old"])).claims) == []


async def test_reclaim_keeps_to_its_room_in_order(rig: Rig) -> None:
    queue = await rig.log.create_queue("orders")
    group = await rig.log.create_group(queue, "workers")
    for n in range(4):
        await push(rig.log, queue, f"{n}a", f"{n}b")
    await take(rig.log, group, "old")
    found = [first_texts(await rig.log.reclaim(group, "new", Room(n), of=["old"])) for n in (1, 5, 5)]
    assert found == [[["0a", "0b"]], [["1a", "1b"], ["2a", "2b"]], [["3a", "3b"]]]


async def test_concurrent_reclaims_do_not_overlap(rig: Rig) -> None:
    queue = await rig.log.create_queue("orders")
    group = await rig.log.create_group(queue, "workers")
    for n in range(12):
        await push(rig.log, queue, str(n))
    await take(rig.log, group, "old")
    claimed = await asyncio.gather(
        *[rig.log.reclaim(group, f"new-{n}", Room(4), of=["old"]) for n in range(6)]
    )
    claims = [claim for answer in claimed for claim in answer.claims]
    assert sorted(unfinished(claims)) == sorted(map(str, range(12)))
    await finish(rig.log, *claims)


async def test_retiring_gives_everything_back_at_once(rig: Rig) -> None:
    queue = await rig.log.create_queue("orders")
    group = await rig.log.create_group(queue, "workers")
    await push(rig.log, queue, "a", "b", "c")
    claim = await take_one(rig.log, group, "old")
    due_at = rig.clock.now() + SECOND
    await defer(rig.log, claim, due_at, attempts=2, prev=claim.start_time)
    rig.clock.set(due_at)
    (claim,) = (await rig.log.due(group, "old", ALL)).claims
    await rig.log.mark([claim.mark(handed=bits(claim, 2))])
    await rig.log.commit(settlements=[claim.settle(done=bits(claim, 0))])
    rig.clock.advance(seconds=5)
    assert await rig.log.retire("old") == 1
    assert (await counts(rig.log, group)).deferred == 2
    late = claim.settle(done=bits(claim, 1))
    assert list((await rig.log.commit(settlements=[late])).conflicts) == [0]
    (taken,) = (await rig.log.due(group, "new", ALL)).claims
    assert (taken.attempts, taken.start_time) == (2, due_at)
    assert taken.prev_start_time == claim.prev_start_time
    assert (bitmap.indexes(taken.done), bitmap.indexes(taken.handed)) == ([0], [2])
    assert list((await rig.log.commit(settlements=[late])).conflicts) == [0]
    await finish(rig.log, taken)


async def test_retiring_counts_claims_of_all_groups_and_nothing_else(rig: Rig) -> None:
    queue = await rig.log.create_queue("orders")
    one = await rig.log.create_group(queue, "one")
    other = await rig.log.create_group(queue, "other")
    await push(rig.log, queue, "a")
    await push(rig.log, queue, "b")
    await take(rig.log, one, "old")
    await take(rig.log, other, "old", Room(1))
    steady = await take_one(rig.log, other, "steady")
    assert await rig.log.retire("nobody") == 0
    assert await rig.log.retire("old") == 3
    assert await rig.log.retire("old") == 0
    assert first_texts(await rig.log.due(one, "new")) == [["a"], ["b"]]
    assert first_texts(await rig.log.due(other, "new")) == [["a"]]
    await finish(rig.log, steady)


async def test_a_retired_owner_may_come_back(rig: Rig) -> None:
    queue = await rig.log.create_queue("orders")
    group = await rig.log.create_group(queue, "workers")
    await push(rig.log, queue, "a")
    await rig.log.heartbeat("old")
    await rig.log.retire("old")
    rig.clock.advance(seconds=100)
    await rig.log.heartbeat("old")
    claim = await take_one(rig.log, group, "old")
    assert list((await rig.log.reclaim(group, "new")).claims) == []
    await finish(rig.log, claim)


async def test_owners_are_listed_by_name_with_their_last_beat(rig: Rig) -> None:
    queue = await rig.log.create_queue("orders")
    group = await rig.log.create_group(queue, "workers")
    assert await rig.log.owners() == []
    begin = rig.clock.now()
    await rig.log.claim(group, "zoe")
    rig.clock.advance(seconds=1)
    await rig.log.heartbeat("Éva")
    await rig.log.due(group, "adam")
    await rig.log.reclaim(group, "Bob")
    rig.clock.advance(seconds=1)
    await rig.log.claim(group, "zoe")
    later = begin + SECOND
    found = [(owner.name, owner.beat_at) for owner in await rig.log.owners()]
    assert found == [("Bob", later), ("adam", later), ("zoe", begin), ("Éva", later)]
    await rig.log.heartbeat("zoe")
    await rig.log.retire("adam")
    found = [(owner.name, owner.beat_at) for owner in await rig.log.owners()]
    assert found == [("Bob", later), ("zoe", rig.clock.now()), ("Éva", later)]


async def test_owners_that_hold_nothing_are_forgotten_in_time(rig: Rig) -> None:
    queue = await rig.log.create_queue("orders")
    group = await rig.log.create_group(queue, "workers")
    await push(rig.log, queue, "a")
    claim = await take_one(rig.log, group, "holder")
    await rig.log.heartbeat("idle")
    rig.clock.advance(seconds=REMEMBER_SECONDS)
    await rig.log.heartbeat("fresh")
    await rig.log.trim()
    assert [owner.name for owner in await rig.log.owners()] == ["fresh", "holder", "idle"]
    rig.clock.advance(seconds=0.000001)
    await rig.log.trim()
    assert [owner.name for owner in await rig.log.owners()] == ["fresh", "holder"]
    await finish(rig.log, claim)
    await rig.log.trim()
    assert [owner.name for owner in await rig.log.owners()] == ["fresh"]


async def test_several_owners_are_heard_of_at_once(rig: Rig) -> None:
    await rig.log.heartbeat(["b", "a", "b"])
    at = rig.clock.now()
    rig.clock.advance(seconds=5)
    await rig.log.heartbeat(["a"])
    assert await rig.log.owners() == [Owner("a", at + 5 * SECOND), Owner("b", at)]
    await rig.log.heartbeat([])
    with pytest.raises(Rejected):
        await rig.log.heartbeat([f"owner-{n}" for n in range(10_001)])
