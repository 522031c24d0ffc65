"""Where a read begins and ends, and how it is cut into tasks: pure functions on sequence numbers.

A stretch is half open: it has `first`, and it doesn't have `end`. Invariants: the parts of a stretch are
adjacent and in order, without gap or overlap; what is admitted is never more than the limit, nor past the
latest, and no queue waits for another's backlog.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

PART_MESSAGES: Final = 65_536
"""Messages of one task where nobody says how many tasks there should be: every core gets some."""
PART_MESSAGES_MAX: Final = 262_144
"""Messages of one task at most: few enough to try again. A task costs as much as some 10,000 messages do."""


class Stretch(msgspec.Struct, frozen=True):
    """Consecutive messages of one queue, by their sequence numbers."""

    queue: str
    first: int
    end: int

    def __len__(self) -> int:
        """How many there are."""
        return max(0, self.end - self.first)


class Offset(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The place of a stream, as Spark keeps it in its checkpoint."""

    queues: dict[str, int]
    """By queue, the sequence number of the next message."""
    numbers: dict[str, int]
    """By queue, its number: another queue of the same name has another one."""
    group: str | None = None
    """The group that follows, if any."""
    at: str = ""
    """Which log it is, without saying its address."""
    began: dict[str, int] = {}
    """Queues that the batch before this place was the first to read, and where it began to."""
    skipped: dict[str, int] = {}
    """By queue, how many messages were gone since the stream began."""

    def as_json(self) -> dict[str, Any]:
        """What Spark writes as JSON."""
        return dict(sorted(msgspec.to_builtins(self).items()))

    @classmethod
    def of(cls, value: Mapping[str, Any]) -> Offset:
        """From what Spark has read; ValidationError when it is no offset of ours."""
        return msgspec.convert(value, cls)

    def stretches(self, end: Offset) -> list[Stretch]:
        """What lies between this place and a later one."""
        found = []
        for queue, last in end.queues.items():
            first = self.queues.get(queue, end.began.get(queue, 1))
            if first < last:
                found.append(Stretch(queue, first, last))
        return found


def split(stretches: Sequence[Stretch], least: int = 1, most: int | None = None) -> list[Stretch]:
    """Cut into at least `least` parts, if there are so many messages, of at most `most` messages each."""
    if most is None:
        most = PART_MESSAGES if least == 1 else PART_MESSAGES_MAX
    total = sum(map(len, stretches))
    if not total:
        return []
    size = max(1, min(most, total // max(1, least)))
    parts: list[Stretch] = []
    for stretch in stretches:
        count = -(-len(stretch) // size)
        # Parts of a stretch are alike in size: the last one is not a splinter.
        edges = [stretch.first + len(stretch) * i // count for i in range(count)] if count else []
        ends = [*edges[1:], stretch.end]
        parts.extend(Stretch(stretch.queue, *edge) for edge in zip(edges, ends, strict=False))
    return parts


def admit(start: Mapping[str, int], latest: Mapping[str, int], limit: int | None) -> dict[str, int]:
    """Where a batch from `start` ends: at the latest, or so that it has `limit` messages at most.

    Every queue gets an equal share; what one doesn't need goes to the others. Where there is less than a
    message for each, they take turns.
    """
    backlog = {queue: max(0, latest[queue] - start[queue]) for queue in sorted(latest)}
    shares = backlog if limit is None else _shares(backlog, limit, turn=sum(start.values()))
    return {queue: start[queue] + share for queue, share in shares.items()}


def _shares(backlog: Mapping[str, int], limit: int, *, turn: int) -> dict[str, int]:
    shares = dict.fromkeys(backlog, 0)
    hungry = [queue for queue in backlog if backlog[queue]]
    while hungry and limit >= len(hungry):
        share = min(limit // len(hungry), *(backlog[queue] - shares[queue] for queue in hungry))
        for queue in hungry:
            shares[queue] += share
        limit -= share * len(hungry)
        hungry = [queue for queue in hungry if shares[queue] < backlog[queue]]
    for i in range(min(limit, len(hungry))):
        shares[hungry[(turn + i) % len(hungry)]] += 1
    return shares
