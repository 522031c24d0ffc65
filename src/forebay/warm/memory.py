"""MemoryWarm: the warm tier in this process's memory. The embedded default, and the oracle of the others.

Nothing is awaited between looking and changing, so each verb is atomic. Leases last by a clock that never
jumps: when the machine's own is set, none is lost, and none lasts for longer.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count as count_from
from time import monotonic_ns
from types import TracebackType
from typing import NamedTuple, Self

import msgspec

from forebay.model import Clock, Flow, SystemClock
from forebay.warm.free import Free, Head
from forebay.warm.seam import WITHDRAWN_SECONDS, EpochLost, Heard, Wanted
from forebay.warm.sharing import share
from forebay.warm.values import Fill, Lane, Lease, Leased, Parcel, Shelf, ShelfFlow, ShelfStats, epoch_name

_SECOND = 1_000_000
_OVER_MAX = 1_000
"""So many leases that are over may be remembered, beside as many as are out."""


class _Moment(NamedTuple):
    """Now, by two clocks, in microseconds: what people are told, and what leases last by."""

    at: int
    steady: int

    def when(self, steady: int) -> int:
        """What people are told of a time of the other clock."""
        return self.at + steady - self.steady


@dataclass(order=True, slots=True)
class _Run:
    """Ready messages: consecutive places of a parcel."""

    order: tuple[int, int]
    begin: int
    end: int
    parcel: Parcel = field(compare=False)

    def __len__(self) -> int:
        return self.end - self.begin

    def split(self, count: int) -> tuple[_Run, _Run]:
        """The first `count` messages, and the rest."""
        middle = self.begin + count
        rest = (self.order[0], self.parcel.first + self.parcel.offsets[middle])
        return (
            _Run(self.order, self.begin, middle, self.parcel),
            _Run(rest, middle, self.end, self.parcel),
        )


@dataclass(slots=True)
class _Lane:
    """What is handed out in one order: a flow, or a partition of an ordered shelf."""

    runs: list[_Run] = field(default_factory=list)
    ready: int = 0
    out: int = 0
    noted: dict[tuple[int, int], Parcel] = field(default_factory=dict)

    def cut(self, count: int) -> list[_Run]:
        """Take up to `count` ready messages, and count them as out."""
        runs: list[_Run] = []
        while count > 0 and self.runs:
            run = self.runs[0]
            if len(run) <= count:
                heapq.heappop(self.runs)
            else:
                run, rest = run.split(count)
                heapq.heapreplace(self.runs, rest)
            count -= len(run)
            self.ready -= len(run)
            self.out += len(run)
            runs.append(run)
        return runs

    def is_empty(self) -> bool:
        return not (self.ready or self.out or self.noted)


@dataclass(slots=True)
class _Held:
    """A lease that is out: the messages that it still holds, as offsets in the claim."""

    lease: Lease
    parcel: Parcel
    offsets: set[int]
    worker: str
    since: int
    deadline: int
    """By the clock that never jumps."""

    def places(self) -> list[int]:
        """The places of its messages in the parcel, ascending."""
        return places_of(self.parcel, self.offsets)


class _Contents:
    """One shelf in one epoch."""

    def __init__(self, shelf: Shelf, epoch: str, numbers: Iterator[int]) -> None:
        self.shelf = shelf
        self.epoch = epoch
        self.messages = 0
        self.bytes = 0
        self.flows: dict[Flow, int] = {}
        self.noted_flows: dict[Flow, int] = {}
        """Parcels that are noted, by flow."""
        self.lanes: dict[Hashable, _Lane] = {}
        self.held: dict[int, _Held] = {}
        self.deadlines: list[tuple[int, int]] = []
        self.filling = 0
        self.doubt = False
        self._numbers = numbers
        self._left: dict[tuple[int, int], int] = {}
        """How many messages of a parcel are left: its bytes are freed with the last."""
        self._free = Free(self._is_free)

    def lane_key(self, parcel: Parcel) -> Hashable:
        return parcel.partition or "" if self.shelf.ordered else parcel.flow

    def offer(self, parcel: Parcel) -> Parcel | None:
        """Put a parcel on the shelf, or note and return it."""
        lane = self.lanes.setdefault(self.lane_key(parcel), _Lane())
        before = next(iter(lane.noted), None)
        if (
            parcel.block is not None
            and (before is None or before == parcel.key)
            and self.messages + len(parcel) <= self.shelf.messages_max
            and (self.bytes + parcel.size <= self.shelf.bytes_max or self._must_come(parcel))
        ):
            if lane.noted.pop(parcel.key, None) is not None:
                self._count_noted(parcel.flow, -1)
            self._put(parcel, lane)
            return None
        stub = msgspec.structs.replace(parcel, block=None)
        if parcel.key not in lane.noted:
            self._count_noted(parcel.flow, 1)
        lane.noted[parcel.key] = stub
        return stub

    def _must_come(self, parcel: Parcel) -> bool:
        """Whether it is one message with more bytes than the shelf may have, that will never fit better."""
        return len(parcel) == 1 and not self.messages

    def _count_noted(self, flow: Flow, change: int) -> None:
        self.noted_flows[flow] = self.noted_flows.get(flow, 0) + change
        if not self.noted_flows[flow]:
            del self.noted_flows[flow]

    def _put(self, parcel: Parcel, lane: _Lane) -> None:
        self.messages += len(parcel)
        self.bytes += parcel.size
        self._left[parcel.key] = len(parcel)
        self.flows[parcel.flow] = self.flows.get(parcel.flow, 0) + len(parcel)
        self._ready(parcel, lane, 0, len(parcel))

    def _ready(self, parcel: Parcel, lane: _Lane, begin: int, end: int) -> None:
        message_id = parcel.first + parcel.offsets[begin]
        order = (0 if self.shelf.ordered else parcel.start_time, message_id)
        heapq.heappush(lane.runs, _Run(order, begin, end, parcel))
        lane.ready += end - begin
        self._let_out(parcel.partition, lane)

    def _let_out(self, partition: str | None, lane: _Lane) -> None:
        """Let a partition be handed out, in the order of what has waited for longest."""
        if self.shelf.ordered and lane.ready and not lane.out:
            self._free.put(_head(lane), partition or "", len(self.lanes))

    def _is_free(self, head: Head, partition: str) -> bool:
        lane = self.lanes.get(partition)
        return lane is not None and bool(lane.ready) and not lane.out and _head(lane) == head

    def take(self, count: int, partitions_max: int | None) -> list[_Run]:
        if self.shelf.ordered:
            return self._take_partitions(count, partitions_max)
        lanes = list(self.lanes.values())
        if len(lanes) == 1:
            return lanes[0].cut(count)
        shares = share([lane.out for lane in lanes], [lane.ready for lane in lanes], count)
        return [run for lane, part in zip(lanes, shares, strict=True) if part for run in lane.cut(part)]

    def _take_partitions(self, count: int, partitions_max: int | None) -> list[_Run]:
        runs: list[_Run] = []
        left = count if partitions_max is None else partitions_max
        while count and left and (partition := self._free.pop_oldest()) is not None:
            cut = self.lanes[partition].cut(count)
            count -= sum(map(len, cut))
            left -= 1
            runs.extend(cut)
        return runs

    def take_of(self, partition: str, count: int, behind: _Held | None) -> list[_Run]:
        """Take from one partition, unless it is out; but for whoever holds what is before."""
        lane = self.lanes.get(partition)
        is_mine = behind is not None and self.lane_key(behind.parcel) == partition
        return [] if lane is None or (lane.out and not is_mine) else lane.cut(count)

    def withdraw(self, partition: str, now: _Moment) -> list[Leased]:
        """Lease what is ready of a partition to nobody; forget what is noted."""
        lane = self.lanes.get(partition)
        if lane is None:
            return []
        noted = [
            Leased(self.new_lease(parcel), parcel, range(len(parcel)), "", now.at, now.at)
            for parcel in lane.noted.values()
        ]
        self.doubt = self.doubt or bool(noted)
        for parcel in lane.noted.values():
            self._count_noted(parcel.flow, -1)
        lane.noted.clear()
        ready = [
            self.lease(run.parcel, range(run.begin, run.end), "", now, WITHDRAWN_SECONDS)
            for run in lane.cut(lane.ready)
        ]
        if lane.is_empty():
            del self.lanes[partition]
        return ready + noted

    def spare(self, messages: int, size: int, besides: str, now: _Moment) -> list[Leased]:
        """Withdraw free partitions, the last first, until so much is."""
        spared: list[Leased] = []
        kept = False
        while messages > 0 or size > 0:
            partition = self._free.pop_newest()
            if partition is None:
                break
            if partition == besides:
                kept = True
                continue
            for one in self.withdraw(partition, now):
                if one.deadline > now.at:
                    messages -= len(one.places)
                    size -= one.parcel.size
                spared.append(one)
        if kept:
            self._let_out(besides, self.lanes[besides])
        return sorted(spared, key=lambda one: one.deadline == now.at)  # what was only noted comes last

    def lease(
        self, parcel: Parcel, places: Sequence[int], worker: str, now: _Moment, seconds: float
    ) -> Leased:
        lease, deadline = self.new_lease(parcel), now.steady + int(seconds * _SECOND)
        leased = Leased(lease, parcel, places, worker, now.at, now.when(deadline))
        self.held[lease.number] = _Held(lease, parcel, set(leased.offsets()), worker, now.at, deadline)
        self.expire_at(deadline, lease.number)
        return leased

    def expire_at(self, deadline: int, number: int) -> None:
        """Remember when a lease expires; those that are over are dropped when they are most of them."""
        heapq.heappush(self.deadlines, (deadline, number))
        if len(self.deadlines) > 2 * len(self.held) + _OVER_MAX:
            self.deadlines = [(held.deadline, number) for number, held in self.held.items()]
            heapq.heapify(self.deadlines)

    def new_lease(self, parcel: Parcel) -> Lease:
        return Lease(
            self.shelf.group, self.epoch, next(self._numbers), parcel.claim, parcel.first, parcel.count,
            parcel.attempts, parcel.start_time, parcel.prev_start_time, parcel.partition,
        )  # fmt: skip

    def finish(self, held: _Held, offsets: Iterable[int]) -> None:
        """Take messages off the shelf."""
        gone = self._take_back(held, offsets)
        parcel = held.parcel
        self.messages -= gone
        self.flows[parcel.flow] -= gone
        self._left[parcel.key] -= gone
        if not self._left[parcel.key]:
            del self._left[parcel.key]
            self.bytes -= parcel.size
        if not self.flows[parcel.flow]:
            del self.flows[parcel.flow]
        key = self.lane_key(parcel)
        if self.lanes[key].is_empty():
            del self.lanes[key]

    def release(self, held: _Held, offsets: Iterable[int]) -> None:
        """Make messages ready again."""
        lane, back = self.lanes[self.lane_key(held.parcel)], held.offsets.intersection(offsets)
        for begin, end in runs_of(places_of(held.parcel, back)):
            self._ready(held.parcel, lane, begin, end)
        self._take_back(held, back)

    def _take_back(self, held: _Held, offsets: Iterable[int]) -> int:
        """Take messages from a lease; what becomes of them is up to the caller."""
        lane = self.lanes[self.lane_key(held.parcel)]
        before = len(held.offsets)
        held.offsets.difference_update(offsets)
        gone = before - len(held.offsets)
        lane.out -= gone
        if not held.offsets:
            self.held.pop(held.lease.number, None)
        self._let_out(held.parcel.partition, lane)
        return gone

    def expired(self, now: _Moment) -> _Held | None:
        """Take away the lease that expired first."""
        if (first := self.next_expiry()) is None or first > now.steady:
            return None
        _, number = heapq.heappop(self.deadlines)
        return self.held.pop(number)

    def next_expiry(self) -> int | None:
        while self.deadlines:
            deadline, number = self.deadlines[0]
            held = self.held.get(number)
            if held is not None and held.deadline == deadline:
                return deadline
            heapq.heappop(self.deadlines)
        return None

    def noted(self) -> Iterator[Parcel]:
        return (parcel for lane in self.lanes.values() for parcel in lane.noted.values())

    def ready(self) -> Iterator[_Run]:
        return (run for lane in self.lanes.values() for run in lane.runs)


class MemoryWarm:
    """See the module; `name` tells this process from all others.

    `steady` gives the microseconds of a clock that never jumps; where a clock is given, it is that one.
    """

    shared = False

    def __init__(
        self, name: str, *, clock: Clock | None = None, steady: Callable[[], int] | None = None
    ) -> None:
        self.name = name
        self._clock = clock or SystemClock()
        self._steady = steady or (_monotonic if clock is None else clock.now)
        self._shelves: dict[int, _Contents] = {}
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
        epoch = epoch_name(f"m{next(self._numbers)}", shelf)
        self._shelves[shelf.group] = _Contents(shelf, epoch, self._numbers)
        return epoch

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
        return [contents.lease(run.parcel, range(run.begin, run.end), worker, now, seconds) for run in runs]

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
            held.deadline = now + int(seconds * _SECOND)
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
        return [
            Leased(
                h.lease, msgspec.structs.replace(h.parcel, block=None), h.places(), h.worker,
                h.since, now.when(h.deadline),
            )
            for h in longest
        ]  # fmt: skip

    # Look-ups

    def _now(self) -> _Moment:
        return _Moment(self._clock.now(), self._steady())

    def _contents(self, shelf: Shelf, epoch: str) -> _Contents:
        contents = self._shelves.get(shelf.group)
        if contents is None or contents.epoch != epoch:
            raise EpochLost(f"the warm tier of {shelf.name} began anew", hint="fill it again")
        return contents

    def _filling(self, shelf: Shelf, fill: Fill) -> _Contents:
        contents = self._contents(shelf, fill.epoch)
        if contents.filling != fill.number:
            raise EpochLost(f"the fill of {shelf.name} is over", hint="begin another one")
        return contents

    def _held(self, shelf: Shelf, lease: Lease) -> _Held | None:
        contents = self._shelves.get(shelf.group)
        if contents is None or contents.epoch != lease.epoch:
            return None
        held = contents.held.get(lease.number)
        # Another process numbers its leases as we do: a task that was taken there isn't held here.
        return held if held is not None and held.lease == lease else None


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


def _head(lane: _Lane) -> tuple[int, int]:
    """What a partition has had waiting for longest."""
    return lane.runs[0].parcel.start_time, lane.runs[0].order[1]


def places_of(parcel: Parcel, offsets: Iterable[int]) -> list[int]:
    """The places of messages in their parcel, ascending."""
    base = parcel.offsets[0]
    if len(parcel) == parcel.offsets[-1] - base + 1:
        return sorted(o - base for o in offsets)
    places = {offset: place for place, offset in enumerate(parcel.offsets)}
    return sorted(places[o] for o in offsets)


def runs_of(places: Sequence[int]) -> Iterator[tuple[int, int]]:
    """The runs of consecutive numbers in an ascending sequence, as half-open ranges."""
    begin = 0
    for i in range(1, len(places) + 1):
        if i == len(places) or places[i] != places[i - 1] + 1:
            yield places[begin], places[i - 1] + 1
            begin = i
