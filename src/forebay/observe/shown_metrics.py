"""Numbers as Prometheus' own client shows them, each under a name of the table.

A name that the table lacks, or a row with other labels than it has, is a broken invariant.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate

from prometheus_client.core import HistogramMetricFamily
from prometheus_client.metrics_core import Metric as ShownMetric

from forebay.observe.metric_table import TABLE, Metric, unit_of

__all__ = ["ShownMetric", "shown_histogram", "shown_number", "shown_numbers"]


def shown_number(name: str, value: float) -> ShownMetric:
    """A family of one number without labels."""
    return shown_numbers(name, [((), value)])


def shown_numbers(
    name: str, rows: Iterable[tuple[Sequence[str], float]], *, shown_as: str | None = None
) -> ShownMetric:
    """A family: the values of the labels, in the order of the table, and the number.

    `shown_as` is the metric's name in another system. Where it ends as its type does not, no type is shown.
    """
    row = TABLE[name] if shown_as is None else _renamed(TABLE[name], shown_as)
    assert row.kind != "histogram", name
    kind = "unknown" if row.kind == "untyped" else row.shown_kind
    found = ShownMetric(row.family_name, row.help, kind, unit_of(row.family_name))
    for values, number in rows:
        found.add_sample(row.name, dict(zip(row.labels, values, strict=True)), number)
    return found


def shown_histogram(
    name: str,
    bounds: Sequence[float],
    rows: Iterable[tuple[Sequence[str], Sequence[int], float]],
    *,
    shown_as: str | None = None,
) -> ShownMetric:
    """A histogram: the values of the labels, how many there were up to each bound and beyond, and the sum."""
    row = TABLE[name]
    assert row.kind == "histogram", name
    found = HistogramMetricFamily(shown_as or name, row.help, labels=row.labels, unit=unit_of(name))
    edges = [*map(str, bounds), "+Inf"]
    for values, counts, total in rows:
        assert len(values) == len(row.labels), name
        found.add_metric(values, list(zip(edges, accumulate(counts), strict=True)), total)
    return found


def _renamed(row: Metric, name: str) -> Metric:
    agrees = name.endswith("_total") == (row.kind == "counter")
    return Metric(name, row.kind if agrees else "untyped", row.help, row.labels)
