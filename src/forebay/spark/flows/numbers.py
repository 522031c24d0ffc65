"""What flows count: for Prometheus, and for people who look.

Invariants: counting is adding to a number, once for a batch; counters only grow as long as the process runs.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterator
from time import monotonic
from typing import Final

from prometheus_client.registry import Collector

from forebay.observe.shown_metrics import ShownMetric, shown_histogram, shown_numbers

_BOUNDS: Final = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
_WINDOW_SECONDS: Final = 10.0
_FIELDS: Final = {
    "forebay_flow_rows_in_total": "rows_in",
    "forebay_flow_rows_out_total": "rows_out",
    "forebay_flow_rows_dead_total": "dead",
    "forebay_flow_rows_lost_total": "lost",
    "forebay_flow_restarts_total": "restarts",
    "forebay_flow_lag": "lag",
    "forebay_flow_running": "running",
}


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

    def collect(self) -> Iterator[ShownMetric]:
        """Put names and labels to the numbers."""
        flows = [((flow, kind), numbers) for flow, (kind, numbers) in self._flows.items()]
        for name, field in _FIELDS.items():
            yield shown_numbers(name, [(labels, getattr(numbers, field)) for labels, numbers in flows])
        batches = [(labels, numbers.batches, numbers.batch_seconds) for labels, numbers in flows]
        yield shown_histogram("forebay_flow_batch_seconds", _BOUNDS, batches)
