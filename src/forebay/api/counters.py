"""What the server counts itself, as Prometheus reads it.

Invariants: counting is adding to a number; names and labels are put together when somebody asks. The labels
are those of routes and statuses, so there are as many series as the server has, whatever it is sent.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator
from itertools import accumulate
from typing import TYPE_CHECKING, Final

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.openmetrics.exposition import generate_latest as generate_open_metrics
from prometheus_client.registry import Collector

if TYPE_CHECKING:
    from prometheus_client import Metric

    from forebay.api.context import Context
    from forebay.failover.status import SpoolStatus
    from forebay.log.values import Appended

_BOUNDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class _Durations:
    __slots__ = ("counts", "sum")

    def __init__(self) -> None:
        self.counts = [0] * (len(_BOUNDS) + 1)
        self.sum = 0.0


class Counters(Collector):
    """Numbers that only the server knows."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._registry = CollectorRegistry()
        self._registry.register(self)
        self._requests: Counter[tuple[str, str, int]] = Counter()
        self._durations: dict[str, _Durations] = {}
        self.errors: Counter[str] = Counter()
        """By the branch of the error tree."""
        self.messages: Counter[str] = Counter()
        """pushed, duplicate, taken, done, retried, buried, released, lost; of those pushed: spooled,
        buffered"""
        self.refused: Counter[str] = Counter()
        """Connections and requests that were turned away, by why."""
        self.connections = 0

    def pushed(self, appended: Appended) -> None:
        """Count the messages of a push by what became of them."""
        self.messages["pushed"] += appended.count
        if appended.where != "log":
            self.messages["spooled" if appended.where == "spool" else "buffered"] += appended.count
        if appended.duplicates:
            self.messages["duplicate"] += len(appended.duplicates)

    def answered(self, method: str, path: str, status: int, seconds: float, *, timed: bool) -> None:
        """Count a request."""
        self._requests[method, path, status] += 1
        if timed:
            durations = self._durations.get(path)
            if durations is None:
                durations = self._durations[path] = _Durations()
            durations.counts[bisect_left(_BOUNDS, seconds)] += 1
            durations.sum += seconds

    def requests(self) -> Counter[str]:
        """Requests by route."""
        found: Counter[str] = Counter()
        for (_, path, _), count in self._requests.items():
            found[path] += count
        return found

    def add(self, collector: Collector) -> None:
        """Show the numbers of something else, too, until they are removed."""
        self._registry.register(collector)

    def remove(self, collector: Collector) -> None:
        """Show them no longer."""
        self._registry.unregister(collector)

    def text(self, *, open_metrics: bool = False) -> str:
        """All numbers, as Prometheus reads them; without the last line of OpenMetrics."""
        if open_metrics:
            text: str = generate_open_metrics(self._registry).decode()  # type: ignore[no-untyped-call]
            return text.removesuffix("# EOF\n")
        return generate_latest(self._registry).decode()

    def collect(self) -> Iterator[Metric]:
        """Put names and labels to the numbers."""
        requests = CounterMetricFamily(
            "forebay_http_requests", "Requests answered.", labels=["method", "route", "status"]
        )
        for (method, path, status), count in self._requests.items():
            requests.add_metric([method, path, str(status)], count)
        yield requests
        seconds = HistogramMetricFamily(
            "forebay_http_request_seconds",
            "How long requests took, without those that wait.",
            labels=["route"],
        )
        for path, durations in self._durations.items():
            totals = accumulate(durations.counts)
            bounds = [*map(str, _BOUNDS), "+Inf"]
            seconds.add_metric([path], list(zip(bounds, totals, strict=True)), durations.sum)
        yield seconds
        yield _labelled("forebay_http_errors", "Problems answered, by kind.", "kind", self.errors)
        refused = Counter({**self.refused, "unread answers": self._context.unread.refused})
        yield _labelled("forebay_http_refused", "What was turned away, by reason.", "reason", refused)
        yield _labelled(
            "forebay_messages", "Messages that went through, by what was done.", "what", self.messages
        )
        keys = self._context.keys
        if keys is not None:
            text = "Keys and JWTs refused, by reason."
            yield _labelled("forebay_http_unauthorized", text, "reason", keys.refused)
        gauges = {
            "forebay_http_connections": ("Open connections.", self.connections),
            "forebay_http_waiting": ("Takes that wait for a task.", len(self._context.waiting)),
            "forebay_http_pending_bytes": ("Bodies being worked on.", self._context.budget.used),
            "forebay_http_unread_bytes": ("Answers not read yet.", self._context.unread.bytes),
            "forebay_ready": ("Whether the store is open.", int(self._context.opened is not None)),
            "forebay_database_healthy": ("Whether pushes go to the log.", int(self._context.is_healthy)),
        }
        text = "Rows of the SQL inbox that are rejected, up to 1,000."
        gauges["forebay_inbox_rejected"] = (text, self._context.inbox_rejected())
        if self._context.warm_problem is not None:
            is_there = int(self._context.warm_problem() is None)
            gauges["forebay_warm_healthy"] = ("Whether the shared warm tier is there.", is_there)
        for name, (text, value) in gauges.items():
            yield GaugeMetricFamily(name, text, value=value)
        if self._context.failover is not None:
            yield from _spooled(self._context.failover.status())


def _spooled(status: SpoolStatus) -> Iterator[Metric]:
    counts = {
        "forebay_spool_flushed": ("Messages that came from the spool to the log.", status.flushed),
        "forebay_outages": ("How often the log was lost.", status.outages),
        "forebay_spool_settled": ("Outcomes that were answered while the log was away.", status.settled),
        "forebay_spool_late": ("Tasks whose spooled outcome came to the log too late.", status.late),
    }
    for name, (text, count) in counts.items():
        yield CounterMetricFamily(name, text, value=count)
    gauges: dict[str, tuple[str, float]] = {
        "forebay_spool_pending": ("Messages that were accepted and are not in the log yet.", status.pending),
        "forebay_spool_failed": ("Messages and settlements that were set aside.", status.failed),
        "forebay_spool_rate": ("Messages replayed in a second, of late.", status.rate),
        "forebay_spool_refuses": (
            "Whether the spool takes no more messages.",
            int(status.refused is not None),
        ),
        "forebay_spool_settlements": ("Outcomes that wait for the log.", status.settlements),
        "forebay_spool_files": ("Files in the spool.", status.files),
        "forebay_spool_bytes": ("What they take on disk.", status.bytes),
    }
    for name, (text, value) in gauges.items():
        yield GaugeMetricFamily(name, text, value=value)


def _labelled(name: str, text: str, label: str, counts: Counter[str]) -> Metric:
    family = CounterMetricFamily(name, text, labels=[label])
    for value, count in counts.items():
        family.add_metric([value], count)
    return family
