"""The table of metrics keeps Prometheus' conventions, and nothing is shown that it lacks."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.openmetrics import parser as open_parser
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from forebay.observe.document import snapshot_family
from forebay.observe.metric_table import SECTIONS, SEEDS, TABLE, Metric
from forebay.observe.metrics_page import CLASSIC, OPEN_METRICS, MetricsPage, prefers_open_metrics, takes_gzip
from forebay.observe.shown_metrics import ShownMetric, shown_histogram, shown_number, shown_numbers

ROOT = Path(__file__).resolve().parents[3]
OURS = [metric for section in SECTIONS if section not in SEEDS for metric in section.metrics]


def test_every_name_is_in_the_table_once() -> None:
    names = Counter(metric.name for metric in chain.from_iterable(s.metrics for s in SECTIONS))
    assert [name for name, count in names.items() if count > 1] == []


@pytest.mark.parametrize("metric", TABLE.values(), ids=lambda metric: metric.name)
def test_a_name_ends_as_its_type_does(metric: Metric) -> None:
    if metric.kind != "untyped":
        assert metric.name.endswith("_total") == (metric.kind == "counter")
    assert metric.help.endswith(".")
    assert len(set(metric.labels)) == len(metric.labels)


@pytest.mark.parametrize("metric", OURS, ids=lambda metric: metric.name)
def test_our_names_have_base_units_and_say_whose_they_are(metric: Metric) -> None:
    assert not {"ms", "milliseconds", "microseconds", "kilobytes", "percent", "minutes"} & set(
        metric.name.split("_")
    )
    assert metric.name.startswith(("forebay_", "process_", "python_", "queue_"))
    assert metric.kind != "untyped"


def test_families_are_made_in_observe_alone() -> None:
    makers = {
        "CounterMetricFamily",
        "GaugeMetricFamily",
        "HistogramMetricFamily",
        "Counter",
        "Gauge",
        "Histogram",
    }
    found = [
        path.relative_to(ROOT)
        for path in (ROOT / "src" / "forebay").rglob("*.py")
        if path.parent.name != "observe"
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.ImportFrom)
        and (node.module or "").startswith("prometheus_client")
        and makers & {name.name for name in node.names}
    ]
    assert found == []


def test_a_name_that_is_not_in_the_table_cannot_be_shown() -> None:
    with pytest.raises(KeyError):
        shown_number("forebay_nothing", 1)
    with pytest.raises(KeyError):
        snapshot_family("forebay_nothing", [])
    with pytest.raises(ValueError, match="zip"):
        shown_numbers("forebay_queue_ready", [(("orders",), 1)])


class Some(Collector):
    """A few numbers."""

    def collect(self) -> Iterator[ShownMetric]:
        yield shown_number("forebay_outages_total", 3)
        yield shown_number("forebay_spool_bytes", 7)
        yield shown_histogram("forebay_http_request_seconds", [0.1, 1.0], [(("/x",), [2, 1, 1], 4.5)])
        yield shown_number("process_open_fds", -1)


def test_both_formats_have_the_same_numbers_and_the_process_and_the_build() -> None:
    page = MetricsPage(Some())
    open_text, open_media = page.answer("application/openmetrics-text; version=1.0.0, text/plain;q=0.5")
    text, media = page.answer("text/plain; version=0.0.4")
    assert (open_media, media) == (OPEN_METRICS, CLASSIC)
    families = list(text_string_to_metric_families(text))
    samples = {
        (s.name, *s.labels.values()): s.value
        for each in open_parser.text_string_to_metric_families(open_text)  # type: ignore[no-untyped-call]
        for s in each.samples
    }
    assert samples["forebay_outages_total",] == 3
    assert samples["forebay_http_request_seconds_bucket", "+Inf", "/x"] == 4
    assert any(name == "forebay_build_info" for name, *_ in samples)
    assert any(name == "python_gc_collections_total" for name, *_ in samples)
    names = Counter(each.name for each in families)
    assert set(names.values()) == {1}, "what the process shows itself is shown once"
    assert samples["process_open_fds",] > 0
    assert {s.name for each in families for s in each.samples} == {name for name, *_ in samples}


def test_a_registry_of_the_user_may_show_its_process_too() -> None:
    registry = CollectorRegistry()
    registry.register(Some())
    assert b"forebay_spool_bytes 7.0" in generate_latest(MetricsPage(registry))


@pytest.mark.parametrize(
    ("accept", "wanted"),
    [
        ("", False),
        ("*/*", False),
        ("text/plain", False),
        ("application/openmetrics-text", True),
        ("application/openmetrics-text;version=1.0.0;q=0.5,text/plain;q=0.4", True),
        ("application/openmetrics-text;q=0.4, text/plain;q=0.5", False),
        ("application/openmetrics-text;q=0", False),
        ("application/openmetrics-text;q=much", False),
    ],
)
def test_the_format_is_the_one_that_is_preferred(accept: str, wanted: bool) -> None:  # noqa: FBT001 - a parameter
    assert prefers_open_metrics(accept) is wanted


@pytest.mark.parametrize(
    ("accept_encoding", "wanted"),
    [
        ("", False),
        ("identity", False),
        ("gzip", True),
        ("GZIP;q=0.5, br", True),
        ("deflate, gzip;q=0", False),
        ("gzip;q=much", False),
    ],
)
def test_an_answer_is_compressed_for_those_who_read_gzip(accept_encoding: str, wanted: bool) -> None:  # noqa: FBT001 - a parameter
    assert takes_gzip(accept_encoding) is wanted


def test_no_two_metrics_have_the_same_family() -> None:
    """A page shows one of two: a gauge `x` hides a counter `x_total`, whose family is `x`."""
    names = [row.family_name for row in TABLE.values()]
    assert sorted(name for name in set(names) if names.count(name) > 1) == []
