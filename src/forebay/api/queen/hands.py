"""What is out with Queen's clients: under which lease, and what it takes to settle it.

Queen's clients name a message by its partition and its transaction id, and all that one pop brought by one
lease; our store wants the task itself. Invariants: a message is out under one lease at a time; the newest
counts. Nothing here decides whether a lease still holds: the store does. What is over is forgotten: when it
is settled, when the message goes out again, and some time after its deadline.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Final, NamedTuple

from forebay.log.values import Queue
from forebay.model import MESSAGE_ID_MAX, queue_of
from forebay.store.values import Task

_NUMBERED: Final = "message:"
_DIGITS: Final = 20
_DEADLINES_SPARE: Final = 1_000
_GRACE_US: Final = 60_000_000
"""So long after its deadline a lease is remembered, so that who comes late is told so."""


class Place(NamedTuple):
    """A message for one group, as a client names it."""

    queue: int
    group: str
    partition: str
    transaction_id: str


@dataclass(slots=True, eq=False)
class Hand:
    """What one pop brought."""

    lease: str
    tasks: dict[Place, Task]
    deadline: int
    by_partition: dict[tuple[int, str], OrderedDict[int, Place]] = field(default_factory=dict)
    """What is left of a partition, in its order: a queue, since heads of a plain dict are found slowly."""


class Hands:
    """See the module."""

    def __init__(self) -> None:
        self._by_lease: dict[str, Hand] = {}
        self._by_place: dict[Place, Hand] = {}
        self._deadlines: list[tuple[int, str]] = []

    @property
    def leases(self) -> Mapping[str, Hand]:
        """What is out, by lease."""
        return self._by_lease

    def __len__(self) -> int:
        return len(self._by_place)

    def give(self, lease: str, group: str, tasks: Sequence[Task]) -> None:
        """Remember what a pop brought; each task has a transaction id, or its number for one."""
        deadline = max(task.deadline for task in tasks)
        hand = Hand(lease, {}, deadline)
        for task in sorted(tasks, key=lambda task: task.id):
            place = place_of(task, group)
            self._drop(place)
            hand.tasks[place] = task
            self._by_place[place] = hand
            lane = hand.by_partition.setdefault((place.queue, place.partition), OrderedDict())
            lane[task.id] = place
        self._by_lease[lease] = hand
        self._end_at(deadline, lease)

    def find(self, place: Place, lease: str | None) -> Task | None:
        """The task at a place, if it is out under this lease, or under any if none is named."""
        hand = self._by_place.get(place)
        if hand is None or (lease and hand.lease != lease):
            return None
        return hand.tasks[place]

    def lease(self, place: Place) -> str | None:
        """The lease under which a message is out."""
        hand = self._by_place.get(place)
        return None if hand is None else hand.lease

    def is_out(self, place: Place) -> bool:
        """Whether the message is out under any lease."""
        return place in self._by_place

    def hand(self, lease: str) -> Hand | None:
        """All that is out under a lease."""
        return self._by_lease.get(lease)

    def before(self, place: Place, id: int) -> Iterator[tuple[Place, Task]]:
        """What the lease of a place has of its partition before a message."""
        return takewhile(lambda one: one[1].id < id, self._lane(place))

    def after(self, place: Place, id: int) -> Iterator[tuple[Place, Task]]:
        """The same after it, the last one first."""
        return takewhile(lambda one: one[1].id > id, self._lane(place, backwards=True))

    def _lane(self, place: Place, *, backwards: bool = False) -> Iterator[tuple[Place, Task]]:
        hand = self._by_place.get(place)
        lane = {} if hand is None else hand.by_partition[place.queue, place.partition]
        for one in reversed(lane.values()) if backwards else lane.values():
            yield one, self._by_place[one].tasks[one]

    def settled(self, places: Iterable[Place]) -> set[tuple[int, str]]:
        """Forget messages; returns the partitions of which nothing is left under their lease."""
        freed: set[tuple[int, str]] = set()
        for place in places:
            hand = self._drop(place)
            if hand is not None and (place.queue, place.partition) not in hand.by_partition:
                freed.add((place.queue, place.partition))
        return freed

    def extended(self, lease: str, deadline: int) -> None:
        """A lease holds for longer."""
        hand = self._by_lease.get(lease)
        if hand is not None:
            hand.deadline = deadline
            self._end_at(deadline, lease)

    def _end_at(self, deadline: int, lease: str) -> None:
        """Look at a lease at its deadline; those that are settled before are left out in time."""
        heapq.heappush(self._deadlines, (deadline, lease))
        if len(self._deadlines) > 2 * len(self._by_lease) + _DEADLINES_SPARE:
            self._deadlines = [(hand.deadline, lease) for lease, hand in self._by_lease.items()]
            heapq.heapify(self._deadlines)

    def counted(self, queues: Collection[int]) -> tuple[int, int]:
        """How many leases have something of these queues, and how many partitions under them."""
        parts = [sum(queue in queues for queue, _ in hand.by_partition) for hand in self._by_lease.values()]
        return sum(map(bool, parts)), sum(parts)

    def forget(self, queue: int, group: str, partition: str | None = None) -> None:
        """What is out of a group, or of one partition of it, isn't any more."""
        gone = [p for p in self._by_place if p.queue == queue and p.group == group]
        for place in gone:
            if partition in (None, place.partition):
                self._drop(place)

    def prune(self, now: int) -> None:
        """Forget leases that are long over."""
        while self._deadlines and self._deadlines[0][0] + _GRACE_US < now:
            _, lease = heapq.heappop(self._deadlines)
            hand = self._by_lease.get(lease)
            if hand is not None and hand.deadline + _GRACE_US < now:
                for place in list(hand.tasks):
                    self._drop(place)

    def _drop(self, place: Place) -> Hand | None:
        hand = self._by_place.pop(place, None)
        if hand is None:
            return None
        task, key = hand.tasks.pop(place), (place.queue, place.partition)
        del hand.by_partition[key][task.id]
        if not hand.by_partition[key]:
            del hand.by_partition[key]
        if not hand.tasks:
            self._by_lease.pop(hand.lease, None)
        return hand


def place_of(task: Task, group: str) -> Place:
    """How a client names a task of its group."""
    return Place(task.queue_num, group, task.partition, transaction_of(task.id, task.transaction_id))


def transaction_of(message_id: int, transaction_id: str | None) -> str:
    """The transaction id of a message; one that has none is named by its number."""
    return transaction_id if transaction_id is not None else f"{_NUMBERED}{message_id}"


def message_of(queue: Queue, transaction_id: str) -> int | None:
    """The id of a message of a queue that is named by its number; None for one that isn't."""
    number = transaction_id.removeprefix(_NUMBERED)
    if number == transaction_id or not (number.isascii() and number.isdigit() and len(number) < _DIGITS):
        return None
    id = int(number)
    return id if 0 < id <= MESSAGE_ID_MAX and queue_of(id) == queue.number else None
