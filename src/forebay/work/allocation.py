"""Allocation: how many job processors each queue gets from each worker. Pure: the clock is passed in.

Invariants: what is given is within the processors of a worker and the limits of its queues; every queue that
has work, and a worker for it, has a processor that serves it; the same input has the same result; where
little is to be gained, nothing is changed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from heapq import heapify, heappop, heapreplace
from typing import Final, TypeAlias

import msgspec

__all__ = ["Demand", "Memory", "Plan", "Rule", "Station", "allocate"]

UNMEASURED_SECONDS: Final = 1.0
"""What a task is thought to take of a queue that nobody has worked yet: enough to have it worked soon."""
Plan: TypeAlias = Mapping[str, Mapping[str, int]]
"""By worker and queue: how many processors may be at it."""
_Seats: TypeAlias = dict[str, dict[str, int]]


class Demand(msgspec.Struct, frozen=True, kw_only=True):
    """One queue."""

    tasks: int
    """That could be worked now, or are being worked."""
    seconds_per_task: float | None = None
    """What a processor takes for one, as measured lately; None if nobody has."""
    weight: float = 1.0
    """How much more its work counts than that of others."""


class Station(msgspec.Struct, frozen=True, kw_only=True):
    """One worker."""

    processors: int
    limits: Mapping[str, int]
    """The queues that it can serve, and with how many processors at most."""


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """What can be told of the rule."""

    heavy_seconds: float = 2.0
    """A queue is heavy when it has more work than this, and light again when it has less than half."""
    gain: float = 0.2
    """The slowest queue must be done sooner by this part of its time, or nothing is moved."""
    half_life_seconds: float = 5.0
    """After so long, half of a change of a queue's work is believed."""


class Memory(msgspec.Struct, frozen=True):
    """What one round leaves for the next; a new leader begins without."""

    at: float = 0.0
    work: Mapping[str, float] = {}
    """Seconds of work by queue, smoothed."""
    seconds_per_task: Mapping[str, float] = {}
    heavy: frozenset[str] = frozenset()


def allocate(
    demands: Mapping[str, Demand],
    stations: Mapping[str, Station],
    *,
    plan: Plan,
    memory: Memory,
    now: float,
    rule: Rule,
) -> tuple[Plan, Memory]:
    """Say how many processors of each worker (station) may be at each queue, and what to remember for later.

    1. The *work* of a queue is its tasks times the seconds that one takes: how long a single processor would
       be busy with it. It is smoothed, since both are noisy.
    2. A queue with little work is *light*, and left alone: all its workers may serve it, with as many
       processors as its limit says. Workers take turns among queues, so it waits for one batch at most; and
       when it has nothing to do, nothing is set aside for it.
    3. *Heavy* queues share the processors. Each gets one first, the floor. If there are fewer processors
       than heavy queues, several queues get the same one, and the worker takes turns among them, batch by
       batch.
    4. Each processor that is left goes to the queue that would otherwise be done last: the one with the most
       work, times its weight, for each processor that it has. So all are done at about the same time.
    5. If the result is hardly better than `plan`, which is what holds now, `plan` stays: moving for every
       little change would only have everybody on the way. It doesn't stay if a worker came or went, if a
       limit has changed, or if a heavy queue would have no processor.

    Ties are decided by name, so whoever computes it gets the same.
    """
    memory = _observed(demands, memory, now, rule)
    work = {
        queue: max(memory.work[queue], 1e-9) * demands[queue].weight
        for queue in sorted(memory.heavy)
        if any(_can_serve(station, queue) for station in stations.values())
    }
    seats = _seated(work, stations, plan)
    held = {name: {queue: plan.get(name, {}).get(queue, 0) for queue in work} for name in stations}
    if _is_valid(held, seats, stations, plan) and not _is_worth_it(held, seats, work, rule.gain):
        seats = held
    return _filled(seats, stations, work), memory


def _observed(demands: Mapping[str, Demand], memory: Memory, now: float, rule: Rule) -> Memory:
    """What is known of queues after another look at them."""
    believed = 1 - 0.5 ** (max(0.0, now - memory.at) / rule.half_life_seconds)
    work, measured, heavy = dict[str, float](), dict[str, float](), set[str]()
    for queue, demand in demands.items():
        seconds = demand.seconds_per_task
        if seconds is None:
            seconds = memory.seconds_per_task.get(queue)
        if seconds is not None:
            measured[queue] = seconds
        there = demand.tasks * (UNMEASURED_SECONDS if seconds is None else seconds)
        before = memory.work.get(queue, there)
        # What is gone is gone: never more than twice of what is there.
        work[queue] = min(before + believed * (there - before), 2 * there)
        if work[queue] > rule.heavy_seconds / (2 if queue in memory.heavy else 1):
            heavy.add(queue)
    return Memory(now, work, measured, frozenset(heavy))


def _can_serve(station: Station, queue: str) -> bool:
    return station.processors > 0 and station.limits.get(queue, 0) > 0


def _seated(work: Mapping[str, float], stations: Mapping[str, Station], plan: Plan) -> _Seats:
    """Processors for heavy queues: the floor first, then by who would be done last."""
    room = _Room(stations, work, plan)
    scarce = sorted(work, key=lambda queue: (len(room.serving[queue]), -work[queue], queue))
    for queue in scarce:  # first those that have the least choice
        room.take(queue, may_crowd=True)
    waiting = [(-work[queue] / room.totals[queue], queue) for queue in work]
    heapify(waiting)
    while waiting:
        _, queue = waiting[0]
        if room.take(queue, may_crowd=False):
            heapreplace(waiting, (-work[queue] / room.totals[queue], queue))
        else:
            heappop(waiting)
    return room.seats


class _Room:
    """Who has been given what so far."""

    def __init__(self, stations: Mapping[str, Station], heavy: Collection[str], plan: Plan) -> None:
        self.seats: _Seats = {name: {} for name in sorted(stations)}
        self.totals: Counter[str] = Counter()
        self.serving = {
            queue: [name for name in self.seats if _can_serve(stations[name], queue)] for queue in heavy
        }
        self._stations = stations
        self._plan = plan
        self._taken: Counter[str] = Counter()
        self._choices = Counter(name for names in self.serving.values() for name in names)

    def take(self, queue: str, *, may_crowd: bool) -> bool:
        """Give a queue one more processor, if there is one; with `may_crowd` also one that others have."""
        found = [name for name in self.serving[queue] if self._has_place(name, queue, may_crowd=may_crowd)]
        if not found:
            return False
        name = min(found, key=lambda name: self._preference(name, queue))
        self.seats[name][queue] = self.seats[name].get(queue, 0) + 1
        self._taken[name] += 1
        self.totals[queue] += 1
        return True

    def _has_place(self, name: str, queue: str, *, may_crowd: bool) -> bool:
        station = self._stations[name]
        is_open = may_crowd or self._taken[name] < station.processors
        return is_open and self.seats[name].get(queue, 0) < station.limits[queue]

    def _preference(self, name: str, queue: str) -> tuple[bool, int, bool, float, str]:
        """A free processor, where few others could be, where it is now, where there is the most room."""
        filled = self._taken[name] / self._stations[name].processors
        is_here = self._plan.get(name, {}).get(queue, 0) > self.seats[name].get(queue, 0)
        return filled >= 1, self._choices[name], not is_here, filled, name


def _is_valid(held: _Seats, seats: _Seats, stations: Mapping[str, Station], plan: Plan) -> bool:
    """Whether what holds now could go on."""
    if plan.keys() != stations.keys():
        return False
    for name, here in held.items():
        if sum(here.values()) != sum(seats[name].values()):
            return False
        if any(count > stations[name].limits.get(queue, 0) for queue, count in here.items()):
            return False
    totals = _totals(held)
    return all(totals[queue] for here in seats.values() for queue in here)


def _is_worth_it(held: _Seats, seats: _Seats, work: Mapping[str, float], gain: float) -> bool:
    """Whether the slowest of the queues that would be touched is done sooner by enough."""
    before, after = _totals(held), _totals(seats)
    touched = [queue for queue in work if before[queue] != after[queue]]
    return _slowest(touched, work, after) < (1 - gain) * _slowest(touched, work, before)


def _slowest(queues: Iterable[str], work: Mapping[str, float], totals: Mapping[str, int]) -> float:
    return max((work[queue] / totals[queue] for queue in queues), default=0.0)


def _totals(seats: _Seats) -> Counter[str]:
    totals: Counter[str] = Counter()
    for here in seats.values():
        totals.update(here)
    return totals


def _filled(seats: _Seats, stations: Mapping[str, Station], heavy: Collection[str]) -> Plan:
    """The whole plan: heavy queues as seated, light ones up to their limits."""
    return {
        name: {
            queue: seats[name].get(queue, 0) if queue in heavy else limit
            for queue, limit in sorted(station.limits.items())
        }
        for name, station in sorted(stations.items())
    }
