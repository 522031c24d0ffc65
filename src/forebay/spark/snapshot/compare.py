"""Compare a fold in steps with a fold from nothing, and with the books of the store: pure functions.

What is compared moves while it is looked at: a number counts as different when it is none of those that the
incremental fold had before and after.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

import msgspec

from forebay.log.values import GroupStats, Stats
from forebay.observe.document import Document
from forebay.spark.snapshot.counts import Counts

__all__ = ["Difference", "compare_books", "compare_documents", "lasting", "shown_labels"]


class Difference(msgspec.Struct, frozen=True):
    """A number that is not what it should be."""

    against: Literal["recomputation", "counters"]
    series: str
    labels: dict[str, str]
    folded: float | None
    expected: float | None

    @property
    def key(self) -> tuple[str, str, tuple[tuple[str, str], ...]]:
        """What it is about."""
        return self.against, self.series, tuple(self.labels.items())


def compare_documents(before: Document, after: Document, expected: Document) -> list[Difference]:
    """Where a recomputation that ran between two rounds differs from both."""
    found = []
    for one, other, right in zip(before.families, after.families, expected.families, strict=True):
        first, last, wanted = dict(one.series), dict(other.series), dict(right.series)
        for key in sorted(first.keys() | last.keys() | wanted.keys()):
            if not _lies_between(first.get(key), wanted.get(key), last.get(key)):
                labels = dict(zip(right.labels, key, strict=True))
                found.append(Difference("recomputation", right.name, labels, last.get(key), wanted.get(key)))
    return found


def compare_books(before: Counts, after: Counts, stats: Stats, queues: Sequence[str]) -> list[Difference]:
    """Where the store's counters, read between two rounds, differ from both."""
    found = []
    for queue in stats.queues:
        if queue.queue.name not in queues:
            continue
        for group in queue.groups:
            for status, number in _books(group):
                key = (str(group.group.number), status)
                first, last = before.books.get(key, 0), after.books.get(key, 0)
                if not _lies_between(first, number, last):
                    labels = {"queue": queue.queue.name, "group": group.group.name, "status": status}
                    found.append(Difference("counters", "forebay_event_delivery_queue", labels, last, number))
    return found


def _books(stats: GroupStats) -> Iterator[tuple[str, int]]:
    yield "ready", stats.ready + stats.held - stats.handed + stats.due
    yield "leased", stats.handed
    yield "delayed", stats.delayed + stats.deferred - stats.due
    yield "dead", stats.dead


def _lies_between(first: float | None, wanted: float | None, last: float | None) -> bool:
    if None in (first, wanted, last):
        return wanted in (first, last)
    assert first is not None and wanted is not None and last is not None, "looked at above"  # noqa: PT018
    return min(first, last) <= wanted <= max(first, last)


def lasting(tries: Sequence[Sequence[Difference]]) -> list[Difference]:
    """Those that were found in every try: what moved meanwhile was found in some only."""
    keys = [{each.key for each in found} for found in tries]
    return [each for each in tries[-1] if all(each.key in known for known in keys)] if tries else []


def shown_labels(labels: Mapping[str, str]) -> str:
    """Labels as people read them."""
    return ", ".join(f"{name}={value}" for name, value in labels.items() if value)
