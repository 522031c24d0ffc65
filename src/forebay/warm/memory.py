"""MemoryWarm: the warm tier in this process's memory. The embedded default, and the oracle of the others.

Nothing is awaited between looking and changing, so each verb is atomic. Leases last by a clock that never
jumps: when the machine's own is set, none is lost, and none lasts for longer.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import count as count_from
from time import monotonic_ns
from types import TracebackType
from typing import ClassVar, Final, Self

import msgspec

from forebay.model import Clock, Flow, SystemClock
from forebay.warm.contents import SECOND, Contents, Held, Moment
from forebay.warm.seam import EpochLost, Heard, Wanted
from forebay.warm.values import (
    Fill,
    Lane,
    Lease,
    Leased,
    Parcel,
    Return,
    Shelf,
    ShelfFlow,
    ShelfStats,
    epoch_name,
)

_MARK_DIGITS: Final = 12
"""Of a name, in the epochs of its tier: enough that no two processes on one log have the same."""


class MemoryWarm:
    """See the module; `name` tells this process from all others. A `clock` that is given never jumps."""

    shared = False
    problem: str | None = None
    epoch_prefix: ClassVar[str] = "m"
    """Epochs of this tier begin with it; those of a shared tier are hexadecimal."""

    def __init__(self, name: str, *, clock: Clock | None = None) -> None:
        self.name = name
        self._mark = f"-{sha256(name.encode()).hexdigest()[:_MARK_DIGITS]}"
        self._clock = clock or SystemClock()
        self._steady = _monotonic if clock is None else clock.now
        self._shelves: dict[int, Contents] = {}
        self._numbers = count_from(1)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._shelves.clear()

    # Epochs

    async def epoch(self, shelf: Shelf) -> str | None:
        contents = self._shelves.get(shelf.group)
        return None if contents is None else contents.epoch

    async def renew(self, shelf: Shelf, lost: str | None) -> str:
        current = await self.epoch(shelf)
        if current is not None and current != lost:
            return current
        epoch = epoch_name(f"{self.epoch_prefix}{next(self._numbers)}{self._mark}", shelf)
        self._shelves[shelf.group] = Contents(shelf, epoch, self._numbers)
        return epoch

    def gave(self, lease: Lease) -> bool:
        """Whether a lease is of this tier, held or not: no other process has an epoch like it."""
        return lease.epoch.rpartition(".")[0].endswith(self._mark)

    @staticmethod
    def is_kin(lease: Lease) -> bool:
        """Whether a lease is of the memory of a process, this or another: a shared tier has other epochs."""
        return lease.epoch.startswith(MemoryWarm.epoch_prefix)

    def out_claims(self, group: int) -> set[int]:
        """The tokens of claims of which something is leased."""
        contents = self._shelves.get(group)
        return set() if contents is None else {held.parcel.claim for held in contents.held.values()}

    def forget(self, group: int) -> None:
        """Keep nothing of a group that is no longer asked for."""
        self._shelves.pop(group, None)

    # Filling

    async def begin(self, shelf: Shelf, epoch: str) -> Fill | None:
        contents = self._contents(shelf, epoch)
        if contents.filling:
            return None
        contents.shelf = shelf
        contents.filling = next(self._numbers)
        doubt, contents.doubt = contents.doubt, False
        flows, noted = dict(contents.flows), dict(contents.noted_flows)
        return Fill(epoch, contents.filling, contents.messages, contents.bytes, flows, noted, doubt)

    async def offer(self, shelf: Shelf, fill: Fill, parcels: Sequence[Parcel]) -> list[Parcel]:
        contents = self._filling(shelf, fill)
        return [stub for parcel in parcels if (stub := contents.offer(parcel)) is not None]

    async def noted(
        self,
        shelf: Shelf,
        fill: Fill,
        messages: int,
        besides: Collection[Flow] = (),
        *,
        partition: str | None = None,
    ) -> list[Parcel]:
        held = self._filling(shelf, fill).lanes
        lanes = [
            list(lane.noted.values())
            for lane in (held.values() if partition is None else filter(None, [held.get(partition)]))
            if lane.noted and next(iter(lane.noted.values())).flow not in besides
        ]
        found: list[Parcel] = []
        for parcel in heapq.merge(*lanes, key=lambda parcel: parcel.id):
            if found and messages < len(parcel):
                break
            found.append(parcel)
            messages -= len(parcel)
        return found

    async def claims(self, shelf: Shelf, fill: Fill) -> set[int]:
        contents = self._filling(shelf, fill)
        tokens = {run.parcel.claim for run in contents.ready()}
        tokens.update(parcel.claim for parcel in contents.noted())
        tokens.update(held.parcel.claim for held in contents.held.values())
        return tokens

    async def lane(self, shelf: Shelf, fill: Fill, partition: str) -> Lane:
        lane = self._filling(shelf, fill).lanes.get(partition)
        return Lane(0, 0, 0) if lane is None else Lane(lane.ready, lane.out, len(lane.noted))

    async def spare(
        self, shelf: Shelf, fill: Fill, messages: int, size: int, *, besides: str
    ) -> list[Leased]:
        spared = self._filling(shelf, fill).spare(messages, size, besides, self._now())
        replace = msgspec.structs.replace
        return [replace(one, parcel=replace(one.parcel, block=None)) for one in spared]

    async def end(self, shelf: Shelf, fill: Fill, *, doubt: bool = False) -> None:
        contents = self._filling(shelf, fill)
        contents.filling, contents.doubt = 0, contents.doubt or doubt

    # Leases

    async def take(
        self,
        shelf: Shelf,
        epoch: str,
        count: int,
        worker: str,
        seconds: float,
        *,
        partition: str | None = None,
        partitions_max: int | None = None,
        behind: Lease | None = None,
    ) -> list[Leased]:
        contents, now = self._contents(shelf, epoch), self._now()
        if partition is None:
            runs = contents.take(count, partitions_max)
        else:
            runs = contents.take_of(partition, count, None if behind is None else self._held(shelf, behind))
        leased = [contents.lease(run.parcel, range(run.begin, run.end), worker, now, seconds) for run in runs]
        if not shelf.ordered:
            return leased
        replace = msgspec.structs.replace
        return [
            one if (returned := contents.returned(one.parcel)) is None else replace(one, returned=returned)
            for one in leased
        ]

    async def held(self, shelf: Shelf, wanted: Wanted) -> dict[Lease, list[int]]:
        now, found = self._steady(), dict[Lease, list[int]]()
        for lease, offsets in wanted.items():
            held = self._held(shelf, lease)
            if held is None or held.deadline <= now:
                continue
            is_all = held.offsets.issuperset(offsets)
            if good := list(offsets) if is_all else [o for o in offsets if o in held.offsets]:
                found[lease] = good
        return found

    async def finish(self, shelf: Shelf, wanted: Wanted) -> None:
        for lease, offsets in wanted.items():
            held = self._held(shelf, lease)
            if held is not None:
                self._shelves[shelf.group].finish(held, offsets)

    async def release(self, shelf: Shelf, wanted: Wanted) -> None:
        for lease, offsets in wanted.items():
            held = self._held(shelf, lease)
            if held is not None:
                self._shelves[shelf.group].release(held, offsets)

    async def extend(self, shelf: Shelf, leases: Sequence[Lease], seconds: float) -> list[Lease]:
        now, lost = self._steady(), []
        for lease in leases:
            held = self._held(shelf, lease)
            if held is None or held.deadline <= now:
                lost.append(lease)
                continue
            held.deadline = now + int(seconds * SECOND)
            self._shelves[shelf.group].expire_at(held.deadline, lease.number)
        return lost

    async def expire(self, shelf: Shelf, epoch: str, count: int, seconds: float) -> list[Leased]:
        contents, now, expired = self._contents(shelf, epoch), self._now(), list[Leased]()
        while count > 0 and (held := contents.expired(now)) is not None:
            count -= len(held.offsets)
            expired.append(contents.lease(held.parcel, held.places(), held.worker, now, seconds))
        return expired

    async def withdraw(self, shelf: Shelf, epoch: str, partition: str) -> list[Leased]:
        return self._contents(shelf, epoch).withdraw(partition, self._now())

    async def withdraw_all(self, shelf: Shelf, epoch: str) -> list[Leased]:
        """Withdraw all that isn't out, of every flow and partition (see `withdraw`)."""
        return self._contents(shelf, epoch).withdraw_all(self._now())

    async def is_empty(self, shelf: Shelf) -> bool:
        """Whether the shelf holds nothing: neither ready nor out nor noted."""
        contents = self._shelves.get(shelf.group)
        return contents is None or not contents.lanes

    async def out_after(self, shelf: Shelf, epoch: str, partition: str, message_id: int) -> list[Leased]:
        now = self._now()
        found = self._contents(shelf, epoch).out_after(partition, message_id, now)
        out = [_shown(held, places, now) for held, places in found]
        return sorted(out, key=Leased.first_id)

    async def withhold(self, shelf: Shelf, wanted: Wanted, *, counts: bool) -> dict[Lease, list[int]]:
        kept: dict[Lease, list[int]] = {}
        for lease, offsets in wanted.items():
            held = self._held(shelf, lease)
            if held is not None:
                worker = held.worker if counts else ""
                anew = self._shelves[shelf.group].withhold(held, offsets, worker)
                if anew is not None:
                    kept[anew] = list(offsets)
        return kept

    async def note_returns(self, shelf: Shelf, epoch: str, last: Mapping[str, int]) -> None:
        contents, now = self._contents(shelf, epoch), self._now()
        for partition, message_id in last.items():
            contents.note_return(partition, message_id, now)

    async def forget_returns(self, shelf: Shelf, epoch: str, returned: Mapping[str, Return]) -> None:
        contents = self._contents(shelf, epoch)
        for partition, one in returned.items():
            contents.forget_return(partition, one)

    async def next_expiry(self, shelf: Shelf) -> int | None:
        contents = self._shelves.get(shelf.group)
        first = None if contents is None else contents.next_expiry()
        return None if first is None else self._now().when(first)

    # Waking up

    async def announce(self, queue: int, partitions: Collection[str] | None = None) -> None:
        pass

    def listen(self, heard: Heard) -> None:
        pass

    # Counting

    async def stats(self, shelf: Shelf) -> ShelfStats:
        contents, now = self._shelves.get(shelf.group), self._clock.now()
        if contents is None:
            return ShelfStats(now, 0, 0, ())
        counts: dict[Flow, _Count] = {}
        for run in contents.ready():
            count = counts.setdefault(run.parcel.flow, _Count())
            count.ready += len(run)
            count.wait(run.parcel.start_time)
        for held in contents.held.values():
            counts.setdefault(held.parcel.flow, _Count()).leased += len(held.offsets)
        for parcel in contents.noted():
            count = counts.setdefault(parcel.flow, _Count())
            count.noted += len(parcel)
            count.wait(parcel.start_time)
        flows = [
            ShelfFlow(flow, c.ready, c.leased, c.noted, c.oldest_at) for flow, c in sorted(counts.items())
        ]
        return ShelfStats(now, contents.messages, contents.bytes, flows)

    async def peek(self, shelf: Shelf, count: int) -> list[tuple[Parcel, range]]:
        contents = self._shelves.get(shelf.group)
        lanes = [] if contents is None else list(contents.lanes.values())
        free = [run for lane in lanes if not (shelf.ordered and lane.out) for run in lane.runs]
        found: list[tuple[Parcel, range]] = []
        for run in sorted(free, key=lambda r: (r.parcel.start_time, r.order[1])):
            if count <= 0:
                break
            found.append((run.parcel, range(run.begin, min(run.end, run.begin + count))))
            count -= len(found[-1][1])
        return found

    async def running(self, shelf: Shelf, limit: int = 100) -> list[Leased]:
        contents, now = self._shelves.get(shelf.group), self._now()
        held = () if contents is None else contents.held.values()
        longest = heapq.nsmallest(limit, held, key=lambda h: (h.since, h.lease.number))
        return [_shown(h, h.places(), now) for h in longest]

    # Look-ups

    def _now(self) -> Moment:
        return Moment(self._clock.now(), self._steady())

    def _contents(self, shelf: Shelf, epoch: str) -> Contents:
        contents = self._shelves.get(shelf.group)
        if contents is None or contents.epoch != epoch:
            raise EpochLost(f"the warm tier of {shelf.name} began anew", hint="fill it again")
        return contents

    def _filling(self, shelf: Shelf, fill: Fill) -> Contents:
        contents = self._contents(shelf, fill.epoch)
        if contents.filling != fill.number:
            raise EpochLost(f"the fill of {shelf.name} is over", hint="begin another one")
        return contents

    def _held(self, shelf: Shelf, lease: Lease) -> Held | None:
        contents = self._shelves.get(shelf.group)
        if contents is None or contents.epoch != lease.epoch:
            return None
        held = contents.held.get(lease.number)
        # Another process numbers its leases as we do: a task that was taken there isn't held here.
        return held if held is not None and held.lease == lease else None


def _shown(held: Held, places: Sequence[int], now: Moment) -> Leased:
    """What is out under a lease, or some of it, without bodies."""
    parcel = msgspec.structs.replace(held.parcel, block=None)
    return Leased(held.lease, parcel, places, held.worker, held.since, now.when(held.deadline))


def _monotonic() -> int:
    return monotonic_ns() // 1_000


@dataclass(slots=True)
class _Count:
    ready: int = 0
    leased: int = 0
    noted: int = 0
    oldest_at: int | None = None

    def wait(self, since: int) -> None:
        self.oldest_at = since if self.oldest_at is None else min(self.oldest_at, since)
