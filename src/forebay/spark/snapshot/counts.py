"""Counts: what some messages add to the rich series, by the values of labels. They add up."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, TypeAlias

import msgspec

from forebay.observe.document import SERIES_MAX, Document, Family, snapshot_family
from forebay.observe.metric_table import TABLE

__all__ = [
    "ATTEMPTS",
    "CANCELLED",
    "DEAD",
    "DELAYED",
    "DELIVERIES",
    "DELIVERY_AGES",
    "DONE",
    "EVENTS",
    "EVENT_AGES",
    "LEASED",
    "NONE",
    "PASSED",
    "PASSED_CODE",
    "READY",
    "STATUSES",
    "Counts",
    "Key",
    "decode_counts",
    "encode_counts",
    "rich_document",
    "rich_families",
    "total",
]  # fmt: skip

Key: TypeAlias = tuple[str, ...]

STATUSES: Final = ("", "ready", "leased", "delayed", "dead", "cancelled", "done", "passed")
"""Statuses by their codes. Of a message, the smallest of its groups counts: the furthest from done."""
NONE, READY, LEASED, DELAYED, DEAD, CANCELLED, DONE, PASSED_CODE = range(8)
PASSED: Final = "passed:"
"""Begins the status of messages that a group has come past without an outcome; its number follows."""


class Counts(msgspec.Struct, array_like=True):
    """Numbers by values of labels, in the order of the labels of each family. Ages are times in µs."""

    events: dict[Key, int] = msgspec.field(default_factory=dict)
    deliveries: dict[Key, int] = msgspec.field(default_factory=dict)
    attempts: dict[Key, int] = msgspec.field(default_factory=dict)
    event_ages: dict[Key, int] = msgspec.field(default_factory=dict)
    delivery_ages: dict[Key, int] = msgspec.field(default_factory=dict)
    books: dict[Key, int] = msgspec.field(default_factory=dict)
    """By the number of a group and a status, as the store counts: ready, leased, delayed, dead, passed."""
    next_due: int | None = None
    """When the first of what is delayed is due."""

    def add(self, other: Counts) -> None:
        """Add what others count."""
        for mine, more in zip(_sums(self), _sums(other), strict=True):
            for key, number in more.items():
                mine[key] = mine.get(key, 0) + number
        for mine, more in zip(_ages(self), _ages(other), strict=True):
            for key, since in more.items():
                mine[key] = min(mine.get(key, since), since)
        dues = [due for due in (self.next_due, other.next_due) if due is not None]
        self.next_due = min(dues, default=None)

    def take_off(self, other: Counts) -> None:
        """Take off sums that were added before; ages stay as they are."""
        for mine, less in zip(_sums(self), _sums(other), strict=True):
            for key, number in less.items():
                left = mine[key] - number
                if left:
                    mine[key] = left
                else:
                    del mine[key]

    def apart(self) -> tuple[Counts, Counts]:
        """The sums, and the ages with what is due: these can't be taken off."""
        return (
            Counts(self.events, self.deliveries, self.attempts, {}, {}, self.books),
            Counts(event_ages=self.event_ages, delivery_ages=self.delivery_ages, next_due=self.next_due),
        )


def _sums(counts: Counts) -> tuple[dict[Key, int], ...]:
    return counts.events, counts.deliveries, counts.attempts, counts.books


def _ages(counts: Counts) -> tuple[dict[Key, int], ...]:
    return counts.event_ages, counts.delivery_ages


def total(parts: Iterable[Counts]) -> Counts:
    """The sum of all."""
    found = Counts()
    for part in parts:
        found.add(part)
    return found


class _Packed(msgspec.Struct, array_like=True):
    """Counts as they are written: keys are lists."""

    tables: list[list[tuple[Key, int]]]
    next_due: int | None


_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(_Packed).decode


def encode_counts(counts: Counts) -> bytes:
    """Counts as bytes."""
    tables = (*_sums(counts), *_ages(counts))
    return _encode(_Packed([list(table.items()) for table in tables], counts.next_due))


def decode_counts(data: bytes) -> Counts:
    """Counts from bytes."""
    packed = _decode(data)
    events, deliveries, attempts, books, event_ages, delivery_ages = map(dict, packed.tables)
    return Counts(events, deliveries, attempts, event_ages, delivery_ages, books, packed.next_due)


EVENTS: Final = "forebay_event_queue"
EVENT_AGES: Final = "forebay_event_queue_oldest_age_seconds"
DELIVERIES: Final = "forebay_event_delivery_queue"
DELIVERY_AGES: Final = "forebay_event_delivery_queue_oldest_age_seconds"
ATTEMPTS: Final = "forebay_event_delivery_attempts"

_STATUS_AT: Final = TABLE[DELIVERIES].labels.index("status")


def rich_families(
    counts: Counts, purged: Mapping[int, int] | None = None, *, series_max: int = SERIES_MAX
) -> list[Family]:
    """The five families.

    `purged` is by group how many messages it purged or skipped. What a group has come past without an outcome
    was skipped if it purged so many, and otherwise a reader that keeps its own place is done with it.
    """
    skipping = _skipping(counts, purged or {})
    deliveries = [
        (_settled(key, skipping), float(number)) for key, number in counts.deliveries.items() if number
    ]
    series = {
        EVENTS: _floats(counts.events),
        EVENT_AGES: _seconds(counts.event_ages),
        DELIVERIES: deliveries,
        DELIVERY_AGES: _seconds(counts.delivery_ages),
        ATTEMPTS: _floats(counts.attempts),
    }
    return [snapshot_family(name, rows, series_max=series_max) for name, rows in series.items()]


def rich_document(
    counts: Counts, purged: Mapping[int, int], taken_at: float, *, series_max: int = SERIES_MAX
) -> Document:
    """The five families as they are published."""
    return Document(taken_at=taken_at, families=rich_families(counts, purged, series_max=series_max))


def _skipping(counts: Counts, purged: Mapping[int, int]) -> set[str]:
    passed = {group: n for (group, status), n in counts.books.items() if status == "passed"}
    return {group for group, n in passed.items() if 0 < n <= purged.get(int(group), 0)}


def _settled(key: Key, skipping: set[str]) -> Key:
    status = key[_STATUS_AT]
    if not status.startswith(PASSED):
        return key
    known = "cancelled" if status.removeprefix(PASSED) in skipping else "done"
    return (*key[:_STATUS_AT], known, *key[_STATUS_AT + 1 :])


def _floats(table: Mapping[Key, int]) -> list[tuple[Key, float]]:
    return [(key, float(number)) for key, number in table.items() if number]


def _seconds(table: Mapping[Key, int]) -> list[tuple[Key, float]]:
    return [(key, since / 1_000_000) for key, since in table.items()]
