"""What the fold counts, for Prometheus."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from forebay.observe.refresher import RefreshNumbers

if TYPE_CHECKING:
    from prometheus_client import Metric

__all__ = ["FoldNumbers"]

GAUGES: Final = {
    "forebay_fold_slices": ("slices", "Slices of queues that the last round was about."),
    "forebay_fold_series": ("series", "Series that the last round gave."),
    "forebay_fold_seconds": ("seconds", "How long the last round took to fold."),
    "forebay_fold_taken_at_seconds": ("taken_at", "To when the last round counted, in seconds since 1970."),
}
COUNTERS: Final = {
    "forebay_fold_rounds": ("rounds", "Rounds of this process."),
    "forebay_fold_slices_folded": ("folded", "Slices that had to be looked at, of all rounds."),
}
REFRESHES: Final = (
    "forebay_fold_publications",
    "Publications of the rich part: ok, error, or waiting while another process does it.",
)


class FoldNumbers(Collector):
    """Numbers of one job."""

    def __init__(self, refreshes: RefreshNumbers | None = None) -> None:
        self.slices = self.series = self.rounds = self.folded = 0
        self.seconds = self.taken_at = 0.0
        self.refreshes = refreshes or RefreshNumbers()

    def collect(self) -> Iterator[Metric]:
        """The families."""
        for name, (field, text) in GAUGES.items():
            yield GaugeMetricFamily(name, text, value=getattr(self, field))
        for name, (field, text) in COUNTERS.items():
            yield CounterMetricFamily(name, text, value=getattr(self, field))
        family = CounterMetricFamily(*REFRESHES, labels=("status",))
        for status in ("ok", "error", "waiting"):
            family.add_metric((status,), self.refreshes.refreshes[status])
        yield family
