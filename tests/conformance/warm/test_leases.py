"""Leases: who holds what, until when, and where it goes."""

from __future__ import annotations

import asyncio

from forebay.model import NO_FLOW, Flow
from tests.conformance.rigs import BEGIN
from tests.conformance.warm.rigs import ValkeyRig, WarmRig
from tests.conformance.warm.steps import (
    FIRST,
    LANES,
    PLAIN,
    SECOND,
    counts,
    fill,
    parcel_of,
    started,
    take,
    texts,
    wanted_of,
)

A, B, C = Flow("a"), Flow("b"), Flow("c")


async def test_a_lease_says_all_that_the_log_must_be_told(rig: WarmRig) -> None:
    parcel = parcel_of(5, 3, flow=A, partition="p")
    epoch = await started(rig.warm, PLAIN, parcel)
    (one,) = await rig.warm.take(PLAIN, epoch, 2, "some worker", 1.5)
    lease = one.lease
    assert (lease.group, lease.epoch, lease.claim, lease.first) == (7, epoch, 5, FIRST + 500)
    assert (lease.count, lease.attempts, lease.start_time) == (3, 2, BEGIN)
    assert (lease.prev_start_time, lease.partition) == (parcel.prev_start_time, "p")
    assert (one.worker, one.since, one.deadline) == ("some worker", BEGIN, BEGIN + 1_500_000)
    assert (list(one.places), one.offsets(), one.parcel) == ([0, 1], [0, 1], parcel)


async def test_the_oldest_goes_first_by_start_time_and_then_by_id(rig: WarmRig) -> None:
    parcels = parcel_of(1, at=3), parcel_of(2, at=1), parcel_of(4, at=2), parcel_of(3, at=2)
    epoch = await started(rig.warm, PLAIN, *parcels)
    assert texts(await take(rig.warm, PLAIN, epoch, 9)) == ["2/0", "3/0", "4/0", "1/0"]


async def test_ids_on_both_sides_of_a_power_of_ten_go_in_order(rig: WarmRig) -> None:
    ids = [10**18 - 1, 10**18, 9 * 10**17 + 10**9 - 1, 9 * 10**17 + 10**9, 7, 2**62 + 1, 2**62]
    parcels = [parcel_of(claim, first=first) for claim, first in enumerate(ids, 1)]
    epoch = await started(rig.warm, PLAIN, *parcels)
    claims = [one.lease.claim for one in await take(rig.warm, PLAIN, epoch, 9)]
    assert claims == [5, 3, 4, 1, 2, 7, 6]


async def test_the_rest_of_a_parcel_keeps_its_place(rig: WarmRig) -> None:
    # The ids of the parcel cross a power of ten, which moves a digit from one number to another.
    first = 3 * 10**15 - 2
    epoch = await started(rig.warm, PLAIN, parcel_of(1, 4, first=first), parcel_of(2, first=first + 4))
    assert texts(await take(rig.warm, PLAIN, epoch, 1)) == ["1/0"]
    assert texts(await take(rig.warm, PLAIN, epoch, 2)) == ["1/1", "1/2"]
    assert texts(await take(rig.warm, PLAIN, epoch, 9)) == ["1/3", "2/0"]
    assert await take(rig.warm, PLAIN, epoch, 9) == []


async def test_the_rest_of_a_parcel_with_holes_goes_by_its_own_id(rig: WarmRig) -> None:
    first = 3 * 10**15 - 2
    parcels = parcel_of(1, offsets=[0, 10], first=first), parcel_of(2, first=first + 5)
    epoch = await started(rig.warm, PLAIN, *parcels)
    assert texts(await take(rig.warm, PLAIN, epoch, 1)) == ["1/0"]
    assert texts(await take(rig.warm, PLAIN, epoch, 9)) == ["2/0", "1/10"]


async def test_a_take_leases_each_run_by_itself(rig: WarmRig) -> None:
    epoch = await started(rig.warm, PLAIN, parcel_of(1, 2), parcel_of(2, 3))
    leased = await take(rig.warm, PLAIN, epoch, 4)
    assert [one.offsets() for one in leased] == [[0, 1], [0, 1]]
    assert len({one.lease.number for one in leased}) == 2


async def test_what_is_released_is_back_in_its_place(rig: WarmRig) -> None:
    epoch = await started(rig.warm, PLAIN, parcel_of(1, 5), parcel_of(2))
    (one,) = await take(rig.warm, PLAIN, epoch, 5)
    await rig.warm.release(PLAIN, {one.lease: [4, 1, 2]})
    assert await counts(rig.warm, PLAIN) == (4, 2, 0)
    assert await rig.warm.held(PLAIN, {one.lease: range(5)}) == {one.lease: [0, 3]}
    again = await take(rig.warm, PLAIN, epoch, 9)
    assert texts(again) == ["1/1", "1/2", "1/4", "2/0"]
    assert [one.offsets() for one in again] == [[1, 2], [4], [0]]


async def test_a_part_can_be_finished(rig: WarmRig) -> None:
    epoch = await started(rig.warm, PLAIN, parcel_of(1, 5))
    (one,) = await take(rig.warm, PLAIN, epoch, 4)
    await rig.warm.finish(PLAIN, {one.lease: [1, 3, 4, 99]})
    assert await counts(rig.warm, PLAIN) == (1, 2, 0)
    assert await rig.warm.held(PLAIN, {one.lease: [3, 2, 1, 0]}) == {one.lease: [2, 0]}
    await rig.warm.finish(PLAIN, {one.lease: [0, 2]})
    assert await counts(rig.warm, PLAIN) == (1, 0, 0)
    assert await rig.warm.held(PLAIN, {one.lease: [0, 2]}) == {}
    assert await rig.warm.running(PLAIN) == []


async def test_what_is_finished_twice_or_not_held_is_ignored(rig: WarmRig) -> None:
    epoch = await started(rig.warm, PLAIN, parcel_of(1, 4))
    out = wanted_of(await take(rig.warm, PLAIN, epoch, 2))
    await rig.warm.finish(PLAIN, out)
    await rig.warm.finish(PLAIN, out)
    await rig.warm.release(PLAIN, out)
    assert await counts(rig.warm, PLAIN) == (2, 0, 0)
    (lease,) = out
    await rig.warm.finish(PLAIN, {lease: []})
    assert await rig.warm.held(PLAIN, {}) == {}


async def test_a_parcel_with_holes_is_known_by_its_offsets(rig: WarmRig) -> None:
    epoch = await started(rig.warm, PLAIN, parcel_of(1, offsets=[2, 3, 7, 8, 15]))
    (one,) = await take(rig.warm, PLAIN, epoch, 4)
    assert (list(one.places), one.offsets()) == ([0, 1, 2, 3], [2, 3, 7, 8])
    assert texts([one]) == ["1/2", "1/3", "1/7", "1/8"]
    assert await rig.warm.held(PLAIN, {one.lease: range(20)}) == {one.lease: [2, 3, 7, 8]}
    assert await rig.warm.held(PLAIN, {one.lease: [4, 8, 15, 2]}) == {one.lease: [8, 2]}
    await rig.warm.finish(PLAIN, {one.lease: [0, 1, 2, 4, 5, 6, 7]})
    assert await rig.warm.held(PLAIN, {one.lease: range(20)}) == {one.lease: [3, 8]}
    await rig.warm.release(PLAIN, {one.lease: range(4, 20)})
    assert texts(await take(rig.warm, PLAIN, epoch, 9)) == ["1/8", "1/15"]


async def test_what_is_released_across_holes_is_one_run(rig: WarmRig) -> None:
    epoch = await started(rig.warm, PLAIN, parcel_of(1, offsets=[0, 4, 5, 9]))
    await rig.warm.release(PLAIN, wanted_of(await take(rig.warm, PLAIN, epoch, 4)))
    (one,) = await take(rig.warm, PLAIN, epoch, 4)
    assert one.offsets() == [0, 4, 5, 9]


async def test_an_expired_lease_holds_nothing(rig: WarmRig) -> None:
    epoch = await started(rig.warm, PLAIN, parcel_of(1, 2))
    out = wanted_of(await take(rig.warm, PLAIN, epoch, 2, seconds=10))
    rig.clock.set(BEGIN + 10 * SECOND - 1)
    assert await rig.warm.held(PLAIN, out) == out
    rig.clock.set(BEGIN + 10 * SECOND)
    assert await rig.warm.held(PLAIN, out) == {}
    assert await rig.warm.extend(PLAIN, list(out), 10) == list(out)
    assert await counts(rig.warm, PLAIN) == (0, 2, 0)


async def test_what_was_settled_in_time_can_be_finished_late(rig: WarmRig) -> None:
    epoch = await started(rig.warm, PLAIN, parcel_of(1, 2))
    out = wanted_of(await take(rig.warm, PLAIN, epoch, 2, seconds=10))
    rig.clock.advance(seconds=10)
    await rig.warm.finish(PLAIN, out)
    assert await counts(rig.warm, PLAIN) == (0, 0, 0)
    assert await rig.warm.expire(PLAIN, epoch, 9, 10) == []


async def test_expired_leases_are_taken_over_under_new_ones(rig: WarmRig) -> None:
    epoch = await started(rig.warm, PLAIN, parcel_of(1, 3), parcel_of(2, 2))
    (first,) = await rig.warm.take(PLAIN, epoch, 3, "first", 10)
    (second,) = await rig.warm.take(PLAIN, epoch, 2, "second", 20)
    await rig.warm.finish(PLAIN, {first.lease: [1]})
    assert await rig.warm.expire(PLAIN, epoch, 9, 5) == []
    rig.clock.advance(seconds=10)
    (taken,) = await rig.warm.expire(PLAIN, epoch, 9, 5)
    assert (taken.worker, taken.offsets(), texts([taken])) == ("first", [0, 2], ["1/0", "1/2"])
    assert (taken.since, taken.deadline) == (BEGIN + 10 * SECOND, BEGIN + 15 * SECOND)
    assert taken.lease.number not in {first.lease.number, second.lease.number}
    await rig.warm.finish(PLAIN, wanted_of([first]))
    assert await rig.warm.held(PLAIN, wanted_of([first, taken, second])) == wanted_of([taken, second])
    assert await rig.warm.expire(PLAIN, epoch, 9, 5) == []


async def test_as_many_leases_expire_as_are_asked_for(rig: WarmRig) -> None:
    epoch = await started(rig.warm, PLAIN, *(parcel_of(claim, 2) for claim in range(1, 6)))
    await take(rig.warm, PLAIN, epoch, 10, seconds=10)
    rig.clock.advance(seconds=11)
    assert [one.lease.claim for one in await rig.warm.expire(PLAIN, epoch, 3, 5)] == [1, 2]
    assert [one.lease.claim for one in await rig.warm.expire(PLAIN, epoch, 99, 5)] == [3, 4, 5]


async def test_an_extended_lease_lasts_from_now_on(rig: WarmRig) -> None:
    epoch = await started(rig.warm, PLAIN, parcel_of(1), parcel_of(2))
    first, second = await take(rig.warm, PLAIN, epoch, 2, seconds=10)
    rig.clock.advance(seconds=5)
    assert await rig.warm.extend(PLAIN, [first.lease], 10) == []
    rig.clock.advance(seconds=5)
    assert await rig.warm.held(PLAIN, wanted_of([first, second])) == wanted_of([first])
    assert [one.lease.claim for one in await rig.warm.expire(PLAIN, epoch, 9, 5)] == [2]
    assert await rig.warm.extend(PLAIN, [second.lease, first.lease], 1) == [second.lease]
    rig.clock.advance(seconds=1)
    assert [one.lease.claim for one in await rig.warm.expire(PLAIN, epoch, 9, 5)] == [1]
    assert await rig.warm.extend(PLAIN, [], 1) == []


async def test_the_next_expiry_is_that_of_the_first_lease_still_out(rig: WarmRig) -> None:
    assert await rig.warm.next_expiry(PLAIN) is None
    epoch = await started(rig.warm, PLAIN, parcel_of(1), parcel_of(2))
    assert await rig.warm.next_expiry(PLAIN) is None
    first = await take(rig.warm, PLAIN, epoch, 1, seconds=10)
    second = await take(rig.warm, PLAIN, epoch, 1, seconds=20)
    assert await rig.warm.next_expiry(PLAIN) == BEGIN + 10 * SECOND
    await rig.warm.extend(PLAIN, [first[0].lease], 30)
    assert await rig.warm.next_expiry(PLAIN) == BEGIN + 20 * SECOND
    await rig.warm.finish(PLAIN, wanted_of(second))
    assert await rig.warm.next_expiry(PLAIN) == BEGIN + 30 * SECOND
    await rig.warm.release(PLAIN, wanted_of(first))
    assert await rig.warm.next_expiry(PLAIN) is None


async def test_the_flow_with_the_fewest_out_comes_first(rig: WarmRig) -> None:
    epoch = await started(rig.warm, PLAIN, parcel_of(1, 8, flow=A))
    assert len(texts(await take(rig.warm, PLAIN, epoch, 3))) == 3
    await fill(rig.warm, PLAIN, epoch, parcel_of(2, 8, flow=B), parcel_of(3, 1, flow=C))
    assert texts(await take(rig.warm, PLAIN, epoch, 3)) == ["2/0", "2/1", "3/0"]
    assert texts(await take(rig.warm, PLAIN, epoch, 4)) == ["1/3", "1/4", "2/2", "2/3"]
    assert texts(await take(rig.warm, PLAIN, epoch, 2)) == ["1/5", "2/4"]


async def test_what_comes_back_counts_no_longer_as_out(rig: WarmRig) -> None:
    epoch = await started(rig.warm, PLAIN, parcel_of(1, 8, flow=A))
    (out,) = await take(rig.warm, PLAIN, epoch, 4)
    await fill(rig.warm, PLAIN, epoch, parcel_of(2, 8, flow=B))
    await rig.warm.release(PLAIN, {out.lease: [0, 1]})
    await rig.warm.finish(PLAIN, {out.lease: [2, 3]})
    assert texts(await take(rig.warm, PLAIN, epoch, 4)) == ["1/0", "1/1", "2/0", "2/1"]


async def test_stats_count_by_flow(rig: WarmRig) -> None:
    assert (await rig.warm.stats(PLAIN)).flows in ((), [])
    epoch = await started(rig.warm, PLAIN, parcel_of(1, 4, flow=B, at=5), parcel_of(2, 2, flow=A, at=3))
    await fill(rig.warm, PLAIN, epoch, parcel_of(3, 5, flow=A, at=1, noted=True))
    await take(rig.warm, PLAIN, epoch, 3)
    stats = await rig.warm.stats(PLAIN)
    assert (stats.at, stats.messages, stats.bytes) == (BEGIN, 6, 20)
    found = [(f.flow, f.ready, f.leased, f.noted, f.oldest_at) for f in stats.flows]
    assert found == [(A, 1, 1, 5, BEGIN + SECOND), (B, 2, 2, 0, BEGIN + 5 * SECOND)]


async def test_nothing_waits_where_all_is_out(rig: WarmRig) -> None:
    epoch = await started(rig.warm, PLAIN, parcel_of(1, 2))
    await take(rig.warm, PLAIN, epoch, 2)
    (flow,) = (await rig.warm.stats(PLAIN)).flows
    assert (flow.flow, flow.ready, flow.leased, flow.oldest_at) == (NO_FLOW, 0, 2, None)


async def test_what_runs_is_listed_longest_first_without_bodies(rig: WarmRig) -> None:
    epoch = await started(rig.warm, PLAIN, parcel_of(1, 4), parcel_of(2), parcel_of(3))
    out = await rig.warm.take(PLAIN, epoch, 4, "first", 10)
    rig.clock.advance(seconds=1)
    out += await rig.warm.take(PLAIN, epoch, 2, "second", 3)
    await rig.warm.finish(PLAIN, {out[0].lease: [1]})
    await rig.warm.extend(PLAIN, [out[1].lease], 60)
    running = await rig.warm.running(PLAIN)
    assert [one.lease for one in running] == [one.lease for one in out]
    assert [(one.worker, one.since) for one in running] == [
        ("first", BEGIN), ("second", BEGIN + SECOND), ("second", BEGIN + SECOND),
    ]  # fmt: skip
    assert [one.deadline for one in running] == [BEGIN + s * SECOND for s in (10, 61, 4)]
    assert (running[0].offsets(), [one.parcel.block for one in running]) == ([0, 2, 3], [None] * 3)
    assert [one.lease for one in await rig.warm.running(PLAIN, 2)] == [one.lease for one in out[:2]]


async def test_shelves_do_not_know_of_each_other(rig: WarmRig) -> None:
    first = await started(rig.warm, PLAIN, parcel_of(1, 2))
    await started(rig.warm, LANES, parcel_of(1, 3, partition="p"))
    out = wanted_of(await take(rig.warm, PLAIN, first, 2))
    await rig.warm.renew(LANES, await rig.warm.epoch(LANES))
    assert await counts(rig.warm, LANES) == (0, 0, 0)
    assert await rig.warm.held(PLAIN, out) == out


async def test_no_message_is_handed_to_two_servers(valkey_rig: ValkeyRig) -> None:
    other = await valkey_rig.another()
    epoch = await started(valkey_rig.warm, PLAIN, parcel_of(1, 9), parcel_of(2, 11, flow=A))
    takes = [take(warm, PLAIN, epoch, 3) for warm in [valkey_rig.warm, other] * 5]
    found = [text for leased in await asyncio.gather(*takes) for text in texts(leased)]
    assert len(found) == len(set(found)) == 20
