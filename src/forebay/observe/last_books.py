"""The books of queues as a snapshot has them, for when the log can't be asked.

Invariants: what was missing when it was counted is missing here; what a cap has folded into one series isn't
there. A snapshot has no numbers of queues and groups, so all of these are 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from forebay.log.values import Group, GroupStats, Queue, QueueSettings, QueueStats, Stats
from forebay.observe.document import OTHER, Document
from forebay.observe.history import numbers_of

__all__ = ["last_books"]

_SECOND: Final = 1_000_000
_NAMES: Final = ("accepted", "ready", "leased", "delayed", "dead", "done", "expired", "purged", "difference")


def last_books(document: Document, queue: str | None = None) -> Stats:
    """All books of a snapshot, or those of one queue; by name."""
    numbers = numbers_of(document, {f"forebay_queue_{name}" for name in _NAMES})
    counts = {name: numbers.get(f"forebay_queue_{name}", {}) for name in _NAMES}
    queues: dict[str, list[GroupStats]] = {}
    for labels in sorted(counts["accepted"]):
        name, group = labels
        if name != OTHER and queue in {None, name}:
            found = {each: int(series.get(labels, 0)) for each, series in counts.items()}
            queues.setdefault(name, []).append(_group(group, found))
    books = [
        QueueStats(queue=Queue(0, name, QueueSettings(), 0), next=1, floor=1, groups=groups)
        for name, groups in queues.items()
    ]
    return Stats(round(document.taken_at * _SECOND), books, is_last_known=True)


def _group(name: str, found: Mapping[str, int]) -> GroupStats:
    known = sum(found[each] for each in _NAMES[1:])
    return GroupStats(
        group=Group(0, 0, name, 1),
        accepted=found["accepted"],
        ready=found["ready"],
        held=found["leased"],
        deferred=found["delayed"],
        done=found["done"],
        dead=found["dead"],
        purged=found["purged"],
        expired=found["expired"],
        corrupt=found["accepted"] - known,  # the only place that has no series
        handed=found["leased"],
        due=0,
    )
