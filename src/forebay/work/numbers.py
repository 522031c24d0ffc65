"""What a worker counts: for Prometheus, and for its own report.

Invariants: counting is adding to a number, once for a batch; names and labels are put together when somebody
asks. Workers that share a registry share its numbers, which only grow, but for the gauges.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from itertools import accumulate
from typing import TYPE_CHECKING, ClassVar, Final
from weakref import WeakKeyDictionary

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

if TYPE_CHECKING:
    from prometheus_client import Metric

__all__ = ["Numbers", "QueueNumbers"]

CYCLE_SECONDS_MAX: Final = 10.0
"""A cycle should take no longer, so that a worker that is to stop stops soon."""
_BOUNDS: Final = (0.001, 0.005, 0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, CYCLE_SECONDS_MAX, 30.0, 60.0)
_SMOOTHING: Final = 0.2
_COUNTERS: Final = {
    "tasks_processed": ("processed", "Tasks that handlers were done with."),
    "tasks_errors": ("errors", "Tasks on which handlers failed."),
    "tasks_retried": ("retried", "Tasks that were sent back."),
    "tasks_buried": ("buried", "Tasks that were made dead letters."),
    "tasks_parked": ("parked", "Tasks left for another version of the program."),
    "tasks_lost": ("lost", "Tasks whose lease was lost before they were settled."),
    "handler_errors": ("handler_errors", "Calls of handlers that raised, or took too long."),
    "handlers_overdue": ("overdue", "Calls of handlers that took longer than `handle_seconds_max`."),
    "queue_job_processor_slow_cycles": ("slow_cycles", "Cycles that took longer than 10 seconds."),
}


class QueueNumbers:
    """Numbers of one queue."""

    __slots__ = (
        "buried", "cycles", "cycles_seconds", "errors", "handler_errors", "in_progress", "lost", "overdue",
        "parked", "processed", "retried", "seconds_per_task", "slow_cycles", "stragglers",
    )  # fmt: skip

    def __init__(self) -> None:
        self.processed = self.errors = self.retried = self.buried = self.parked = self.lost = 0
        self.handler_errors = self.overdue = self.slow_cycles = self.in_progress = self.stragglers = 0
        self.cycles = [0] * (len(_BOUNDS) + 1)
        self.cycles_seconds = 0.0
        self.seconds_per_task: float | None = None

    def cycle(self, seconds: float, tasks: int) -> None:
        """Count a batch that was taken and handled."""
        self.cycles[bisect_left(_BOUNDS, seconds)] += 1
        self.cycles_seconds += seconds
        self.slow_cycles += seconds > CYCLE_SECONDS_MAX
        each = seconds / tasks
        known = self.seconds_per_task
        self.seconds_per_task = each if known is None else known + _SMOOTHING * (each - known)


class Numbers(Collector):
    """Numbers of all workers of a registry."""

    _known: ClassVar[WeakKeyDictionary[CollectorRegistry, Numbers]] = WeakKeyDictionary()

    def __init__(self) -> None:
        self.workers = 0
        self.processors = 0
        self._queues: dict[int, QueueNumbers] = {}

    @classmethod
    def of(cls, registry: CollectorRegistry) -> Numbers:
        """The numbers of a registry; the first to ask registers them."""
        found = cls._known.get(registry)
        if found is None:
            found = cls._known[registry] = cls()
            registry.register(found)
        return found

    def queue(self, number: int) -> QueueNumbers:
        """The numbers of a queue."""
        return self._queues.setdefault(number, QueueNumbers())

    def collect(self) -> Iterator[Metric]:
        """Put names and labels to the numbers."""
        cycles = HistogramMetricFamily(
            "queue_job_processor_cycle_duration_seconds",
            "How long it took to take a batch and handle it, without waiting for tasks.",
            labels=["queue_num"],
        )
        in_progress = GaugeMetricFamily(
            "queue_tasks_in_progress", "Tasks in the hands of handlers.", labels=["queue_num"]
        )
        stragglers = GaugeMetricFamily(
            "queue_running_stragglers",
            "Handlers that took too long, would not end, and still run.",
            labels=["queue_num"],
        )
        bounds = [*map(str, _BOUNDS), "+Inf"]
        for number, queue in self._queues.items():
            buckets = list(zip(bounds, accumulate(queue.cycles), strict=True))
            cycles.add_metric([str(number)], buckets, queue.cycles_seconds)
            in_progress.add_metric([str(number)], queue.in_progress)
            stragglers.add_metric([str(number)], queue.stragglers)
        yield cycles
        yield in_progress
        yield stragglers
        yield GaugeMetricFamily("queue_running_workers", "Workers that run.", value=self.workers)
        yield GaugeMetricFamily(
            "queue_running_job_processors", "Job processors that run.", value=self.processors
        )
        for name, (field, text) in _COUNTERS.items():
            family = CounterMetricFamily(name, text, labels=["queue_num"])
            for number, queue in self._queues.items():
                family.add_metric([str(number)], getattr(queue, field))
            yield family
