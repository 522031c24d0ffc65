"""Retention: nothing is dropped early, everything in the end, and what is dropped unread is counted.

A log may drop in coarse pieces, so "in the end" is many days later, after two rounds.
"""

import pytest

from tests.conformance.rigs import DAY, Rig
from tests.conformance.steps import (
    ALL,
    SECOND,
    append_of,
    bits,
    check_ledger,
    counts,
    defer,
    drain,
    finish,
    push,
    sequences,
    stored,
    take,
    take_one,
)

LATER = 20 * DAY


async def trim_later(rig: Rig, seconds: float = LATER) -> None:
    """Let time pass, and trim."""
    rig.clock.advance(seconds=seconds)
    await rig.log.trim()
    await rig.log.trim()


async def test_finished_blocks_stay_as_long_as_they_are_kept(rig: Rig) -> None:
    queue = await rig.log.create_queue("orders", {"keep_seconds": DAY})
    group = await rig.log.create_group(queue, "workers")
    await push(rig.log, queue, "a", "b")
    await drain(rig.log, group)
    await trim_later(rig, DAY)
    assert await stored(rig.log, queue) == ["a", "b"]
    await trim_later(rig)
    assert await stored(rig.log, queue) == []
    stats = await counts(rig.log, group)
    assert (stats.accepted, stats.done) == (2, 2)
    assert sequences(await push(rig.log, queue, "c")) == [3]
    assert await drain(rig.log, group) == ["c"]


async def test_a_trim_says_what_it_removed(rig: Rig) -> None:
    queue = await rig.log.create_queue("orders", {"keep_seconds": DAY})
    await push(rig.log, queue, "a")
    await push(rig.log, queue, "b")
    assert (await rig.log.trim()).blocks == 0
    rig.clock.advance(seconds=LATER)
    first, second = await rig.log.trim(), await rig.log.trim()
    assert first.blocks + second.blocks == 2


async def test_a_queue_without_groups_is_trimmed(rig: Rig) -> None:
    queue = await rig.log.create_queue("orders", {"keep_seconds": DAY})
    await push(rig.log, queue, "a")
    await trim_later(rig)
    assert await stored(rig.log, queue) == []


@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize("state", ["ready", "half", "held", "deferred"])
async def test_what_a_group_needs_is_never_dropped(rig: Rig, state: str, *, ordered: bool) -> None:
    settings = {"keep_seconds": 1.0, "ordered": ordered}
    queue = await rig.log.create_queue("orders", settings)
    group = await rig.log.create_group(queue, "slow")
    quick = await rig.log.create_group(queue, "quick")
    await push(rig.log, queue, "a", "b")
    await push(rig.log, queue, "c")
    await drain(rig.log, quick)
    if state != "ready":
        claims = await take(rig.log, group)
        claim = claims[0]
        await finish(rig.log, claims[1])
        if state == "half":
            await rig.log.commit(settlements=[claim.settle(done=bits(claim, 0))])
        if state == "deferred":
            await defer(rig.log, claim, rig.clock.now() + 5 * SECOND)
    await trim_later(rig)
    assert (await stored(rig.log, queue))[:2] == ["a", "b"]
    if state == "ready":
        assert await drain(rig.log, group) == ["a", "b", "c"]
    elif state == "deferred":
        await finish(rig.log, *(await rig.log.due(group, "owner", ALL)).claims)
    else:
        await finish(rig.log, *(await rig.log.reclaim(group, "new", ALL, of=["owner"])).claims)
    assert (await counts(rig.log, group)).done == 3
    await trim_later(rig)
    assert await stored(rig.log, queue) == []


@pytest.mark.parametrize("ordered", [False, True])
async def test_what_expires_unread_is_counted(rig: Rig, *, ordered: bool) -> None:
    queue = await rig.log.create_queue("orders", {"expire_seconds": 10 * DAY, "ordered": ordered})
    group = await rig.log.create_group(queue, "workers")
    await push(rig.log, queue, "a", "b")
    await push(rig.log, queue, "c", partition="p")
    await trim_later(rig, 9 * DAY)
    assert await stored(rig.log, queue) == ["a", "b", "c"]
    await trim_later(rig)
    assert await stored(rig.log, queue) == []
    stats = await counts(rig.log, group)
    assert (stats.expired, stats.ready, stats.accepted) == (3, 0, 3)
    assert await take(rig.log, group) == []
    await push(rig.log, queue, "d", partition="p")
    assert await drain(rig.log, group) == ["d"]


async def test_a_block_that_expires_half_read_is_counted_by_half(rig: Rig) -> None:
    queue = await rig.log.create_queue("orders", {"expire_seconds": DAY})
    group = await rig.log.create_group(queue, "workers")
    await push(rig.log, queue, *"abcde")
    (claim,) = await take(rig.log, group, room=type(ALL)(2))
    await finish(rig.log, claim)
    await trim_later(rig)
    stats = await counts(rig.log, group)
    assert (stats.done, stats.expired, stats.ready) == (2, 3, 0)


async def test_what_is_held_while_it_expires_may_still_be_settled(rig: Rig) -> None:
    queue = await rig.log.create_queue("orders", {"expire_seconds": DAY})
    group = await rig.log.create_group(queue, "workers")
    await push(rig.log, queue, "a", "b")
    claim = await take_one(rig.log, group)
    await trim_later(rig)
    assert (await counts(rig.log, group)).difference == 0
    await finish(rig.log, claim)
    assert (await counts(rig.log, group)).done == 2


@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize("way", ["due", "reclaim"])
async def test_a_claim_whose_block_expired_is_counted_as_expired(
    rig: Rig, way: str, *, ordered: bool
) -> None:
    queue = await rig.log.create_queue("orders", {"expire_seconds": DAY, "ordered": ordered})
    group = await rig.log.create_group(queue, "workers")
    await push(rig.log, queue, "a", "b", "c")
    claim = await take_one(rig.log, group)
    await rig.log.commit(settlements=[claim.settle(done=bits(claim, 1))])
    if way == "due":
        await rig.log.retire("owner")
    await trim_later(rig)
    await check_ledger(rig.log)
    if way == "due":
        claimed = await rig.log.due(group, "new", ALL)
    else:
        claimed = await rig.log.reclaim(group, "new", ALL, of=["owner"])
    assert list(claimed.claims) == []
    stats = await counts(rig.log, group)
    assert (stats.done, stats.expired, stats.held, stats.deferred) == (1, 2, 0, 0)
    await push(rig.log, queue, "d")
    assert await drain(rig.log, group) == ["d"]


async def test_trimming_one_queue_leaves_the_others(rig: Rig) -> None:
    short = await rig.log.create_queue("short", {"keep_seconds": 1.0})
    long = await rig.log.create_queue("long", {"keep_seconds": 99 * DAY})
    needed = await rig.log.create_queue("needed", {"keep_seconds": 1.0})
    group = await rig.log.create_group(needed, "workers")
    await rig.log.commit([append_of(queue, "a") for queue in (short, long, needed)])
    await trim_later(rig)
    assert await stored(rig.log, long) == ["a"]
    assert await drain(rig.log, group) == ["a"]
    assert (await push(rig.log, short, "b")).count == 1
    assert "b" in await stored(rig.log, short)


async def test_deleting_the_group_that_needs_a_block_lets_it_go(rig: Rig) -> None:
    queue = await rig.log.create_queue("orders", {"keep_seconds": 1.0})
    group = await rig.log.create_group(queue, "workers")
    await push(rig.log, queue, "a")
    await take(rig.log, group)
    await rig.log.delete_group(group)
    await trim_later(rig)
    assert await stored(rig.log, queue) == []


async def test_trimming_an_empty_log_is_nothing(rig: Rig) -> None:
    assert (await rig.log.trim()).blocks == 0
