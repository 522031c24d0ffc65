"""Numbers under the names that dashboards of Queen know.

Invariants: queues are labels, so only so many of them are shown: those with the most messages that are not
finished; how many were left out is a number, too. Numbers of messages that went through are this server's
own, and are added up over servers; those of what waits are the snapshot's, the same on each.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Final

from prometheus_client.registry import Collector

from forebay.api.queen.census import Counts
from forebay.api.queen.names import shown_queue
from forebay.api.queen.readings import look
from forebay.api.queen.vitals import vitals
from forebay.observe.document import Document
from forebay.observe.metrics_page import MetricsPage
from forebay.observe.shown_metrics import ShownMetric, shown_number, shown_numbers
from forebay.store.values import DEFAULT_GROUP

if TYPE_CHECKING:
    from forebay.api.context import Context

__all__ = ["QUEUES_MAX", "QueenMetrics", "depths", "metrics_page"]

QUEUES_MAX: Final = 1_000
_SECOND: Final = 1_000_000


def metrics_page(context: Context, names: Collection[str]) -> MetricsPage:
    """What a server counts itself, under these names."""
    found: dict[str, Collector] = {"forebay": context.counters, "queen": QueenMetrics(context)}
    return MetricsPage(*(found[name] for name in found if name in names))


class QueenMetrics(Collector):
    """Queen's names for what we know."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._document: Document | None = None
        self._depths: Mapping[str, Counts] = {}
        """Of that document, so that a scrape adds nothing up."""

    def collect(self) -> Iterator[ShownMetric]:
        """Put names and labels to the numbers."""
        for name, value in {**self._gauges(), **_processor()}.items():
            yield shown_number(name, value)
        yield from self._messages()
        snapshot = self._context.snapshot
        document = None if snapshot is None else snapshot.shown_document
        if document is not None:
            if document is not self._document:
                self._document, self._depths = document, depths(document)
            yield from _by_queue(self._depths)

    def _gauges(self) -> Mapping[str, float]:
        context, vital = self._context, vitals()
        spool = None if context.failover is None else context.failover.status()
        uptime = (context.clock.now() - context.desk.samples.began_at) / _SECOND
        return {
            "queen_uptime_seconds": max(0.0, uptime),
            "queen_process_resident_memory_bytes": vital.rss,
            "queen_process_virtual_memory_bytes": vital.virtual,
            "queen_parked_long_polls": len(context.waiting),
            "queen_file_buffer_pending": 0 if spool is None else spool.pending,
            "queen_file_buffer_failed": 0 if spool is None else spool.failed,
            "queen_file_buffer_db_healthy": int(context.is_healthy),
            "queen_maintenance_mode_enabled": int(context.desk.maintenance.push),
        }

    def _messages(self) -> Iterator[ShownMetric]:
        """What went through this server, which Queen counts for all servers together."""
        counts = look(self._context).counts
        failed = counts["retried"] + counts["buried"]
        totals = {
            "push_requests": counts["push_requests"],
            "pop_requests": counts["pop_requests"],
            "ack_requests": counts["ack_requests"],
            "transactions": counts["transactions"],
            "push_messages": counts["pushed"],
            "pop_messages": counts["taken"],
            "ack_messages": counts["done"] + failed,
            "db_errors": counts["log_errors"],
            "dlq": counts["buried"],
        }
        for name, value in totals.items():
            yield shown_numbers(f"queen_cluster_{name}_total", [(("server",), value)])
        results = [(("server", "success"), counts["done"]), (("server", "failed"), failed)]
        yield shown_numbers("queen_cluster_ack_total", results)


def _processor() -> Mapping[str, float]:
    vital = vitals()
    return {
        "queen_cpu_user_microseconds_total": vital.user_us,
        "queen_cpu_system_microseconds_total": vital.system_us,
    }


_DEPTHS: Final = {
    "queen_dlq_depth_by_queue": "dead_letter",
    "queen_queue_depth_total": "total",
    "queen_queue_depth_pending": "pending",
    "queen_queue_depth_processing": "processing",
}


def _by_queue(queues: Mapping[str, Counts]) -> Iterator[ShownMetric]:
    """What is where, by queue."""
    counts = sorted(queues.items(), key=lambda pair: (-_unfinished(pair[1]), pair[0]))
    dead = sum(one.dead_letter for _, one in counts)
    yield shown_numbers("queen_dlq_depth", [(("cluster",), dead)])
    for name, field in _DEPTHS.items():
        rows = [((queue,), getattr(one, field)) for queue, one in counts[:QUEUES_MAX]]
        yield shown_numbers(name, rows)
    yield shown_number("queen_queues_left_out", max(0, len(counts) - QUEUES_MAX))


def depths(document: Document) -> Mapping[str, Counts]:
    """Where the messages of each queue are, by the rules of `census.counts_of`, from a snapshot."""
    groups: dict[str, dict[str, dict[str, int]]] = defaultdict(lambda: defaultdict(dict))
    for family in document.families:
        if family.name in _PARTS:
            for (queue, group), number in family.series:
                groups[shown_queue(queue)][group][family.name] = round(number)
    return {queue: _depth(found) for queue, found in groups.items()}


_READY: Final = "forebay_queue_ready"
_DELAYED: Final = "forebay_queue_delayed"
_LEASED: Final = "forebay_queue_leased"
_DEAD: Final = "forebay_queue_dead"
_ACCEPTED: Final = "forebay_queue_accepted"
_PARTS: Final = frozenset((_READY, _DELAYED, _LEASED, _DEAD, _ACCEPTED))


def _depth(groups: Mapping[str, Mapping[str, int]]) -> Counts:
    found = [parts for parts in groups.values() if parts.keys() == _PARTS]
    waiting = {
        group: parts[_READY] + parts[_DELAYED] for group, parts in groups.items() if parts.keys() == _PARTS
    }
    used = [
        group
        for group, count in waiting.items()
        if group != DEFAULT_GROUP or groups[group][_ACCEPTED] > count
    ]
    counted = used or waiting
    return Counts(
        total=max((parts[_ACCEPTED] for parts in found), default=0),
        pending=max((waiting[group] for group in counted), default=0),
        processing=max((groups[group][_LEASED] for group in counted), default=0),
        dead_letter=sum(parts[_DEAD] for parts in found),
    )


def _unfinished(counts: Counts) -> int:
    return counts.pending + counts.processing + counts.dead_letter
