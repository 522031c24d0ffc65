"""Numbers for Prometheus under the names that dashboards of Queen know, beside our own.

Invariants: queues are labels, so only so many of them are shown: those with the most messages that are not
finished; how many were left out is a number, too. Numbers of messages that went through are this server's
own, and are added up over servers; those of what waits are the log's, the same on each.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from prometheus_client import generate_latest
from prometheus_client.registry import Collector

from forebay.api.answers import Answer
from forebay.api.calls import Call
from forebay.api.queen.census import Counts, counts_of
from forebay.api.queen.names import shown_queue
from forebay.api.queen.readings import look
from forebay.api.queen.routes import queen_route
from forebay.api.queen.vitals import vitals
from forebay.log.values import QueueStats
from forebay.model import Unavailable
from forebay.observe.metrics_page import CLASSIC
from forebay.observe.shown_metrics import ShownMetric, shown_number, shown_numbers

if TYPE_CHECKING:
    from forebay.api.context import Context

QUEUES_MAX: Final = 1_000
_SECOND: Final = 1_000_000


async def prometheus(call: Call) -> Answer:
    """Our numbers, then Queen's. While the log is away those of queues are missing, and the rest is there."""
    call.key.check("read")
    context = call.context
    try:
        queues: Sequence[QueueStats] = (await call.desk.census.stats()).queues
    except Unavailable:
        queues = ()
    text = context.counters.text().encode() + generate_latest(QueenNumbers(context, queues))
    return Answer(text, media=CLASSIC)


class QueenNumbers(Collector):
    """Queen's names for what we know."""

    def __init__(self, context: Context, queues: Sequence[QueueStats]) -> None:
        self._context = context
        self._queues = queues

    def collect(self) -> Iterator[ShownMetric]:
        """Put names and labels to the numbers."""
        for name, value in {**self._gauges(), **_processor()}.items():
            yield shown_number(name, value)
        yield from self._messages()
        yield from _by_queue(self._queues)

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


def _by_queue(queues: Sequence[QueueStats]) -> Iterator[ShownMetric]:
    """What is where, by queue."""
    counts = [(shown_queue(one.queue.name), counts_of(one)) for one in queues]
    counts.sort(key=lambda pair: (-_unfinished(pair[1]), pair[0]))
    dead = sum(one.dead_letter for _, one in counts)
    yield shown_numbers("queen_dlq_depth", [(("cluster",), dead)])
    for name, field in _DEPTHS.items():
        rows = [((queue,), getattr(one, field)) for queue, one in counts[:QUEUES_MAX]]
        yield shown_numbers(name, rows)
    yield shown_number("queen_queues_left_out", max(0, len(counts) - QUEUES_MAX))


def _unfinished(counts: Counts) -> int:
    return counts.pending + counts.processing + counts.dead_letter


ROUTES: Final = (
    queen_route("GET", "/metrics/prometheus", prometheus, "Numbers under Queen's names", scope="read"),
)
