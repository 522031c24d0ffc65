"""What the archive counts, for Prometheus.

Invariants: counters only grow as long as the process runs; gauges are those of the last run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

from prometheus_client.registry import Collector

from forebay.observe.shown_metrics import ShownMetric, shown_number, shown_numbers

if TYPE_CHECKING:
    from forebay.spark.archive.job import Ran

_COUNTED: Final = ("messages", "outcomes", "files", "bytes", "lost", "early")
"""The counters of a run, by queue."""


class ArchiveNumbers(Collector):
    """Numbers of the archive of a process."""

    def __init__(self) -> None:
        self._counts: dict[str, Counter[str]] = {name: Counter() for name in _COUNTED}
        self._lag: dict[str, int] = {}
        self._failures = 0

    def add(self, ran: Ran) -> None:
        """Count a run."""
        for each in ran.queues:
            if each.error is not None:
                self._failures += 1
                continue
            self._lag[each.queue] = each.lag
            for attribute, counts in self._counts.items():
                counts[each.queue] += getattr(each, attribute)

    def fail(self) -> None:
        """Count a run that ended in an error."""
        self._failures += 1

    def collect(self) -> Iterator[ShownMetric]:
        """What Prometheus reads."""
        for name, counts in self._counts.items():
            yield _by_queue(f"forebay_archive_{name}_total", counts)
        yield _by_queue("forebay_archive_lag", self._lag)
        yield shown_number("forebay_archive_failures_total", self._failures)


def _by_queue(name: str, numbers: Mapping[str, int]) -> ShownMetric:
    return shown_numbers(name, [((queue,), count) for queue, count in sorted(numbers.items())])
