"""What the archive counts, for Prometheus.

Invariants: counters only grow as long as the process runs; gauges are those of the last run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

if TYPE_CHECKING:
    from prometheus_client import Metric

    from forebay.spark.archive.job import Ran

COUNTERS: Final = {
    "forebay_archive_messages": ("messages", "Messages that were archived."),
    "forebay_archive_outcomes": ("outcomes", "Outcomes that were archived."),
    "forebay_archive_files": ("files", "Parquet files that were written."),
    "forebay_archive_bytes": ("bytes", "Bytes of these files."),
    "forebay_archive_lost": (
        "lost",
        "Messages that were gone, or could not be read, before they were archived.",
    ),
    "forebay_archive_early": (
        "early",
        "Messages that were archived before every group had finished with them.",
    ),
}
LAG: Final = ("forebay_archive_lag", "Messages of a queue in the log that are not archived yet.")
FAILED: Final = ("forebay_archive_failures", "Runs that failed, and queues that a run could do nothing with.")
_LABELS: Final = ("queue",)


class ArchiveNumbers(Collector):
    """Numbers of the archive of a process."""

    def __init__(self) -> None:
        self._counts: dict[str, Counter[str]] = {attribute: Counter() for attribute, _ in COUNTERS.values()}
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

    def collect(self) -> Iterator[Metric]:
        """What Prometheus reads."""
        for name, (attribute, text) in COUNTERS.items():
            family = CounterMetricFamily(name, text, labels=_LABELS)
            for queue, count in sorted(self._counts[attribute].items()):
                family.add_metric([queue], count)
            yield family
        lag = GaugeMetricFamily(*LAG, labels=_LABELS)
        for queue, count in sorted(self._lag.items()):
            lag.add_metric([queue], count)
        yield lag
        yield CounterMetricFamily(*FAILED, value=self._failures)
