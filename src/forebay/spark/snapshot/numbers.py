"""What the fold counts, for Prometheus."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from prometheus_client.registry import Collector

from forebay.observe.refresher import RefreshNumbers
from forebay.observe.shown_metrics import ShownMetric, shown_number, shown_numbers

__all__ = ["FoldNumbers"]

_FIELDS: Final = {
    "forebay_fold_slices": "slices",
    "forebay_fold_series": "series",
    "forebay_fold_seconds": "seconds",
    "forebay_fold_taken_at_seconds": "taken_at",
    "forebay_fold_rounds_total": "rounds",
    "forebay_fold_slices_folded_total": "folded",
}


class FoldNumbers(Collector):
    """Numbers of one job."""

    def __init__(self, refreshes: RefreshNumbers | None = None) -> None:
        self.slices = self.series = self.rounds = self.folded = 0
        self.seconds = self.taken_at = 0.0
        self.refreshes = refreshes or RefreshNumbers()

    def collect(self) -> Iterator[ShownMetric]:
        """The families."""
        for name, field in _FIELDS.items():
            yield shown_number(name, getattr(self, field))
        counts = [((status,), self.refreshes.refreshes[status]) for status in ("ok", "error", "waiting")]
        yield shown_numbers("forebay_fold_publications_total", counts)
