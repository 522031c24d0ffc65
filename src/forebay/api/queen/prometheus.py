"""Numbers for Prometheus under the names that dashboards of Queen know, beside our own.

Invariants: queues are labels, so only so many of them are shown: those with the most messages that are not
finished; how many were left out is a number, too. Numbers of messages that went through are this server's
own, and are added up over servers; those of what waits are the log's, the same on each.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
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

if TYPE_CHECKING:
    from prometheus_client import Metric

    from forebay.api.context import Context

QUEUES_MAX: Final = 1_000
_MEDIA: Final = "text/plain; version=0.0.4; charset=utf-8"
_SECOND: Final = 1_000_000
_SERVER: Final = ("server",)
_CLUSTER: Final = ("cluster",)


async def prometheus(call: Call) -> Answer:
    """Our numbers, then Queen's. While the log is away those of queues are missing, and the rest is there."""
    call.key.check("read")
    context = call.context
    try:
        queues: Sequence[QueueStats] = (await call.desk.census.stats()).queues
    except Unavailable:
        queues = ()
    return Answer(context.counters.text().encode() + _text(_Numbers(context, queues)), media=_MEDIA)


def _text(numbers: Collector) -> bytes:
    registry = CollectorRegistry()
    registry.register(numbers)
    return generate_latest(registry)


class _Numbers(Collector):
    """Queen's names for what we know."""

    def __init__(self, context: Context, queues: Sequence[QueueStats]) -> None:
        self._context = context
        self._queues = queues

    def collect(self) -> Iterator[Metric]:
        """Put names and labels to the numbers."""
        yield from self._process()
        yield from self._messages()
        yield from _by_queue(self._queues)

    def _process(self) -> Iterator[Metric]:
        context, vital = self._context, vitals()
        spool = None if context.failover is None else context.failover.status()
        uptime = (context.clock.now() - context.desk.samples.began_at) / _SECOND
        gauges: Mapping[str, tuple[str, float]] = {
            "queen_uptime_seconds": ("Since the server was started.", max(0.0, uptime)),
            "queen_process_resident_memory_bytes": ("Memory that is resident.", vital.rss),
            "queen_process_virtual_memory_bytes": ("Memory that is mapped.", vital.virtual),
            "queen_parked_long_polls": ("Pops that wait.", len(context.waiting)),
            "queen_file_buffer_pending": ("Messages on disk.", 0 if spool is None else spool.pending),
            "queen_file_buffer_failed": ("What was set aside.", 0 if spool is None else spool.failed),
            "queen_file_buffer_db_healthy": ("Whether pushes go to the log.", int(context.is_healthy)),
            "queen_maintenance_mode_enabled": (
                "Whether pushes are held back.",
                int(context.desk.maintenance.push),
            ),
        }
        for name, (text, value) in gauges.items():
            yield GaugeMetricFamily(name, text, value=value)
        for kind, value in (("user", vital.user_us), ("system", vital.system_us)):
            yield CounterMetricFamily(f"queen_cpu_{kind}_microseconds", "Processor time.", value=value)

    def _messages(self) -> Iterator[Metric]:
        """What went through this server, which Queen counts for all servers together."""
        counts = look(self._context).counts
        failed = counts["retried"] + counts["buried"]
        totals = {
            "push_requests": ("Requests to push.", counts["push_requests"]),
            "pop_requests": ("Requests to pop.", counts["pop_requests"]),
            "ack_requests": ("Requests to acknowledge.", counts["ack_requests"]),
            "transactions": ("Transactions.", counts["transactions"]),
            "push_messages": ("Messages pushed.", counts["pushed"]),
            "pop_messages": ("Messages popped.", counts["taken"]),
            "ack_messages": ("Messages acknowledged.", counts["done"] + failed),
            "db_errors": ("Requests that failed since the log was away.", counts["log_errors"]),
            "dlq": ("Messages that became dead letters by an acknowledgement.", counts["buried"]),
        }
        for name, (text, value) in totals.items():
            family = CounterMetricFamily(f"queen_cluster_{name}", f"{text} On this server.", labels=["scope"])
            family.add_metric(_SERVER, value)
            yield family
        acks = CounterMetricFamily(
            "queen_cluster_ack",
            "Acknowledgements by result. On this server.",
            labels=["scope", "result"],
        )
        acks.add_metric((*_SERVER, "success"), counts["done"])
        acks.add_metric((*_SERVER, "failed"), failed)
        yield acks


def _by_queue(queues: Sequence[QueueStats]) -> Iterator[Metric]:
    """What is where, by queue."""
    counts = [(shown_queue(one.queue.name), counts_of(one)) for one in queues]
    counts.sort(key=lambda pair: (-_unfinished(pair[1]), pair[0]))
    total = GaugeMetricFamily("queen_dlq_depth", "Dead letters of all queues.", labels=["scope"])
    total.add_metric(_CLUSTER, sum(one.dead_letter for _, one in counts))
    yield total
    families = {
        "queen_dlq_depth_by_queue": ("Dead letters.", "dead_letter"),
        "queen_queue_depth_total": ("Messages that were ever pushed.", "total"),
        "queen_queue_depth_pending": ("Messages that wait.", "pending"),
        "queen_queue_depth_processing": ("Messages that are out with consumers.", "processing"),
    }
    for name, (text, field) in families.items():
        family = GaugeMetricFamily(name, text, labels=["queue"])
        for queue, one in counts[:QUEUES_MAX]:
            family.add_metric([queue], getattr(one, field))
        yield family
    left_out = max(0, len(counts) - QUEUES_MAX)
    yield GaugeMetricFamily("queen_queues_left_out", "Queues without numbers of their own.", value=left_out)


def _unfinished(counts: Counts) -> int:
    return counts.pending + counts.processing + counts.dead_letter


ROUTES: Final = (
    queen_route("GET", "/metrics/prometheus", prometheus, "Numbers under Queen's names", scope="read"),
)
