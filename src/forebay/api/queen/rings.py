"""Queues that are in memory only: rings of messages, and how far each group is with them. Pure; no clock.

A partition is a ring; a group has a place in each ring, what is out with its consumers, and what comes back.
Invariants: a message is handed to one consumer of a group at a time, until its lease is over; ids are used
once, and say of which life of the queue they are and how often the message came back, so what comes too late
changes nothing. A message leaves its ring when every group is done with it, or when it is dropped: too old,
too often, or to make room. Everything is bounded: messages, bytes, partitions, groups. Times are µs.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Final, Literal, NamedTuple

import msgspec

from forebay.model import Full, Rejected

LENGTH_MAX: Final = 1_000_000
BYTES_MAX: Final = 256 << 20
PARTITIONS_MAX: Final = 10_000
GROUPS_MAX: Final = 100
IDLE_US: Final = 600 * 1_000_000
"""A group that nobody took for in so long is forgotten; so is a queue that nobody declared or used."""
_OVERHEAD: Final = 200
"""Bytes that a message costs besides its payload."""
_DEADLINES: Final = 10_000
"""So many leases that are over may be remembered beside those that are not."""
_SECOND: Final = 1_000_000

Outcome = Literal["acked", "redelivered", "stale", "unknown"]


class RingOptions(msgspec.Struct, frozen=True, rename="camel"):
    """What a queue in memory can be told."""

    max_bytes: Annotated[int, msgspec.Meta(ge=1, le=BYTES_MAX)] = 16 << 20
    max_length: Annotated[int, msgspec.Meta(ge=1, le=LENGTH_MAX)] = 100_000
    policy: str = "reject"
    """What happens to a push beyond these: it is refused, or the oldest messages are dropped (`drop…`)."""
    ttl_seconds: Annotated[float, msgspec.Meta(ge=0)] = 0
    """Messages that are older are dropped; 0 for never."""
    lease_seconds: Annotated[float, msgspec.Meta(gt=0, le=86_400)] = 30
    retry_limit: Annotated[int, msgspec.Meta(ge=0, le=1_000_000)] = 3
    """How often a message comes back before it is dropped."""
    window_buffer: Any = None
    """Kept and shown, and nothing more."""

    @property
    def drops(self) -> bool:
        """Whether old messages make room for new ones."""
        return self.policy.lower().startswith("drop")


class RingFull(Full):
    """A queue holds as much as it may, and drops nothing."""

    status = 429


class Item(NamedTuple):
    """A message in a ring."""

    number: int
    payload: bytes
    at: int


class Handed(NamedTuple):
    """A message that is handed out."""

    id: str
    partition: str
    payload: bytes
    attempts: int


@dataclass(slots=True)
class Place:
    """How far a group is with a ring."""

    position: int = 0
    """The first number that it was never handed."""
    out: dict[int, int] = field(default_factory=dict)
    """How often each message that is out came back before."""
    back: dict[int, int] = field(default_factory=dict)
    """The same for those that are to be handed out again."""

    def has_finished(self, number: int) -> bool:
        """Whether the group is done with a message."""
        return number < self.position and number not in self.out and number not in self.back


@dataclass(slots=True)
class Group:
    """A consumer group."""

    used_at: int
    places: dict[str, Place] = field(default_factory=dict)


class Ring:
    """One queue in memory."""

    def __init__(self, life: str, options: RingOptions, now: int) -> None:
        self._life = life
        self.options = options
        self.used_at = now
        self.bytes = 0
        self.length = 0
        self.dropped = 0
        """Messages that nobody was done with, since the queue was made."""
        self._next = 1
        self._items: dict[str, deque[Item]] = {}
        self._groups: dict[str, Group] = {}
        self._deadlines: list[tuple[int, str, str, int, int]] = []
        self._deadlines_max = _DEADLINES
        self._turn = 0

    # Coming in

    def push(self, partition: str, payloads: Sequence[bytes], now: int) -> None:
        """Take messages, all or none; RingFull where the queue is full and drops nothing."""
        self.expire(now)
        size = sum(map(cost_of, payloads))
        options = self.options
        if len(payloads) > options.max_length or size > options.max_bytes:
            text = f"{len(payloads)} messages of {size} bytes don't fit in the queue at all"
            raise Rejected(text, hint="push fewer at once, or raise maxLength and maxBytes")
        if partition not in self._items and len(self._items) >= PARTITIONS_MAX:
            raise Rejected(f"{PARTITIONS_MAX} partitions are in use", hint="use fewer partitions")
        over = self.length + len(payloads) > options.max_length or self.bytes + size > options.max_bytes
        if over and not options.drops:
            text = f"the queue holds {self.length} messages of {self.bytes} bytes, and is full"
            raise RingFull(text, hint="take from it first", retry_after_seconds=1.0)
        while self.length + len(payloads) > options.max_length or self.bytes + size > options.max_bytes:
            self._drop(min(self._items, key=lambda name: self._items[name][0].at))
        items = self._items.setdefault(partition, deque())
        # Without gaps in a partition, and past all that a partition of this name had before.
        number = items[-1].number + 1 if items else self._next
        items.extend(Item(number + index, payload, now) for index, payload in enumerate(payloads))
        self._next += len(payloads)
        self.length += len(payloads)
        self.bytes += size
        self.used_at = now

    # Going out

    def take(
        self, group: str, partition: str | None, count: int, now: int, *, leased: bool = True
    ) -> list[Handed]:
        """Messages for a group, of any partition or of one; costs by the number of partitions."""
        self.expire(now)
        found, self.used_at = self._group(group, now), now
        handed: list[Handed] = []
        names = [partition] if partition is not None else self._in_turn()
        for name in names:
            if len(handed) >= count:
                break
            if name in self._items:
                handed += self._hand(found, group, name, count - len(handed), now, leased=leased)
        if not leased:
            for name in {one.partition for one in handed}:
                self._tidy(name)
        return handed

    def _in_turn(self) -> list[str]:
        """All partitions, each time from another one on."""
        names = list(self._items)
        self._turn += 1
        start = self._turn % len(names) if names else 0
        return names[start:] + names[:start]

    def _group(self, name: str, now: int) -> Group:
        found = self._groups.get(name)
        if found is None:
            if len(self._groups) >= GROUPS_MAX:
                raise Rejected(f"{GROUPS_MAX} groups are in use", hint="use fewer groups")
            found = self._groups[name] = Group(now)
        found.used_at = now
        return found

    def _hand(
        self, group: Group, name: str, partition: str, count: int, now: int, *, leased: bool
    ) -> list[Handed]:
        items, place = self._items[partition], group.places.setdefault(partition, Place())
        first = items[0].number
        found = [(number, place.back.pop(number)) for number in sorted(place.back)[:count]]
        begin = max(place.position, first)
        end = min(begin + count - len(found), first + len(items))
        found += [(number, 0) for number in range(begin, end)]
        place.position = max(begin, end)
        deadline = now + round(self.options.lease_seconds * _SECOND)
        for number, attempts in found if leased else ():
            place.out[number] = attempts
            heapq.heappush(self._deadlines, (deadline, name, partition, number, attempts))
        if len(self._deadlines) > self._deadlines_max:
            self._forget_deadlines()
        return [
            Handed(
                f"{self._life}.{number}.{attempts}.{partition}",
                partition,
                items[number - first].payload,
                attempts,
            )
            for number, attempts in found
        ]

    # What became of it

    def settle(self, group: str, id: str, now: int, *, done: bool) -> Outcome:
        """A message is done with, or comes back."""
        life, _, rest = id.partition(".")
        number, _, rest = rest.partition(".")
        attempts, _, partition = rest.partition(".")
        if not (number.isascii() and number.isdigit() and attempts.isascii() and attempts.isdigit()):
            return "unknown"
        if life != self._life:
            return "stale"
        self.expire(now)
        place = self._place(group, partition)
        if place is None or int(number) not in place.out:
            return "stale" if place is not None and int(number) in place.back else "unknown"
        if place.out[int(number)] != int(attempts):
            return "stale"
        comes_back = not done and self._return(place, int(number))
        if done:
            del place.out[int(number)]
        self._tidy(partition)
        return "redelivered" if comes_back else "acked"

    def _place(self, group: str, partition: str) -> Place | None:
        found = self._groups.get(group)
        return None if found is None else found.places.get(partition)

    def _return(self, place: Place, number: int) -> bool:
        """Whether a message that is out comes back; it is dropped when it did so too often."""
        attempts = place.out.pop(number) + 1
        if attempts > self.options.retry_limit:
            self.dropped += 1
            return False
        place.back[number] = attempts
        return True

    # Time

    def next_deadline(self) -> int | None:
        """When the next lease may be over."""
        return self._deadlines[0][0] if self._deadlines else None

    def _forget_deadlines(self) -> None:
        """Forget the leases of what is settled, so that they are never many more than what is out."""
        self._deadlines = [
            lease
            for lease in self._deadlines
            if (place := self._place(lease[1], lease[2])) is not None and place.out.get(lease[3]) == lease[4]
        ]
        heapq.heapify(self._deadlines)
        self._deadlines_max = 2 * len(self._deadlines) + _DEADLINES

    def expire(self, now: int) -> None:
        """End leases that are over, drop messages that are too old, forget groups that nobody uses."""
        while self._deadlines and self._deadlines[0][0] <= now:
            _, group, partition, number, attempts = heapq.heappop(self._deadlines)
            place = self._place(group, partition)
            if place is not None and place.out.get(number) == attempts:
                self._return(place, number)
                self._tidy(partition)
        for name in [name for name, group in self._groups.items() if group.used_at + IDLE_US < now]:
            if not any(place.out for place in self._groups[name].places.values()):
                del self._groups[name]
        if self.options.ttl_seconds:
            oldest = now - round(self.options.ttl_seconds * _SECOND)
            for partition in list(self._items):
                while (items := self._items.get(partition)) and items[0].at < oldest:
                    self._drop(partition)

    def _tidy(self, partition: str) -> None:
        """Remove messages from the beginning of a ring that every group is done with."""
        items = self._items.get(partition)
        while (
            items
            and self._groups
            and all(
                partition in group.places and group.places[partition].has_finished(items[0].number)
                for group in self._groups.values()
            )
        ):
            self._remove(partition)

    def _drop(self, partition: str) -> None:
        self.dropped += 1
        self._remove(partition)

    def _remove(self, partition: str) -> None:
        """Remove the oldest message of a ring, and the ring with the last one."""
        items = self._items[partition]
        gone = items.popleft()
        self.length -= 1
        self.bytes -= cost_of(gone.payload)
        for group in self._groups.values():
            if (place := group.places.get(partition)) is not None:
                place.out.pop(gone.number, None)
                place.back.pop(gone.number, None)
        if not items:
            del self._items[partition]
            for group in self._groups.values():
                group.places.pop(partition, None)

    # What is shown

    def is_idle(self, now: int) -> bool:
        """Whether nobody would miss the queue."""
        return not self.length and self.used_at + IDLE_US < now

    def shown(self) -> dict[str, Any]:
        """Numbers of the queue and its groups."""
        groups = [
            {"group": name, "pending": self._pending(group), "leased": _leased(group)}
            for name, group in sorted(self._groups.items())
        ]
        return {
            "length": self.length,
            "bytes": self.bytes,
            "partitions": len(self._items),
            "dropped": self.dropped,
            "groups": groups,
        }

    def _pending(self, group: Group) -> int:
        """What a group has not been handed yet, or gets again."""
        waiting = 0
        for partition, items in self._items.items():
            place = group.places.get(partition) or Place()
            waiting += items[-1].number + 1 - max(place.position, items[0].number) + len(place.back)
        return waiting


def _leased(group: Group) -> int:
    return sum(len(place.out) for place in group.places.values())


def cost_of(payload: bytes) -> int:
    """What a message takes."""
    return len(payload) + _OVERHEAD
