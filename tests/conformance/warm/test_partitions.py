"""Ordered shelves: a partition goes to one worker at a time, by id."""

from __future__ import annotations

import msgspec

from forebay.model import Flow
from forebay.warm.memory import MemoryWarm
from forebay.warm.seam import WITHDRAWN_SECONDS
from forebay.warm.values import Lane, Lease, Shelf
from tests.conformance.rigs import BEGIN
from tests.conformance.warm.rigs import WarmRig
from tests.conformance.warm.steps import (
    LANES,
    PLAIN,
    SECOND,
    all_noted,
    by_flow,
    counts,
    fill,
    parcel_of,
    started,
    take,
    texts,
    wanted_of,
)


async def test_a_partition_is_out_once(rig: WarmRig) -> None:
    epoch = await started(rig.warm, LANES, parcel_of(1, 3, partition="p"), parcel_of(2, partition="q"))
    out = await take(rig.warm, LANES, epoch, 2)
    assert texts(out) == ["1/0", "1/1"]
    assert texts(await take(rig.warm, LANES, epoch, 9)) == ["2/0"]
    assert await take(rig.warm, LANES, epoch, 9) == []
    await fill(rig.warm, LANES, epoch, parcel_of(3, partition="p"))
    assert await take(rig.warm, LANES, epoch, 9) == []
    await rig.warm.finish(LANES, {out[0].lease: [0]})
    assert await take(rig.warm, LANES, epoch, 9) == []
    await rig.warm.finish(LANES, {out[0].lease: [1]})
    assert texts(await take(rig.warm, LANES, epoch, 9)) == ["1/2", "3/0"]


async def test_within_a_partition_the_id_decides_and_not_the_time(rig: WarmRig) -> None:
    parcels = parcel_of(2, partition="p", at=0), parcel_of(1, partition="p", at=9)
    epoch = await started(rig.warm, LANES, *parcels)
    assert texts(await take(rig.warm, LANES, epoch, 9)) == ["1/0", "2/0"]


async def test_partitions_go_by_what_waits_longest(rig: WarmRig) -> None:
    parcels = [
        parcel_of(1, partition="p", at=5),
        parcel_of(2, partition="q", at=1),
        parcel_of(4, partition="r", at=3),
        parcel_of(3, partition="s", at=3),
    ]
    epoch = await started(rig.warm, LANES, *parcels)
    assert texts(await take(rig.warm, LANES, epoch, 9)) == ["2/0", "3/0", "4/0", "1/0"]


async def test_a_new_head_moves_its_partition(rig: WarmRig) -> None:
    epoch = await started(
        rig.warm, LANES, parcel_of(2, partition="p", at=1), parcel_of(3, partition="q", at=2)
    )
    await fill(rig.warm, LANES, epoch, parcel_of(1, partition="p", at=3))
    assert texts(await take(rig.warm, LANES, epoch, 9)) == ["3/0", "1/0", "2/0"]


async def test_a_partition_that_was_served_waits_for_its_turn(rig: WarmRig) -> None:
    some = [parcel_of(1, partition="p", at=1), parcel_of(2, partition="p", at=3)]
    epoch = await started(rig.warm, LANES, *some, parcel_of(3, partition="q", at=2))
    await rig.warm.finish(LANES, wanted_of(await take(rig.warm, LANES, epoch, 1)))
    assert texts(await take(rig.warm, LANES, epoch, 1)) == ["3/0"]
    assert texts(await take(rig.warm, LANES, epoch, 1)) == ["2/0"]


async def test_what_is_released_frees_its_partition_in_its_place(rig: WarmRig) -> None:
    epoch = await started(rig.warm, LANES, parcel_of(1, 3, partition="p"), parcel_of(2, partition="q"))
    (out,) = await take(rig.warm, LANES, epoch, 2)
    await rig.warm.release(LANES, {out.lease: [0]})
    assert texts(await take(rig.warm, LANES, epoch, 9)) == ["2/0"]
    await rig.warm.release(LANES, {out.lease: [1]})
    assert texts(await take(rig.warm, LANES, epoch, 9)) == ["1/0", "1/1", "1/2"]


async def test_an_expired_partition_stays_out_until_it_is_released(rig: WarmRig) -> None:
    epoch = await started(rig.warm, LANES, parcel_of(1, 2, partition="p"))
    await take(rig.warm, LANES, epoch, 1, seconds=5)
    rig.clock.advance(seconds=5)
    assert await take(rig.warm, LANES, epoch, 9) == []
    taken = await rig.warm.expire(LANES, epoch, 9, 60)
    assert await take(rig.warm, LANES, epoch, 9) == []
    await rig.warm.release(LANES, wanted_of(taken))
    assert texts(await take(rig.warm, LANES, epoch, 9)) == ["1/0", "1/1"]


async def test_the_empty_partition_is_a_partition(rig: WarmRig) -> None:
    epoch = await started(rig.warm, LANES, parcel_of(1, 2, partition=""), parcel_of(2, partition="p"))
    assert texts(await take(rig.warm, LANES, epoch, 1)) == ["1/0"]
    assert texts(await take(rig.warm, LANES, epoch, 9)) == ["2/0"]


async def test_flows_of_a_partition_are_counted_apart(rig: WarmRig) -> None:
    a, b = Flow("a"), Flow("b")
    parcels = parcel_of(1, 2, partition="p", flow=a, at=4), parcel_of(2, 3, partition="p", flow=b, at=2)
    epoch = await started(rig.warm, LANES, *parcels)
    await take(rig.warm, LANES, epoch, 3)
    found = by_flow((await rig.warm.stats(LANES)).flows)
    assert found == {"a": (0, 2, 0, None), "b": (2, 1, 0, BEGIN + 2 * SECOND)}


async def test_a_withdrawn_partition_is_leased_to_nobody_and_forgotten(rig: WarmRig) -> None:
    epoch = await started(rig.warm, LANES, parcel_of(1, 3, partition="p"), parcel_of(2, partition="q"))
    await fill(rig.warm, LANES, epoch, parcel_of(3, 2, partition="p", noted=True))
    (out,) = await take(rig.warm, LANES, epoch, 1)
    ready, noted = await rig.warm.withdraw(LANES, epoch, "p")
    assert (texts([ready]), ready.worker) == (["1/1", "1/2"], "")
    assert ready.deadline == BEGIN + WITHDRAWN_SECONDS * SECOND
    assert (noted.parcel.claim, noted.parcel.block, noted.offsets()) == (3, None, [0, 1])
    assert await rig.warm.held(LANES, wanted_of([ready, noted, out])) == wanted_of([ready, out])
    assert await counts(rig.warm, LANES) == (1, 3, 0)
    assert await all_noted(rig.warm, LANES, epoch) == []
    assert texts(await take(rig.warm, LANES, epoch, 9)) == ["2/0"]
    await rig.warm.finish(LANES, wanted_of([ready, out]))
    assert await counts(rig.warm, LANES) == (0, 1, 0)
    assert await fill(rig.warm, LANES, epoch, parcel_of(4, partition="p")) == []
    assert texts(await take(rig.warm, LANES, epoch, 9)) == ["4/0"]


async def test_noted_parcels_that_are_withdrawn_put_the_next_fill_in_doubt(rig: WarmRig) -> None:
    """Whoever withdrew them may never give them back, and the shelf no longer knows them."""
    epoch = await started(rig.warm, LANES, parcel_of(1, 3, partition="p"))
    await fill(rig.warm, LANES, epoch, parcel_of(2, 2, partition="p", noted=True))
    during = await rig.warm.begin(LANES, epoch)
    assert during is not None
    assert not during.doubt
    await rig.warm.withdraw(LANES, epoch, "p")
    await rig.warm.end(LANES, during)
    after = await rig.warm.begin(LANES, epoch)
    assert after is not None
    assert after.doubt
    assert await rig.warm.claims(LANES, after) == {1}


async def test_what_is_withdrawn_is_not_handed_out(rig: WarmRig) -> None:
    epoch = await started(rig.warm, LANES, parcel_of(1, 3, partition="p"))
    withdrawn = await rig.warm.withdraw(LANES, epoch, "p")
    await fill(rig.warm, LANES, epoch, parcel_of(2, partition="p"))
    assert await take(rig.warm, LANES, epoch, 9) == []
    await rig.warm.finish(LANES, wanted_of(withdrawn))
    assert texts(await take(rig.warm, LANES, epoch, 9)) == ["2/0"]


async def test_nothing_is_withdrawn_of_what_is_not_there(rig: WarmRig) -> None:
    epoch = await started(rig.warm, LANES, parcel_of(1, partition="p"))
    assert await rig.warm.withdraw(LANES, epoch, "unknown") == []
    plain = await started(rig.warm, PLAIN, parcel_of(1, partition="p"))
    assert await rig.warm.withdraw(PLAIN, plain, "p") == []
    assert await counts(rig.warm, PLAIN) == (1, 0, 0)


async def test_what_is_out_past_a_message_is_told(rig: WarmRig) -> None:
    parcels = [parcel_of(1, 3, partition="p"), parcel_of(3, offsets=[0, 2, 5], partition="p")]
    epoch = await started(rig.warm, LANES, *parcels, parcel_of(2, partition="q"))
    first, second = await rig.warm.take(LANES, epoch, 9, "worker", 30, partition="p")
    await take(rig.warm, LANES, epoch, 9)

    async def past(message_id: int, partition: str = "p") -> list[tuple[int, list[int]]]:
        found = await rig.warm.out_after(LANES, epoch, partition, message_id)
        assert all((one.worker, one.parcel.block) == ("worker", None) for one in found)
        return [(one.lease.claim, one.offsets()) for one in found]

    assert await past(first.parcel.first) == [(1, [1, 2]), (3, [0, 2, 5])]
    assert await past(second.parcel.first + 2) == [(3, [5])]
    assert await past(second.parcel.first + 5) == []
    assert await past(first.parcel.first, "q") == [(2, [0])]
    assert await past(first.parcel.first, "unknown") == []
    await rig.warm.finish(LANES, {first.lease: [2], second.lease: [2]})
    assert await past(first.parcel.first) == [(1, [1]), (3, [0, 5])]
    await rig.warm.extend(LANES, [second.lease], 60)
    rig.clock.advance(seconds=30)
    assert await past(first.parcel.first) == [(3, [0, 5])]  # the other is over
    await rig.warm.release(LANES, wanted_of([second]))
    assert await past(first.parcel.first) == []


async def test_many_partitions(rig: WarmRig) -> None:
    shelf: Shelf = msgspec.structs.replace(LANES, messages_max=5_000, bytes_max=1 << 20)
    epoch = await started(rig.warm, shelf, *(parcel_of(i, partition=f"p{i}") for i in range(1, 1_001)))
    found = []
    while out := await take(rig.warm, shelf, epoch, 300):
        found += [one.lease.claim for one in out]
        await rig.warm.finish(shelf, wanted_of(out))
    assert found == list(range(1, 1_001))


async def test_a_named_partition_is_taken_alone_unless_it_is_out(rig: WarmRig) -> None:
    parcels = [parcel_of(1, 3, partition="p"), parcel_of(2, partition=""), parcel_of(3, partition="p")]
    epoch = await started(rig.warm, LANES, *parcels)
    (first,) = await rig.warm.take(LANES, epoch, 2, "worker", 30, partition="p")
    assert texts([first]) == ["1/0", "1/1"]
    assert await rig.warm.take(LANES, epoch, 9, "worker", 30, partition="p") == []
    assert await rig.warm.take(LANES, epoch, 9, "worker", 30, partition="none") == []
    assert texts(await rig.warm.take(LANES, epoch, 9, "worker", 30, partition="")) == ["2/0"]
    await rig.warm.finish(LANES, wanted_of([first]))
    assert texts(await rig.warm.take(LANES, epoch, 9, "worker", 30, partition="p")) == ["1/2", "3/0"]


async def test_who_has_a_partition_can_take_what_comes_after(rig: WarmRig) -> None:
    parcels = parcel_of(1, 3, partition="p"), parcel_of(2, 2, partition="q")
    epoch = await started(rig.warm, LANES, *parcels)
    (first,) = await rig.warm.take(LANES, epoch, 2, "worker", 30, partition="p")
    (other,) = await rig.warm.take(LANES, epoch, 1, "worker", 30, partition="q")
    await fill(rig.warm, LANES, epoch, parcel_of(3, partition="p"))

    async def behind(lease: Lease) -> list[str]:
        return texts(await rig.warm.take(LANES, epoch, 9, "worker", 30, partition="p", behind=lease))

    assert await behind(other.lease) == []
    assert await behind(msgspec.structs.replace(first.lease, epoch="another")) == []
    assert await behind(first.lease) == ["1/2", "3/0"]
    await rig.warm.finish(LANES, wanted_of([first]))
    assert await behind(first.lease) == []


async def test_few_partitions_are_taken_where_few_are_asked_for(rig: WarmRig) -> None:
    parcels = [parcel_of(n, 2, partition=f"p{n}") for n in range(1, 5)]
    epoch = await started(rig.warm, LANES, *parcels)
    assert texts(await rig.warm.take(LANES, epoch, 9, "worker", 30, partitions_max=2)) == [
        "1/0", "1/1", "2/0", "2/1",
    ]  # fmt: skip
    assert texts(await rig.warm.take(LANES, epoch, 1, "worker", 30, partitions_max=2)) == ["3/0"]


async def test_room_is_made_by_partitions_that_would_come_last(rig: WarmRig) -> None:
    parcels = [parcel_of(n, 2, partition=f"p{n}", at=n) for n in range(1, 6)]
    epoch = await started(rig.warm, LANES, *parcels)
    (out,) = await rig.warm.take(LANES, epoch, 1, "worker", 30, partition="p4")
    begun = await rig.warm.begin(LANES, epoch)
    assert begun is not None
    assert await rig.warm.spare(LANES, begun, 0, -1, besides="") == []
    spared = await rig.warm.spare(LANES, begun, 3, 0, besides="p5")
    assert [(one.lease.partition, one.offsets(), one.worker) for one in spared] == [
        ("p3", [0, 1], ""), ("p2", [0, 1], ""),
    ]  # fmt: skip
    assert all(one.parcel.block is None for one in spared)
    assert [await rig.warm.lane(LANES, begun, f"p{n}") for n in (1, 2, 4)] == [
        Lane(2, 0, 0), Lane(0, 2, 0), Lane(1, 1, 0),
    ]  # fmt: skip
    await rig.warm.finish(LANES, wanted_of(spared))
    assert await counts(rig.warm, LANES) == (5, 1, 0)
    assert [one.lease.partition for one in await rig.warm.spare(LANES, begun, 0, 11, besides="")] == [
        "p5", "p1",
    ]  # fmt: skip
    assert await rig.warm.spare(LANES, begun, 9, 9, besides="") == []
    await rig.warm.end(LANES, begun)
    await rig.warm.finish(LANES, wanted_of([out]))
    assert texts(await take(rig.warm, LANES, epoch, 9)) == ["4/1"]


async def test_a_partition_that_makes_room_takes_along_what_is_noted_of_it(rig: WarmRig) -> None:
    epoch = await started(rig.warm, LANES, parcel_of(1, partition="p"))
    assert await fill(rig.warm, LANES, epoch, parcel_of(2, partition="p", noted=True)) == [2]
    begun = await rig.warm.begin(LANES, epoch)
    assert begun is not None
    assert await rig.warm.lane(LANES, begun, "p") == Lane(1, 0, 1)
    found = await rig.warm.noted(LANES, begun, 9, partition="p")
    assert [one.claim for one in found] == [2]
    assert await rig.warm.noted(LANES, begun, 9, partition="q") == []
    spared = await rig.warm.spare(LANES, begun, 1, 0, besides="q")
    assert [one.parcel.claim for one in spared] == [1, 2]
    await rig.warm.end(LANES, begun)
    again = await rig.warm.begin(LANES, epoch)
    assert again is not None
    assert again.doubt
    assert again.noted == {}


async def test_taking_by_name_leaves_no_trace_behind(rig: WarmRig) -> None:
    epoch = await started(rig.warm, LANES)
    for n in range(1, 3_000):
        await fill(rig.warm, LANES, epoch, parcel_of(n, partition=f"p{n % 7}"))
        (one,) = await rig.warm.take(LANES, epoch, 9, "worker", 30, partition=f"p{n % 7}")
        await rig.warm.finish(LANES, wanted_of([one]))
    assert await counts(rig.warm, LANES) == (0, 0, 0)
    if isinstance(rig.warm, MemoryWarm):
        contents = rig.warm._shelves[LANES.group]
        assert len(contents._free._oldest) + len(contents._free._newest) < 1_100
