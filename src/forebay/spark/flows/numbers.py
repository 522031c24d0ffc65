"""What flows count: for Prometheus, and for people who look.

Invariants: counting is adding to a number, once for a batch; counters only grow as long as the process runs.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterator
from itertools import accumulate
from time import monotonic
from typing import TYPE_CHECKING, Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

if TYPE_CHECKING:
    from prometheus_client import Metric

_BOUNDS: Final = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
_WINDOW_SECONDS: Final = 10.0
_LABELS: Final = ("flow", "flow_type")
COUNTERS: Final = {
    "forebay_flow_rows_in": ("rows_in", "Rows that a flow read."),
    "forebay_flow_rows_out": ("rows_out", "Rows that a flow wrote."),
    "forebay_flow_rows_dead": ("dead", "Rows that a flow gave up: dead letters."),
    "forebay_flow_rows_lost": ("lost", "Messages that were dropped before a flow came to them, and skipped."),
    "forebay_flow_restarts": ("restarts", "Times that a flow failed, and was started again."),
}
GAUGES: Final = {
    "forebay_flow_lag": ("lag", "Messages that a flow has not read yet."),
    "forebay_flow_running": ("running", "Whether a flow runs: 1, or 0 while it waits to be started again."),
}
HISTOGRAM: Final = ("forebay_flow_batch_seconds", "How long batches took, from their rows to their outcome.")


class FlowNumbers:
    """Numbers of one flow."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self.rows_in = self.rows_out = self.dead = self.lost = self.restarts = 0
        self.lag = 0
        self.running = 0
        self.batches = [0] * (len(_BOUNDS) + 1)
        self.batch_seconds = 0.0
        self.last_rows = 0
        self.last_seconds = 0.0
        self._clock = clock
        self._began = clock()
        self._recent: deque[tuple[float, int]] = deque()

    def batch(self, rows_in: int, rows_out: int, dead: int, seconds: float) -> None:
        """Count a batch that is done with."""
        self.rows_in += rows_in
        self.rows_out += rows_out
        self.dead += dead
        self.last_rows, self.last_seconds = rows_in, seconds
        self.batches[bisect_left(_BOUNDS, seconds)] += 1
        self.batch_seconds += seconds
        self._recent.append((self._clock(), rows_in))

    @property
    def rows_per_second(self) -> float:
        """Rows that were read within the last seconds."""
        now = self._clock()
        while self._recent and self._recent[0][0] < now - _WINDOW_SECONDS:
            self._recent.popleft()
        return sum(rows for _, rows in self._recent) / max(1.0, min(_WINDOW_SECONDS, now - self._began))


class PipelineNumbers(Collector):
    """Numbers of all flows of a process."""

    def __init__(self) -> None:
        self._flows: dict[str, tuple[str, FlowNumbers]] = {}

    def of(self, flow: str, type: str) -> FlowNumbers:  # noqa: A002 - its name
        """The numbers of a flow."""
        return self._flows.setdefault(flow, (type, FlowNumbers()))[1]

    def collect(self) -> Iterator[Metric]:
        """Put names and labels to the numbers."""
        for name, (field, text) in COUNTERS.items():
            counter = CounterMetricFamily(name, text, labels=_LABELS)
            for flow, (kind, numbers) in self._flows.items():
                counter.add_metric([flow, kind], getattr(numbers, field))
            yield counter
        for name, (field, text) in GAUGES.items():
            gauge = GaugeMetricFamily(name, text, labels=_LABELS)
            for flow, (kind, numbers) in self._flows.items():
                gauge.add_metric([flow, kind], getattr(numbers, field))
            yield gauge
        batches = HistogramMetricFamily(*HISTOGRAM, labels=_LABELS)
        bounds = [*map(str, _BOUNDS), "+Inf"]
        for flow, (kind, numbers) in self._flows.items():
            buckets = list(zip(bounds, accumulate(numbers.batches), strict=True))
            batches.add_metric([flow, kind], buckets, numbers.batch_seconds)
        yield batches
