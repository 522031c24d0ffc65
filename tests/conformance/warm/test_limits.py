"""A shelf never holds more than its limits; what doesn't fit is noted, and comes later."""

from __future__ import annotations

import asyncio

import msgspec

from forebay.model import Flow
from forebay.warm.seam import EpochLost, Warm
from forebay.warm.values import Fill, Shelf
from tests.conformance.warm.rigs import ValkeyRig, WarmRig
from tests.conformance.warm.steps import (
    LANES,
    PLAIN,
    all_noted,
    counts,
    fill,
    parcel_of,
    started,
    take,
    texts,
    wanted_of,
)

A, B, C = Flow("a"), Flow("b"), Flow("c")


async def test_the_last_message_that_fits_is_taken_and_the_next_is_noted(rig: WarmRig) -> None:
    epoch = await started(rig.warm, PLAIN, parcel_of(1, 19, flow=A))
    assert await fill(rig.warm, PLAIN, epoch, parcel_of(2, 2, flow=B), parcel_of(3, 1, flow=C)) == [2]
    assert await counts(rig.warm, PLAIN) == (20, 0, 2)


async def test_the_last_byte_that_fits_is_taken_and_the_next_is_noted(rig: WarmRig) -> None:
    epoch = await started(rig.warm, PLAIN, parcel_of(1, size=1_990, flow=A))
    offered = parcel_of(2, size=11, flow=B), parcel_of(3, size=10, flow=C)
    assert await fill(rig.warm, PLAIN, epoch, *offered) == [2]
    stats = await rig.warm.stats(PLAIN)
    assert (stats.messages, stats.bytes) == (2, 2_000)


async def test_a_message_larger_than_the_shelf_is_held_alone(rig: WarmRig) -> None:
    large = parcel_of(2, size=2_001, flow=B)
    epoch = await started(rig.warm, PLAIN, parcel_of(1, flow=A))
    assert await fill(rig.warm, PLAIN, epoch, large, parcel_of(3, 2, size=2_001, flow=C)) == [2, 3]
    await rig.warm.finish(PLAIN, wanted_of(await take(rig.warm, PLAIN, epoch, 1)))
    assert await fill(rig.warm, PLAIN, epoch, large, parcel_of(4, size=1, flow=A)) == [4]
    stats = await rig.warm.stats(PLAIN)
    assert (stats.messages, stats.bytes) == (1, 2_001)
    await rig.warm.finish(PLAIN, wanted_of(await take(rig.warm, PLAIN, epoch, 1)))
    assert (await rig.warm.stats(PLAIN)).bytes == 0


async def test_what_is_out_still_takes_room_until_it_is_finished(rig: WarmRig) -> None:
    epoch = await started(rig.warm, PLAIN, parcel_of(1, 20))
    out = await take(rig.warm, PLAIN, epoch, 20)
    assert await fill(rig.warm, PLAIN, epoch, parcel_of(2)) == [2]
    await rig.warm.finish(PLAIN, wanted_of(out))
    assert await fill(rig.warm, PLAIN, epoch, parcel_of(2)) == []


async def test_the_bytes_of_a_parcel_are_freed_with_its_last_message(rig: WarmRig) -> None:
    epoch = await started(rig.warm, PLAIN, parcel_of(1, 3, size=300))
    for left, size in ((2, 300), (1, 300), (0, 0)):
        await rig.warm.finish(PLAIN, wanted_of(await take(rig.warm, PLAIN, epoch, 1)))
        stats = await rig.warm.stats(PLAIN)
        assert (stats.messages, stats.bytes) == (left, size)


async def test_what_comes_after_a_noted_parcel_of_its_flow_is_noted_too(rig: WarmRig) -> None:
    epoch = await started(rig.warm, PLAIN, parcel_of(1, 18, flow=B))
    offered = parcel_of(2, 3, flow=A), parcel_of(3, 1, flow=A), parcel_of(4, 1, flow=B)
    assert await fill(rig.warm, PLAIN, epoch, *offered) == [2, 3]


async def test_what_comes_after_a_noted_parcel_of_its_partition_is_noted_too(rig: WarmRig) -> None:
    epoch = await started(rig.warm, LANES, parcel_of(1, 18, partition="p"))
    offered = [parcel_of(2, 3, partition="q"), parcel_of(3, partition="q"), parcel_of(4, partition="p")]
    assert await fill(rig.warm, LANES, epoch, *offered) == [2, 3]


async def test_what_comes_without_a_body_is_noted(rig: WarmRig) -> None:
    epoch = await started(rig.warm, PLAIN)
    assert await fill(rig.warm, PLAIN, epoch, parcel_of(1, 3, noted=True)) == [1]
    assert await counts(rig.warm, PLAIN) == (0, 0, 3)
    assert (await rig.warm.stats(PLAIN)).bytes == 0
    assert await take(rig.warm, PLAIN, epoch, 5) == []


async def test_a_noted_parcel_that_comes_with_its_body_takes_its_place(rig: WarmRig) -> None:
    epoch = await started(rig.warm, PLAIN)
    await fill(rig.warm, PLAIN, epoch, parcel_of(1, 2, noted=True), parcel_of(2, 2))
    assert await fill(rig.warm, PLAIN, epoch, parcel_of(2, 2)) == [2]
    assert await fill(rig.warm, PLAIN, epoch, parcel_of(1, 2), parcel_of(2, 2)) == []
    assert await counts(rig.warm, PLAIN) == (4, 0, 0)
    assert texts(await take(rig.warm, PLAIN, epoch, 9)) == ["1/0", "1/1", "2/0", "2/1"]


async def test_a_noted_parcel_comes_back_as_it_was(rig: WarmRig) -> None:
    epoch = await started(rig.warm, PLAIN)
    parcel = parcel_of(1, offsets=[2, 3, 7], flow=A, partition="p", noted=True)
    await fill(rig.warm, PLAIN, epoch, parcel)
    (found,) = await all_noted(rig.warm, PLAIN, epoch)
    assert list(found.offsets) == [2, 3, 7]
    assert msgspec.structs.replace(found, offsets=[2, 3, 7]) == parcel


async def test_noted_parcels_come_oldest_first_across_flows_up_to_a_number(rig: WarmRig) -> None:
    epoch = await started(rig.warm, PLAIN)
    some = [parcel_of(claim, 2, flow=flow, noted=True) for claim, flow in enumerate([A, B, B, A, C, A], 1)]
    await fill(rig.warm, PLAIN, epoch, *some)
    for messages, claims in (
        (1, [1]), (0, [1]), (2, [1]), (3, [1]), (5, [1, 2]), (8, [1, 2, 3, 4]), (99, [1, 2, 3, 4, 5, 6]),
    ):  # fmt: skip
        found = await all_noted(rig.warm, PLAIN, epoch, messages)
        assert [parcel.claim for parcel in found] == claims
    found = await all_noted(rig.warm, PLAIN, epoch, 99, [A])
    assert [parcel.claim for parcel in found] == [2, 3, 5]
    assert await all_noted(rig.warm, PLAIN, epoch, 99, [A, B, C]) == []


async def test_many_noted_partitions_are_merged_by_id(rig: WarmRig) -> None:
    epoch = await started(rig.warm, LANES)
    some = [parcel_of(claim, partition=f"p{claim % 150}", noted=True) for claim in range(1, 301)]
    await fill(rig.warm, LANES, epoch, *some)
    found = await all_noted(rig.warm, LANES, epoch, 200)
    assert [parcel.claim for parcel in found] == list(range(1, 201))


async def test_a_fill_is_told_what_the_shelf_holds(rig: WarmRig) -> None:
    epoch = await started(rig.warm, PLAIN, parcel_of(1, 3, flow=A, size=30), parcel_of(2, 2, flow=B, size=20))
    await fill(rig.warm, PLAIN, epoch, parcel_of(3, 4, flow=B, noted=True), parcel_of(4, flow=B))
    await take(rig.warm, PLAIN, epoch, 2)
    found = await rig.warm.begin(PLAIN, epoch)
    assert found is not None
    assert (found.epoch, found.messages, found.bytes) == (epoch, 5, 50)
    assert (found.flows, found.noted) == ({A: 3, B: 2}, {B: 2})


async def test_what_is_gone_is_not_in_a_fill(rig: WarmRig) -> None:
    epoch = await started(rig.warm, PLAIN, parcel_of(1, 3, flow=A))
    await fill(rig.warm, PLAIN, epoch, parcel_of(2, flow=A, noted=True))
    await fill(rig.warm, PLAIN, epoch, parcel_of(2, flow=A))
    await rig.warm.finish(PLAIN, wanted_of(await take(rig.warm, PLAIN, epoch, 4)))
    found = await rig.warm.begin(PLAIN, epoch)
    assert found is not None
    assert (found.messages, found.bytes, found.flows, found.noted) == (0, 0, {}, {})


async def test_one_fills_at_a_time(rig: WarmRig) -> None:
    epoch = await started(rig.warm, PLAIN)
    first = await rig.warm.begin(PLAIN, epoch)
    assert first is not None
    assert await rig.warm.begin(PLAIN, epoch) is None
    await rig.warm.end(PLAIN, first)
    second = await rig.warm.begin(PLAIN, epoch)
    assert second is not None
    assert second.number != first.number


async def test_a_fill_that_is_over_brings_nothing(rig: WarmRig) -> None:
    epoch = await started(rig.warm, PLAIN)
    over = await rig.warm.begin(PLAIN, epoch)
    assert over is not None
    await rig.warm.end(PLAIN, over)
    current = await rig.warm.begin(PLAIN, epoch)
    assert current is not None
    for refused in (
        rig.warm.offer(PLAIN, over, [parcel_of(1)]),
        rig.warm.noted(PLAIN, over, 1),
        rig.warm.end(PLAIN, over),
    ):
        assert await lost(refused)
    assert await rig.warm.offer(PLAIN, current, [parcel_of(1)]) == []


async def lost(work: object) -> bool:
    """Whether the tier refuses something because an epoch or a fill is over."""
    try:
        await work  # type: ignore[misc]  # a coroutine of any result
    except EpochLost:
        return True
    return False


async def fill_alone(warm: Warm, shelf: Shelf, epoch: str, claims: range) -> int:
    """Offer parcels of 7 messages, one fill each; how many of them were taken."""
    taken = 0
    for claim in claims:
        fill: Fill | None = None
        while fill is None:
            fill = await warm.begin(shelf, epoch)
        flow = Flow(str(claim))
        taken += not await warm.offer(shelf, fill, [parcel_of(claim, 7, flow=flow, size=11)])
        await warm.end(shelf, fill)
    return taken


async def test_two_servers_that_fill_at_once_keep_the_limit(valkey_rig: ValkeyRig) -> None:
    other = await valkey_rig.another()
    shelf = msgspec.structs.replace(PLAIN, messages_max=100, bytes_max=111)
    epoch = await started(valkey_rig.warm, shelf)
    taken = await asyncio.gather(
        fill_alone(valkey_rig.warm, shelf, epoch, range(1, 21)),
        fill_alone(other, shelf, epoch, range(21, 41)),
    )
    stats = await other.stats(shelf)
    assert (sum(taken), stats.messages, stats.bytes) == (10, 70, 110)


async def test_one_fill_offered_from_many_sides_keeps_the_limit(valkey_rig: ValkeyRig) -> None:
    other = await valkey_rig.another()
    epoch = await started(valkey_rig.warm, PLAIN)
    fill = await valkey_rig.warm.begin(PLAIN, epoch)
    assert fill is not None
    offers = [
        warm.offer(PLAIN, fill, [parcel_of(claim, 3, flow=Flow(str(claim)))])
        for claim, warm in enumerate([valkey_rig.warm, other] * 15, 1)
    ]
    noted = await asyncio.gather(*offers)
    assert noted.count([]) == 6
    assert (await other.stats(PLAIN)).messages == 18
