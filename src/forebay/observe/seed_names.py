"""The snapshot under the names of other systems, for dashboards that know those: pure functions on documents.

Convoy's five families are those that Spark computes. Without them, two are filled from the store's counters,
with the queue as `source` and the group as `endpoint`; the other labels are empty. The other three need what
only Spark knows, and are left out: messages counted once for all groups, and outcomes by HTTP status.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Final, Literal, TypeAlias

import msgspec

from forebay.observe.document import Document, Family, snapshot_family
from forebay.observe.metric_table import TABLE

__all__ = ["NAMES", "Names", "named"]

Names: TypeAlias = Literal["forebay", "convoy", "deltafi", "queen"]
"""Whose names `/metrics` has. Queen's also count what went through the server, so they are made there."""
NAMES: Final[tuple[Names, ...]] = ("forebay", "convoy", "deltafi", "queen")

_CONVOY: Final = {
    "forebay_event_queue": "convoy_event_queue_total",
    "forebay_event_queue_oldest_age_seconds": "convoy_event_queue_backlog_seconds",
    "forebay_event_delivery_queue": "convoy_event_delivery_queue_total",
    "forebay_event_delivery_queue_oldest_age_seconds": "convoy_event_delivery_queue_backlog_seconds",
    "forebay_event_delivery_attempts": "convoy_event_delivery_attempts_total",
}
_STATUSES: Final = {
    "ready": "Scheduled", "leased": "Processing", "delayed": "Retry", "done": "Success", "dead": "Failure",
    "cancelled": "Discarded", "purged": "Discarded", "expired": "Discarded",
}  # fmt: skip
"""Convoy's words for where a message is."""
_COUNTED: Final = {
    "forebay_queue_ready": "ready",
    "forebay_queue_leased": "leased",
    "forebay_queue_delayed": "delayed",
    "forebay_queue_dead": "dead",
    "forebay_queue_done": "done",
    "forebay_queue_purged": "purged",
    "forebay_queue_expired": "expired",
}


def named(document: Document, names: Collection[str]) -> Document:
    """The families of a document under all these names."""
    families = list(document.families) if "forebay" in names else []
    known = {family.name: family for family in document.families}
    if "convoy" in names:
        families.extend(_convoy(known))
    if "deltafi" in names:
        families.extend(_deltafi(known))
    return msgspec.structs.replace(document, families=families)


def _convoy(known: Mapping[str, Family]) -> Iterator[Family]:
    if not known.keys() & _CONVOY.keys():
        yield _deliveries(known)
        yield _backlog(known)
        return
    for ours, name in _CONVOY.items():
        family = known.get(ours)
        if family is not None:
            status = family.labels.index("status") if "status" in family.labels else None
            rows = [(_with_status(values, status), number) for values, number in family.series]
            yield snapshot_family(name, rows)


def _with_status(values: tuple[str, ...], at: int | None) -> tuple[str, ...]:
    if at is None:
        return values
    return (*values[:at], _STATUSES.get(values[at], values[at]), *values[at + 1 :])


def _deliveries(known: Mapping[str, Family]) -> Family:
    name = "convoy_event_delivery_queue_total"
    rows = [
        (_labelled(name, source=queue, endpoint=group, status=_STATUSES[status]), number)
        for ours, status in _COUNTED.items()
        for (queue, group), number in _series(known, ours)
    ]
    return snapshot_family(name, rows)


def _backlog(known: Mapping[str, Family]) -> Family:
    name = "convoy_event_delivery_queue_backlog_seconds"
    rows = [
        (_labelled(name, source=queue, endpoint=group), since)
        for (queue, group), since in _series(known, "forebay_queue_oldest_age_seconds")
    ]
    return snapshot_family(name, rows)


def _labelled(name: str, **values: str) -> tuple[str, ...]:
    return tuple(values.get(label, "") for label in TABLE[name].labels)


def _deltafi(known: Mapping[str, Family]) -> Iterator[Family]:
    # What waits: forebay_queue_warm has also what is out with workers.
    warm, cold = _series(known, "forebay_flow_warm"), _series(known, "forebay_queue_cold")
    queues = [((values[0],), 0.0) for values, _ in _series(known, "forebay_queue_warm")]
    sizes = [((values[0],), number) for values, number in warm]
    yield snapshot_family("gauge_action_queue_queue_size", [*queues, *sizes])
    yield snapshot_family("gauge_deltafile_coldQueuedCount", [((), sum(number for _, number in cold))])
    yield snapshot_family("gauge_deltafile_warmQueuedCount", [((), sum(number for _, number in warm))])


def _series(known: Mapping[str, Family], name: str) -> list[tuple[tuple[str, ...], float]]:
    return known[name].series if name in known else []
