"""Valkey against the oracle: the same verbs on both, the same answers after every step.

Both share a clock. Epochs and the numbers of leases and fills are each tier's own, so leases are kept in
pairs, and are compared without them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import hypothesis
import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from forebay.model import Flow
from forebay.warm.memory import MemoryWarm
from forebay.warm.seam import EpochLost
from forebay.warm.values import Fill, Lease, Leased, Parcel, Shelf
from tests.conformance.warm.rigs import ValkeyRig
from tests.conformance.warm.steps import FIRST, parcel_of

if TYPE_CHECKING:
    from forebay.warm.seam import Warm

T = TypeVar("T")

STEPS = 50
FLOWS = (Flow("a"), Flow("b"), Flow("a", "nightly", "load"))
PARTITIONS = ("", "p", "q", "r", "ü")

picks = st.integers(0, 1_000)
shapes = st.one_of(
    st.integers(1, 6).map(range),
    st.lists(st.integers(0, 12), min_size=1, max_size=5, unique=True).map(sorted),
)
parcels = st.fixed_dictionaries(
    {
        "offsets": shapes,
        "at": st.sampled_from([0, 0, 1, 5, -3]),
        "flow": st.sampled_from(FLOWS),
        "partition": st.sampled_from(PARTITIONS),
        "size": st.sampled_from([10, 50, 90]),
        "noted": st.sampled_from([False, False, False, True]),
    }
)
counts = st.integers(1, 9)
seconds = st.sampled_from([5.0, 1.0, 60.0])
masks = st.lists(st.booleans(), min_size=1, max_size=5)


class Both(msgspec.Struct, frozen=True):
    """The oracle's and the subject's lease of the same messages."""

    oracle: Lease
    subject: Lease
    offsets: tuple[int, ...]


def shown(leased: Leased) -> tuple[object, ...]:
    """All of what went out but the epoch and the number."""
    lease, parcel = leased.lease, leased.parcel
    return (
        (lease.group, lease.claim, lease.first, lease.count, lease.attempts, lease.start_time),
        plain(parcel),
        (list(leased.places), leased.worker, leased.since, leased.deadline),
    )


def plain(parcel: Parcel) -> Parcel:
    """A parcel whose offsets compare with any sequence's."""
    return msgspec.structs.replace(parcel, offsets=list(parcel.offsets))


class WarmMachine(RuleBasedStateMachine):
    """Drives the rig and the oracle side by side; one shelf, small enough for its limits to be met."""

    rig: ClassVar[ValkeyRig]
    runner: ClassVar[asyncio.Runner]
    ordered: ClassVar[bool]

    def __init__(self) -> None:
        super().__init__()
        self.run(self.rig.fresh())
        self.shelf = Shelf(1, 2, "q/g", messages_max=25, bytes_max=600, ordered=self.ordered)
        self.oracle: Warm = MemoryWarm("oracle", clock=self.rig.clock)
        self.claims = 0
        self.leases: list[Both] = []
        self.waiting: dict[tuple[int, int], Parcel] = {}
        """Parcels that are noted, with their bodies."""
        self.is_sound = False

    @property
    def subject(self) -> Warm:
        """The tier under test."""
        return self.rig.warm

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run to the end."""
        return self.runner.run(work)

    def both(self, verb: str, *arguments: object, **options: object) -> tuple[Any, Any]:
        """The answers of both, which are asked alike but for the epoch."""
        return (
            self.run(getattr(self.oracle, verb)(self.shelf, self.epochs[0], *arguments, **options)),
            self.run(getattr(self.subject, verb)(self.shelf, self.epochs[1], *arguments, **options)),
        )

    def keep(self, expected: Sequence[Leased], found: Sequence[Leased]) -> None:
        """Compare what went out, and keep it in pairs."""
        assert [shown(one) for one in found] == [shown(one) for one in expected]
        self.leases += [
            Both(one.lease, other.lease, tuple(one.offsets()))
            for one, other in zip(expected, found, strict=True)
        ]

    # Epochs

    @initialize(some=st.lists(parcels, min_size=2, max_size=6))
    def begin(self, some: list[dict[str, Any]]) -> None:
        self.epochs = (
            self.run(self.oracle.renew(self.shelf, None)),
            self.run(self.subject.renew(self.shelf, None)),
        )
        self.fill(some, [])

    @rule(pick=st.integers(0, 9), lose=st.booleans())
    def renew(self, pick: int, *, lose: bool) -> None:
        if pick:
            return  # seldom, so that there is something to see in between
        old = self.epochs
        if lose:
            self.run(self.rig.lose())
            assert self.run(self.subject.epoch(self.shelf)) is None
        self.epochs = (
            self.run(self.oracle.renew(self.shelf, old[0])),
            self.run(self.subject.renew(self.shelf, old[1])),
        )
        with pytest.raises(EpochLost):
            self.run(self.subject.take(self.shelf, old[1], 1, "worker", 1))
        self.waiting.clear()

    # Filling

    @rule(some=st.lists(parcels, max_size=4), again=st.lists(picks, max_size=3))
    def fill(self, some: list[dict[str, Any]], again: list[int]) -> None:
        known = list(self.waiting.values())
        chosen = {known[pick % len(known)].key: known[pick % len(known)] for pick in again if known}
        self.offer([*chosen.values(), *map(self.parcel, some)])

    @rule(messages=st.integers(1, 20), besides=st.sets(st.sampled_from(FLOWS), max_size=1))
    def bring(self, messages: int, besides: set[Flow]) -> None:
        fills = self.begun()
        expected = self.run(self.oracle.noted(self.shelf, fills[0], messages, besides))
        found = self.run(self.subject.noted(self.shelf, fills[1], messages, besides))
        assert [plain(one) for one in found] == [plain(one) for one in expected]
        self.ended(fills)
        self.offer([self.waiting[parcel.key] for parcel in expected])

    def parcel(self, drawn: dict[str, Any]) -> Parcel:
        """A parcel that was never offered; noted ones keep their bodies for later."""
        self.claims += 1
        chosen = {**drawn, "noted": False}
        if not self.ordered and drawn["partition"] == "":
            chosen["partition"] = None
        parcel = parcel_of(self.claims, **chosen)
        self.waiting[parcel.key] = parcel
        return msgspec.structs.replace(parcel, block=None) if drawn["noted"] else parcel

    def begun(self) -> tuple[Fill, Fill]:
        """A fill in both."""
        expected, found = self.both("begin")
        assert (found.messages, found.bytes) == (expected.messages, expected.bytes)
        assert (found.flows, found.noted) == (expected.flows, expected.noted)
        assert self.both("begin") == (None, None)
        return expected, found

    def ended(self, fills: tuple[Fill, Fill]) -> None:
        """The end of a fill in both."""
        self.run(self.oracle.end(self.shelf, fills[0]))
        self.run(self.subject.end(self.shelf, fills[1]))

    def offer(self, offered: list[Parcel]) -> None:
        """Offer to both."""
        fills = self.begun()
        expected = self.run(self.oracle.offer(self.shelf, fills[0], offered))
        found = self.run(self.subject.offer(self.shelf, fills[1], offered))
        assert [plain(one) for one in found] == [plain(one) for one in expected]
        self.ended(fills)
        for parcel in {parcel.key for parcel in offered} - {parcel.key for parcel in expected}:
            del self.waiting[parcel]

    # Leases

    @rule(count=counts, worker=st.sampled_from(["one", "zwölf"]), seconds=seconds)
    def take(self, count: int, worker: str, seconds: float) -> None:
        self.keep(*self.both("take", count, worker, seconds))

    @precondition(lambda self: self.ordered)
    @rule(count=counts, partitions_max=st.integers(1, 3))
    def take_few(self, count: int, partitions_max: int) -> None:
        self.keep(*self.both("take", count, "one", 5.0, partitions_max=partitions_max))

    @precondition(lambda self: self.ordered)
    @rule(count=counts, partition=st.sampled_from(PARTITIONS), behind=st.none() | picks)
    def take_named(self, count: int, partition: str, behind: int | None) -> None:
        options: list[dict[str, Any]] = [{"partition": partition}, {"partition": partition}]
        if behind is not None and self.leases:
            lease = self.leases[-1 - behind % min(4, len(self.leases))]
            options[0]["behind"], options[1]["behind"] = lease.oracle, lease.subject
        expected = self.oracle.take(self.shelf, self.epochs[0], count, "one", 5.0, **options[0])
        found = self.subject.take(self.shelf, self.epochs[1], count, "one", 5.0, **options[1])
        self.keep(self.run(expected), self.run(found))

    @precondition(lambda self: self.ordered)
    @rule(
        messages=st.integers(-2, 12),
        size=st.sampled_from([-5, 0, 40, 200]),
        besides=st.sampled_from(PARTITIONS),
    )
    def spare(self, messages: int, size: int, besides: str) -> None:
        fills = self.begun()
        expected = self.run(self.oracle.spare(self.shelf, fills[0], messages, size, besides=besides))
        found = self.run(self.subject.spare(self.shelf, fills[1], messages, size, besides=besides))
        assert besides not in {one.lease.partition for one in found}
        self.ended(fills)
        self.keep(expected, found)
        for one in expected:
            self.waiting.pop(one.parcel.key, None)

    @precondition(lambda self: self.ordered)
    @rule(partition=st.sampled_from(PARTITIONS), messages=st.integers(1, 20))
    def bring_partition(self, partition: str, messages: int) -> None:
        fills = self.begun()
        lane = self.run(self.oracle.lane(self.shelf, fills[0], partition))
        assert self.run(self.subject.lane(self.shelf, fills[1], partition)) == lane
        expected = self.run(self.oracle.noted(self.shelf, fills[0], messages, partition=partition))
        found = self.run(self.subject.noted(self.shelf, fills[1], messages, partition=partition))
        assert [plain(one) for one in found] == [plain(one) for one in expected]
        self.ended(fills)
        self.offer([self.waiting[parcel.key] for parcel in expected])

    @rule(count=counts, seconds=seconds)
    def expire(self, count: int, seconds: float) -> None:
        self.keep(*self.both("expire", count, seconds))

    @rule(partition=st.sampled_from(PARTITIONS))
    def withdraw(self, partition: str) -> None:
        expected, found = self.both("withdraw", partition)
        self.keep(expected, found)
        for one in expected:
            self.waiting.pop(one.parcel.key, None)

    @rule(partition=st.sampled_from(PARTITIONS), pick=picks, offset=st.integers(-1, 12))
    def out_after(self, partition: str, pick: int, offset: int) -> None:
        message_id = FIRST + 100 * (pick % (self.claims + 1)) + offset
        expected, found = self.both("out_after", partition, message_id)
        assert [shown(one) for one in found] == [shown(one) for one in expected]
        assert all(one.lease.partition == partition for one in found)
        assert all(one.lease.first + o > message_id for one in found for o in one.offsets())
        for one in found:
            assert (
                list(self.run(self.subject.held(self.shelf, {one.lease: one.offsets()}))[one.lease])
                == one.offsets()
            )

    @precondition(lambda self: self.leases)
    @rule(picked=st.lists(picks, min_size=1, max_size=4), mask=masks)
    def finish(self, picked: list[int], mask: list[bool]) -> None:
        self.settle("finish", picked, mask)

    @precondition(lambda self: self.leases)
    @rule(picked=st.lists(picks, min_size=1, max_size=4))
    def finish_whole(self, picked: list[int]) -> None:
        self.settle("finish", picked, [True])

    @precondition(lambda self: self.leases)
    @rule(picked=st.lists(picks, min_size=1, max_size=4), mask=masks)
    def release(self, picked: list[int], mask: list[bool]) -> None:
        self.settle("release", picked, mask)

    def settle(self, verb: str, picked: list[int], mask: list[bool]) -> None:
        """Ask both about parts of some of the latest leases, and then do the same to them."""
        some = [self.leases[-1 - pick % min(len(self.leases), 12)] for pick in picked]
        asked = {
            one: [o for i, o in enumerate((*one.offsets, 99)) if mask[i % len(mask)]][::-1] for one in some
        }
        expected = self.run(self.oracle.held(self.shelf, {one.oracle: asked[one] for one in asked}))
        found = self.run(self.subject.held(self.shelf, {one.subject: asked[one] for one in asked}))
        assert [found.get(one.subject) for one in asked] == [expected.get(one.oracle) for one in asked]
        self.run(getattr(self.oracle, verb)(self.shelf, {one.oracle: asked[one] for one in asked}))
        self.run(getattr(self.subject, verb)(self.shelf, {one.subject: asked[one] for one in asked}))

    @precondition(lambda self: self.leases)
    @rule(picked=st.lists(picks, min_size=1, max_size=4), seconds=seconds)
    def extend(self, picked: list[int], seconds: float) -> None:
        some = [self.leases[-1 - pick % min(len(self.leases), 12)] for pick in picked]
        expected = self.run(self.oracle.extend(self.shelf, [one.oracle for one in some], seconds))
        found = self.run(self.subject.extend(self.shelf, [one.subject for one in some], seconds))
        assert found == [one.subject for one in some if one.oracle in expected]

    @rule(seconds=st.sampled_from([0.5, 1.0, 5.0]))
    def wait(self, seconds: float) -> None:
        self.rig.clock.advance(seconds=seconds)

    # After every step

    @invariant()
    def agree(self) -> None:
        if not self.claims:
            return
        self.is_sound = False
        expected, found = self.run(self.oracle.stats(self.shelf)), self.run(self.subject.stats(self.shelf))
        assert found == msgspec.structs.replace(expected, flows=list(expected.flows))
        assert found.messages <= self.shelf.messages_max
        assert found.bytes <= self.shelf.bytes_max
        running = self.run(self.oracle.running(self.shelf)), self.run(self.subject.running(self.shelf))
        assert [shown(one) for one in running[1]] == [shown(one) for one in running[0]]
        expiries = [self.run(warm.next_expiry(self.shelf)) for warm in (self.oracle, self.subject)]
        assert expiries[0] == expiries[1]
        self.is_sound = True

    def teardown(self) -> None:
        """All that is there can be taken, each message once, and then nothing is left."""
        if not self.is_sound:
            return  # the failure is what matters
        for warm, epoch in zip((self.oracle, self.subject), self.epochs, strict=True):
            self.run(drain(warm, self.shelf, epoch))


async def drain(warm: Warm, shelf: Shelf, epoch: str) -> None:
    """Finish all that is on a shelf."""
    for one in await warm.running(shelf):
        await warm.finish(shelf, {one.lease: one.offsets()})
    while out := await warm.take(shelf, epoch, 7, "worker", 9):
        await warm.finish(shelf, {one.lease: one.offsets() for one in out})
    stats = await warm.stats(shelf)
    assert (stats.messages, stats.bytes) == (0, 0)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("ordered", [False, True], ids=["unordered", "ordered"])
def test_valkey_does_what_the_oracle_does(
    request: pytest.FixtureRequest, seed: int, *, ordered: bool
) -> None:
    rig = ValkeyRig(request.getfixturevalue("valkey_server").url)
    with asyncio.Runner() as runner:
        machine = type("Machine", (WarmMachine,), {"rig": rig, "runner": runner, "ordered": ordered})
        try:
            run_state_machine_as_test(
                hypothesis.seed(seed)(machine), settings=settings(stateful_step_count=STEPS)
            )
        finally:
            runner.run(rig.close())
