"""What the server counts itself, as Prometheus reads it.

Invariants: counting is adding to a number; names and labels are put together when somebody asks. The labels
are those of routes and statuses, so there are as many series as the server has, whatever it is sent.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from prometheus_client.registry import Collector

from forebay.observe.document import snapshot_family
from forebay.observe.shown_metrics import ShownMetric, shown_histogram, shown_number, shown_numbers

if TYPE_CHECKING:
    from forebay.api.context import Context
    from forebay.failover.status import SpoolStatus
    from forebay.log.values import Appended

_SPOOLED_QUEUES_MAX: Final = 1_000
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
        self._others: list[Collector] = []
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
        self._others.append(collector)

    def remove(self, collector: Collector) -> None:
        """Show them no longer."""
        self._others.remove(collector)

    def collect(self) -> Iterator[ShownMetric]:
        """Put names and labels to the numbers."""
        yield from self._http()
        yield from self._gauges()
        if self._context.failover is not None:
            yield from _spooled(self._context.failover.status())
        for other in self._others:
            yield from other.collect()

    def _http(self) -> Iterator[ShownMetric]:
        requests = {
            (method, path, str(status)): count for (method, path, status), count in self._requests.items()
        }
        yield shown_numbers("forebay_http_requests_total", requests.items())
        durations = [((path,), each.counts, each.sum) for path, each in self._durations.items()]
        yield shown_histogram("forebay_http_request_seconds", _BOUNDS, durations)
        refused = Counter({**self.refused, "unread answers": self._context.unread.refused})
        yield _labelled("forebay_http_errors_total", self.errors)
        yield _labelled("forebay_http_refused_total", refused)
        yield _labelled("forebay_messages_total", self.messages)
        if self._context.keys is not None:
            yield _labelled("forebay_http_unauthorized_total", self._context.keys.refused)

    def _gauges(self) -> Iterator[ShownMetric]:
        context = self._context
        yield shown_number("forebay_http_connections", self.connections)
        yield shown_number("forebay_http_waiting", len(context.waiting))
        yield shown_number("forebay_http_pending_bytes", context.budget.used)
        yield shown_number("forebay_http_unread_bytes", context.unread.bytes)
        yield shown_number("forebay_ready", int(context.opened is not None))
        yield shown_number("forebay_database_healthy", int(context.is_healthy))
        yield shown_number("forebay_inbox_rejected", context.inbox_rejected())
        if context.warm_problem is not None:
            yield shown_number("forebay_warm_healthy", int(context.warm_problem() is None))


def _spooled(status: SpoolStatus) -> Iterator[ShownMetric]:
    numbers: dict[str, float] = {
        "forebay_outages_total": status.outages,
        "forebay_spool_flushed_total": status.flushed,
        "forebay_spool_settled_total": status.settled,
        "forebay_spool_late_total": status.late,
        "forebay_spool_pending": status.pending,
        "forebay_spool_failed": status.failed,
        "forebay_spool_refuses": int(status.refused is not None),
        "forebay_spool_settlements": status.settlements,
        "forebay_spool_files": status.files,
        "forebay_spool_bytes": status.bytes,
    }
    for name, value in numbers.items():
        yield shown_number(name, value)
    largest = sorted(((queue,), float(count)) for queue, count in status.queues.items() if count)
    by_queue = snapshot_family("forebay_spool_queue_pending", largest, series_max=_SPOOLED_QUEUES_MAX)
    yield shown_numbers("forebay_spool_queue_pending", by_queue.series)


def _labelled(name: str, counts: Counter[str]) -> ShownMetric:
    return shown_numbers(name, [((value,), count) for value, count in counts.items()])
