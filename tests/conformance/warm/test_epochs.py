"""Epochs: loss is noticed, and nothing of an old epoch counts in a new one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

import pytest

from forebay.warm.seam import EpochLost, Warm
from forebay.warm.values import Fill
from tests.conformance.warm.rigs import FILL_SECONDS, ValkeyRig, WarmRig
from tests.conformance.warm.steps import (
    LANES,
    PLAIN,
    counts,
    parcel_of,
    started,
    take,
    texts,
    wanted_of,
)
from tests.conformance.warm.steps import (
    fill as fill_shelf,
)


async def test_there_is_no_epoch_before_the_first(rig: WarmRig) -> None:
    assert await rig.warm.epoch(PLAIN) is None
    epoch = await rig.warm.renew(PLAIN, None)
    assert await rig.warm.epoch(PLAIN) == epoch


async def test_renewing_what_somebody_else_has_renewed_changes_nothing(rig: WarmRig) -> None:
    epoch = await started(rig.warm, PLAIN, parcel_of(1))
    assert await rig.warm.renew(PLAIN, None) == epoch
    assert await rig.warm.renew(PLAIN, "another") == epoch
    assert await counts(rig.warm, PLAIN) == (1, 0, 0)


async def test_a_new_epoch_begins_empty(rig: WarmRig) -> None:
    for shelf in (PLAIN, LANES):
        epoch = await started(rig.warm, shelf, parcel_of(1, 3, partition="p"))
        await fill_shelf(rig.warm, shelf, epoch, parcel_of(2, partition="p", noted=True))
        await take(rig.warm, shelf, epoch, 1)
        await rig.warm.begin(shelf, epoch)
        renewed = await rig.warm.renew(shelf, epoch)
        assert renewed != epoch
        assert await counts(rig.warm, shelf) == (0, 0, 0)
        assert await rig.warm.running(shelf) == []
        assert await rig.warm.next_expiry(shelf) is None
        assert await take(rig.warm, shelf, renewed, 9) == []
        empty = await rig.warm.begin(shelf, renewed)
        assert empty is not None
        assert (empty.messages, empty.bytes, empty.flows, empty.noted) == (0, 0, {}, {})
        assert await rig.warm.offer(shelf, empty, [parcel_of(3, partition="p")]) == []
        assert texts(await take(rig.warm, shelf, renewed, 9)) == ["3/0"]


def refused(warm: Warm, epoch: str, fill: Fill) -> list[Awaitable[object]]:
    """All verbs that rely on an epoch."""
    return [
        warm.begin(PLAIN, epoch),
        warm.offer(PLAIN, fill, [parcel_of(9)]),
        warm.noted(PLAIN, fill, 1),
        warm.end(PLAIN, fill),
        warm.take(PLAIN, epoch, 1, "worker", 1),
        warm.expire(PLAIN, epoch, 1, 1),
        warm.withdraw(PLAIN, epoch, "p"),
    ]


@pytest.mark.parametrize("how", ["renewed", "lost"])
async def test_whoever_relies_on_an_old_epoch_is_told(rig: WarmRig, how: str) -> None:
    epoch = await started(rig.warm, PLAIN, parcel_of(1, 2))
    out = wanted_of(await take(rig.warm, PLAIN, epoch, 2))
    old = await rig.warm.begin(PLAIN, epoch)
    assert old is not None
    if how == "renewed":
        await rig.warm.renew(PLAIN, epoch)
        fresh = await rig.warm.epoch(PLAIN)
        await fill_shelf(rig.warm, PLAIN, str(fresh), parcel_of(1, 2))
        await take(rig.warm, PLAIN, str(fresh), 2)
    else:
        await rig.lose()
        assert await rig.warm.epoch(PLAIN) is None
    for work in refused(rig.warm, epoch, old):
        with pytest.raises(EpochLost):
            await work
    assert await rig.warm.held(PLAIN, out) == {}
    assert await rig.warm.extend(PLAIN, list(out), 9) == list(out)
    await rig.warm.finish(PLAIN, out)
    await rig.warm.release(PLAIN, out)
    assert await counts(rig.warm, PLAIN) == ((0, 2, 0) if how == "renewed" else (0, 0, 0))


async def test_after_a_loss_there_is_nothing_to_count(rig: WarmRig) -> None:
    epoch = await started(rig.warm, PLAIN, parcel_of(1, 2))
    await take(rig.warm, PLAIN, epoch, 1)
    await rig.lose()
    stats = await rig.warm.stats(PLAIN)
    assert (stats.messages, stats.bytes, list(stats.flows)) == (0, 0, [])
    assert await rig.warm.running(PLAIN) == []
    assert await rig.warm.next_expiry(PLAIN) is None


async def test_a_loss_is_renewed_once(rig: WarmRig) -> None:
    epoch = await started(rig.warm, PLAIN, parcel_of(1))
    await rig.lose()
    other = await rig.another()
    first, second = await asyncio.gather(rig.warm.renew(PLAIN, epoch), other.renew(PLAIN, epoch))
    assert first == second != epoch


async def test_a_fill_that_is_never_ended_leaves_a_doubt_to_the_next(valkey_rig: ValkeyRig) -> None:
    warm = valkey_rig.warm
    epoch = await started(warm, PLAIN, parcel_of(1))
    late = await warm.begin(PLAIN, epoch)
    assert late is not None
    assert not late.doubt
    valkey_rig.clock.advance(seconds=FILL_SECONDS - 1)
    assert await warm.begin(PLAIN, epoch) is None
    valkey_rig.clock.advance(seconds=1)
    fill = await warm.begin(PLAIN, epoch)
    assert fill is not None
    assert fill.doubt
    for refused in (
        warm.offer(PLAIN, late, [parcel_of(2)]), warm.noted(PLAIN, late, 1), warm.claims(PLAIN, late),
        warm.end(PLAIN, late),
    ):  # fmt: skip
        with pytest.raises(EpochLost):
            await refused
    await warm.end(PLAIN, fill)
    assert await counts(warm, PLAIN) == (1, 0, 0)


async def test_whoever_fills_too_long_may_end_it_while_nobody_else_has_begun(valkey_rig: ValkeyRig) -> None:
    warm = valkey_rig.warm
    epoch = await started(warm, PLAIN, parcel_of(1))
    late = await warm.begin(PLAIN, epoch)
    assert late is not None
    valkey_rig.clock.advance(seconds=FILL_SECONDS)
    await warm.offer(PLAIN, late, [parcel_of(2)])
    await warm.end(PLAIN, late)
    fill = await warm.begin(PLAIN, epoch)
    assert fill is not None
    assert not fill.doubt


async def test_a_fill_that_ends_in_doubt_leaves_it_to_the_next_alone(rig: WarmRig) -> None:
    epoch = await started(rig.warm, PLAIN, parcel_of(1))
    fill = await rig.warm.begin(PLAIN, epoch)
    assert fill is not None
    await rig.warm.end(PLAIN, fill, doubt=True)
    fill = await rig.warm.begin(PLAIN, epoch)
    assert fill is not None
    assert fill.doubt
    await rig.warm.end(PLAIN, fill)
    fill = await rig.warm.begin(PLAIN, epoch)
    assert fill is not None
    assert not fill.doubt


async def test_the_claims_of_a_shelf_are_all_that_it_has_messages_of(rig: WarmRig) -> None:
    epoch = await started(rig.warm, PLAIN, parcel_of(1, 3), parcel_of(2))
    await fill_shelf(rig.warm, PLAIN, epoch, parcel_of(3, noted=True))
    leased = await take(rig.warm, PLAIN, epoch, 3)
    fill = await rig.warm.begin(PLAIN, epoch)
    assert fill is not None
    assert await rig.warm.claims(PLAIN, fill) == {1, 2, 3}
    await rig.warm.finish(PLAIN, {one.lease: one.offsets() for one in leased})
    assert await rig.warm.claims(PLAIN, fill) == {2, 3}


async def test_an_empty_shelf_leaves_nothing_behind(valkey_rig: ValkeyRig) -> None:
    for shelf in (PLAIN, LANES):
        epoch = await started(
            valkey_rig.warm, shelf, parcel_of(1, 3, partition="p"), parcel_of(2, partition="q")
        )
        await fill_shelf(valkey_rig.warm, shelf, epoch, parcel_of(3, partition="p", noted=True))
        await fill_shelf(valkey_rig.warm, shelf, epoch, parcel_of(3, partition="p"))
        while out := await take(valkey_rig.warm, shelf, epoch, 2):
            await valkey_rig.warm.finish(shelf, wanted_of(out))
    assert [key.rpartition("}")[2] for key in await valkey_rig.keys()] == ["", ""]


async def test_all_keys_of_a_shelf_are_in_one_slot(valkey_rig: ValkeyRig) -> None:
    for shelf in (PLAIN, LANES):
        epoch = await started(valkey_rig.warm, shelf, parcel_of(1, 3, partition="p"))
        await fill_shelf(valkey_rig.warm, shelf, epoch, parcel_of(2, partition="p", noted=True))
        await take(valkey_rig.warm, shelf, epoch, 1)
    tags = {key[key.index("{") : key.index("}") + 1] for key in await valkey_rig.keys()}
    assert tags == {"{orders/billing#7}", "{lanes/billing#8}"}


async def test_a_new_epoch_removes_every_key_of_the_old(valkey_rig: ValkeyRig) -> None:
    for shelf in (PLAIN, LANES):
        epoch = await started(
            valkey_rig.warm, shelf, parcel_of(1, 3, partition="p"), parcel_of(2, partition="q")
        )
        await fill_shelf(valkey_rig.warm, shelf, epoch, parcel_of(3, partition="p", noted=True))
        await take(valkey_rig.warm, shelf, epoch, 1)
        await valkey_rig.warm.renew(shelf, epoch)
    assert [key.rpartition("}")[2] for key in await valkey_rig.keys()] == ["", ""]
