"""Messages of an ordered shelf that go back to the log: what they hold up meanwhile, and who is told."""

from __future__ import annotations

import pytest

from forebay.warm import contents
from forebay.warm.seam import RETURN_SECONDS
from forebay.warm.valkey import warm as valkey
from tests.conformance.warm.rigs import WarmRig
from tests.conformance.warm.steps import LANES, counts, fill, parcel_of, started, take, texts, wanted_of


async def test_what_is_withheld_keeps_its_partition_from_being_handed_out(rig: WarmRig) -> None:
    epoch = await started(rig.warm, LANES, parcel_of(1, 2, partition="p"), parcel_of(2, partition="p"))
    (one,) = await take(rig.warm, LANES, epoch, 2)
    kept = await rig.warm.withhold(LANES, wanted_of([one]), counts=True)
    assert list(kept.values()) == [[0, 1]]
    assert await rig.warm.held(LANES, wanted_of([one])) == {}, "its worker has lost it"
    assert await take(rig.warm, LANES, epoch, 9) == []
    assert await counts(rig.warm, LANES) == (1, 2, 0)
    await rig.warm.finish(LANES, kept)
    assert texts(await take(rig.warm, LANES, epoch, 9)) == ["2/0"]


@pytest.mark.parametrize("counts", [True, False])
async def test_what_is_withheld_expires_when_its_lease_would_have(rig: WarmRig, counts: bool) -> None:  # noqa: FBT001 - a parameter of pytest's
    epoch = await started(rig.warm, LANES, parcel_of(1, 3, partition="p"))
    (one,) = await take(rig.warm, LANES, epoch, 3, seconds=30)
    rig.clock.advance(seconds=10)
    await rig.warm.withhold(LANES, {one.lease: [1]}, counts=counts)
    assert await rig.warm.held(LANES, wanted_of([one])) == {one.lease: [0, 2]}
    rig.clock.advance(seconds=19)
    assert await rig.warm.expire(LANES, epoch, 9, 5) == []
    rig.clock.advance(seconds=1)
    expired = await rig.warm.expire(LANES, epoch, 9, 5)
    assert {tuple(piece.offsets()): piece.worker for piece in expired} == {
        (0, 2): "worker",
        (1,): "worker" if counts else "",
    }


async def test_what_nobody_holds_is_not_withheld(rig: WarmRig) -> None:
    epoch = await started(rig.warm, LANES, parcel_of(1, partition="p"))
    (one,) = await take(rig.warm, LANES, epoch, 1)
    await rig.warm.finish(LANES, wanted_of([one]))
    assert await rig.warm.withhold(LANES, wanted_of([one]), counts=True) == {}
    assert await counts(rig.warm, LANES) == (0, 0, 0)


async def test_takers_are_told_of_returns_until_all_of_it_was_let_out(rig: WarmRig) -> None:
    epoch = await started(rig.warm, LANES, parcel_of(3, partition="p"), parcel_of(4, partition="q"))
    ids = [parcel_of(n).first for n in (2, 3, 4)]
    await rig.warm.note_returns(LANES, epoch, {"p": ids[1]})
    await rig.warm.note_returns(LANES, epoch, {"p": ids[0]})
    told = {one.lease.partition: one.returned for one in await take(rig.warm, LANES, epoch, 9)}
    assert told["q"] is None
    assert told["p"] is not None
    assert told["p"].last == ids[1], "the highest"
    await rig.warm.forget_returns(LANES, epoch, {"p": told["p"]})
    await fill(rig.warm, LANES, epoch, parcel_of(5, partition="r"))
    await rig.warm.note_returns(LANES, epoch, {"r": 1})
    (again,) = await take(rig.warm, LANES, epoch, 9)
    assert again.returned is not None
    await rig.warm.note_returns(LANES, epoch, {"r": 1})
    await rig.warm.forget_returns(LANES, epoch, {"r": again.returned})
    await rig.warm.release(LANES, wanted_of([again]))
    (once_more,) = await take(rig.warm, LANES, epoch, 9)
    assert once_more.returned is not None, "something went back since it was told"
    await rig.warm.release(LANES, wanted_of([once_more]))
    await rig.warm.forget_returns(LANES, epoch, {"r": once_more.returned})
    (last,) = await take(rig.warm, LANES, epoch, 9)
    assert last.returned is None


async def test_of_very_many_returns_the_old_ones_are_dropped_and_then_all_wait(
    rig: WarmRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (contents, valkey):
        monkeypatch.setattr(module, "RETURNS_MAX", 3)
    epoch = await started(rig.warm, LANES, *(parcel_of(n, partition=f"p{n}") for n in (1, 2, 3)))
    await rig.warm.note_returns(LANES, epoch, {"p1": 1, "gone": 1, "gone too": 1})
    rig.clock.advance(seconds=RETURN_SECONDS)
    await rig.warm.note_returns(LANES, epoch, {"p2": 1, "young": 1})

    async def told() -> dict[str | None, bool]:
        leased = await take(rig.warm, LANES, epoch, 9)
        await rig.warm.release(LANES, wanted_of(leased))
        return {one.lease.partition: one.returned is not None for one in leased}

    assert await told() == {"p1": True, "p2": True, "p3": False}
    await rig.warm.note_returns(LANES, epoch, {"one too many": 1})
    assert await told() == {"p1": True, "p2": True, "p3": True}
    assert await rig.warm.renew(LANES, epoch) != epoch
    epoch = await started(rig.warm, LANES, parcel_of(1, partition="p1"))
    assert await told() == {"p1": False}
