"""What a worker counts: for Prometheus, and for its own report.

Invariants: counting is adding to a number, once for a batch; names and labels are put together when somebody
asks. Workers that share a registry share its numbers, which only grow, but for the gauges.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from typing import ClassVar, Final
from weakref import WeakKeyDictionary

from prometheus_client import CollectorRegistry
from prometheus_client.registry import Collector

from forebay.observe.shown_metrics import ShownMetric, shown_histogram, shown_number, shown_numbers

__all__ = ["Numbers", "QueueNumbers"]

CYCLE_SECONDS_MAX: Final = 10.0
"""A cycle should take no longer, so that a worker that is to stop stops soon."""
_BOUNDS: Final = (0.001, 0.005, 0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, CYCLE_SECONDS_MAX, 30.0, 60.0)
_SMOOTHING: Final = 0.2
_BY_QUEUE: Final = {
    "forebay_worker_tasks_processed_total": "processed",
    "forebay_worker_tasks_failed_total": "errors",
    "forebay_worker_tasks_retried_total": "retried",
    "forebay_worker_tasks_buried_total": "buried",
    "forebay_worker_tasks_parked_total": "parked",
    "forebay_worker_tasks_lost_total": "lost",
    "forebay_worker_handler_errors_total": "handler_errors",
    "forebay_worker_handlers_overdue_total": "overdue",
    "forebay_worker_slow_cycles_total": "slow_cycles",
    "forebay_worker_stragglers": "stragglers",
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
        self._queues: dict[tuple[str, int], QueueNumbers] = {}

    @classmethod
    def of(cls, registry: CollectorRegistry) -> Numbers:
        """The numbers of a registry; the first to ask registers them."""
        found = cls._known.get(registry)
        if found is None:
            found = cls._known[registry] = cls()
            registry.register(found)
        return found

    def queue(self, name: str, number: int) -> QueueNumbers:
        """The numbers of a queue."""
        return self._queues.setdefault((name, number), QueueNumbers())

    def collect(self) -> Iterator[ShownMetric]:
        """Put names and labels to the numbers."""
        queues = [((name, str(number)), queue) for (name, number), queue in self._queues.items()]
        yield shown_histogram(
            "queue_job_processor_cycle_duration_seconds",
            _BOUNDS,
            [(labels, queue.cycles, queue.cycles_seconds) for labels, queue in queues],
        )
        in_progress = [(labels, queue.in_progress) for labels, queue in queues]
        yield shown_numbers("queue_tasks_in_progress", in_progress)
        yield shown_number("queue_running_workers", self.workers)
        yield shown_number("queue_running_job_processors", self.processors)
        for name, field in _BY_QUEUE.items():
            yield shown_numbers(name, [(labels[:1], getattr(queue, field)) for labels, queue in queues])
