"""What is on one shelf in memory, in one epoch: ready, out or noted. Nothing here waits or tells the time."""

from __future__ import annotations

import heapq
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import msgspec

from forebay.model import Flow
from forebay.warm.free import Free, Head
from forebay.warm.seam import RETURN_SECONDS, RETURNS_MAX, WITHDRAWN_SECONDS
from forebay.warm.sharing import share
from forebay.warm.values import Lease, Leased, Parcel, Return, Shelf

SECOND: Final = 1_000_000
_OVER_MAX: Final = 1_000
"""So many leases that are over may be remembered, beside as many as are out."""


class Moment(NamedTuple):
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
    leases: set[int] = field(default_factory=set)
    """The numbers of those that are out, of a partition of an ordered shelf."""

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
class Held:
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

    def places_after(self, message_id: int) -> list[int]:
        """The places of its messages past one of this id, ascending."""
        return places_of(self.parcel, [o for o in self.offsets if self.parcel.first + o > message_id])


class Contents:
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
        self.held: dict[int, Held] = {}
        self.deadlines: list[tuple[int, int]] = []
        self.filling = 0
        self.doubt = False
        self._numbers = numbers
        self._left: dict[tuple[int, int], int] = {}
        """How many messages of a parcel are left: its bytes are freed with the last."""
        self._free = Free(self._is_free)
        self._returns: dict[str, Return] = {}
        self._return_of_all: Return | None = None

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

    def take_of(self, partition: str, count: int, behind: Held | None) -> list[_Run]:
        """Take from one partition, unless it is out; but for whoever holds what is before."""
        lane = self.lanes.get(partition)
        is_mine = behind is not None and self.lane_key(behind.parcel) == partition
        return [] if lane is None or (lane.out and not is_mine) else lane.cut(count)

    def withdraw_all(self, now: Moment) -> list[Leased]:
        """Lease all that is ready to nobody; forget what is noted."""
        return [one for key in list(self.lanes) for one in self.withdraw(key, now)]

    def withdraw(self, key: Hashable, now: Moment) -> list[Leased]:
        """Lease what is ready of a lane to nobody; forget what is noted."""
        lane = self.lanes.get(key)
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
            del self.lanes[key]
        return ready + noted

    def out_after(self, partition: str, message_id: int, now: Moment) -> list[tuple[Held, list[int]]]:
        """The leases of a partition that hold something past a message, each with the places of that."""
        lane = self.lanes.get(partition) if self.shelf.ordered else None
        live = [self.held[number] for number in lane.leases] if lane is not None else []
        out = [(h, h.places_after(message_id)) for h in live if h.deadline > now.steady]
        return [(held, places) for held, places in out if places]

    def spare(self, messages: int, size: int, besides: str, now: Moment) -> list[Leased]:
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
        self, parcel: Parcel, places: Sequence[int], worker: str, now: Moment, seconds: float
    ) -> Leased:
        lease, deadline = self.new_lease(parcel), now.steady + int(seconds * SECOND)
        leased = Leased(lease, parcel, places, worker, now.at, now.when(deadline))
        self.held[lease.number] = Held(lease, parcel, set(leased.offsets()), worker, now.at, deadline)
        if self.shelf.ordered:
            self.lanes[self.lane_key(parcel)].leases.add(lease.number)
        self.expire_at(deadline, lease.number)
        return leased

    def withhold(self, held: Held, offsets: Iterable[int], worker: str) -> Lease | None:
        """Move messages to a lease of their own with the same deadline; None if none of them is held."""
        kept = held.offsets.intersection(offsets)
        if not kept:
            return None
        lease = self.new_lease(held.parcel)
        self.held[lease.number] = Held(lease, held.parcel, kept, worker, held.since, held.deadline)
        self.lanes[self.lane_key(held.parcel)].leases.add(lease.number)
        self.expire_at(held.deadline, lease.number)
        held.offsets -= kept
        if not held.offsets:
            self._drop(held)
        return lease

    def returned(self, parcel: Parcel) -> Return | None:
        """The return noted for the partition of a parcel."""
        return self._return_of_all or self._returns.get(parcel.partition or "")

    def note_return(self, partition: str, last: int, now: Moment) -> None:
        """Note that messages of a partition go back, up to this id."""
        before = self._returns.get(partition)
        noted = Return(max(last, before.last if before else 0), next(self._numbers), now.steady)
        if before is None and len(self._returns) >= RETURNS_MAX:
            self._drop_old_returns(now)
        if before is None and len(self._returns) >= RETURNS_MAX:
            self._return_of_all = noted
        else:
            self._returns[partition] = noted

    def _drop_old_returns(self, now: Moment) -> None:
        since = now.steady - int(RETURN_SECONDS * SECOND)
        self._returns = {
            partition: noted
            for partition, noted in self._returns.items()
            if noted.at > since or partition in self.lanes
        }

    def forget_return(self, partition: str, returned: Return) -> None:
        """Forget a return, unless another one was noted since."""
        if self._returns.get(partition) == returned:
            del self._returns[partition]

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

    def finish(self, held: Held, offsets: Iterable[int]) -> None:
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

    def release(self, held: Held, offsets: Iterable[int]) -> None:
        """Make messages ready again."""
        lane, back = self.lanes[self.lane_key(held.parcel)], held.offsets.intersection(offsets)
        for begin, end in runs_of(places_of(held.parcel, back)):
            self._ready(held.parcel, lane, begin, end)
        self._take_back(held, back)

    def _take_back(self, held: Held, offsets: Iterable[int]) -> int:
        """Take messages from a lease; what becomes of them is up to the caller."""
        lane = self.lanes[self.lane_key(held.parcel)]
        before = len(held.offsets)
        held.offsets.difference_update(offsets)
        gone = before - len(held.offsets)
        lane.out -= gone
        if not held.offsets:
            self._drop(held)
        self._let_out(held.parcel.partition, lane)
        return gone

    def expired(self, now: Moment) -> Held | None:
        """Take away the lease that expired first."""
        if (first := self.next_expiry()) is None or first > now.steady:
            return None
        _, number = heapq.heappop(self.deadlines)
        return self._drop(self.held[number])

    def _drop(self, held: Held) -> Held:
        """Forget a lease."""
        number = held.lease.number
        self.held.pop(number, None)
        if self.shelf.ordered:
            self.lanes[self.lane_key(held.parcel)].leases.discard(number)
        return held

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
