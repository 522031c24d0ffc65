"""Families: one series for each set of labels, capped without losing a sum, and as Prometheus reads them."""

from __future__ import annotations

import gzip
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.openmetrics import parser as open_parser
from prometheus_client.parser import text_string_to_metric_families as parse_classic

from forebay.model import Corrupt, Rejected
from forebay.observe.document import Document, Family, Kind, decode_document, encode_document, family, merged
from forebay.observe.exposition import SAME_SECONDS, Exposition

_parse_open: Any = open_parser.text_string_to_metric_families
NOW = 1_800_000_000.0


def shown(
    document: Document, *, open_metrics: bool, now: float = NOW
) -> dict[str, dict[tuple[str, ...], float]]:
    """The series that a parser of Prometheus' own client reads."""
    text = Exposition(document, open_metrics=open_metrics).data(now).decode()
    found = _parse_open(text + "# EOF\n") if open_metrics else parse_classic(text)
    return {
        sample.name: {
            tuple(s.labels.values()): s.value for s in metric.samples if not s.name.endswith("_created")
        }
        for metric in found
        for sample in metric.samples[:1]
    }


def document(*families: Family) -> Document:
    return Document(taken_at=NOW, families=list(families))


def test_what_has_the_same_labels_is_one_series() -> None:
    made = family("x", "gauge", "X.", ["a"], [([None], 1), ([""], 2), (["b"], 4)])
    assert made.series == [(("",), 3.0), (("b",), 4.0)]
    assert family("x", "age", "X.", ["a"], [(["b"], 7), (["b"], 5)]).series == [(("b",), 5.0)]


@pytest.mark.parametrize("kind", ["gauge", "age"])
def test_beyond_the_cap_the_rest_is_one_series(kind: Kind) -> None:
    series = [([str(n)], float(n)) for n in range(1, 101)]
    made = family("x", kind, "X.", ["a"], series, series_max=10)
    assert (len(made.series), made.folded) == (10, 91)
    found = dict(made.series)
    if kind == "gauge":
        assert sum(found.values()) == sum(range(1, 101))
        assert found["100",] == 100
    else:
        assert found["1",] == 1, "the oldest are shown"
        assert found["other",] == 10, "and the oldest of the others"


def test_a_series_named_other_is_one_with_the_rest() -> None:
    made = family(
        "x", "gauge", "X.", ["a"], [(["other"], 50), (["a"], 9), (["b"], 2), (["c"], 1)], series_max=3
    )
    assert made.series == [(("a",), 9.0), (("other",), 53.0)]


@pytest.mark.parametrize(("name", "labels"), [("1x", ["a"]), ("x y", []), ("x", ["a-b"]), ("x", ["1"])])
def test_a_name_that_prometheus_does_not_take_is_refused(name: str, labels: list[str]) -> None:
    with pytest.raises(Rejected, match="use letters, digits and _"):
        family(name, "gauge", "X.", labels, [])


def test_an_age_grows_between_refreshes_and_is_never_negative() -> None:
    made = document(family("x_age_seconds", "age", "X.", ["q"], [(["a"], NOW - 5), (["b"], NOW + 100)]))
    for open_metrics in (False, True):
        assert shown(made, open_metrics=open_metrics) == {"x_age_seconds": {("a",): 5.0, ("b",): 0.0}}
        later = shown(made, open_metrics=open_metrics, now=NOW + 10)
        assert later == {"x_age_seconds": {("a",): 15.0, ("b",): 0.0}}


def test_those_who_scrape_at_once_get_the_same_text() -> None:
    made = document(family("x_age_seconds", "age", "X.", [], [([], NOW - 5)]))
    exposition = Exposition(made, open_metrics=False)
    first = exposition.data(NOW)
    assert exposition.data(NOW + SAME_SECONDS / 2) is first
    assert b"x_age_seconds 5.200\n" in exposition.data(NOW + 0.2)
    assert b"x_age_seconds 4.000\n" in exposition.data(NOW - 1)  # a clock that was set back


def test_what_is_compressed_is_the_same_text_with_any_end() -> None:
    many = [([str(n)], float(n)) for n in range(5000)]
    made = document(
        family("x_age_seconds", "age", "X.", ["q"], many), family("x_ready", "gauge", "X.", ["q"], many)
    )
    exposition = Exposition(made, open_metrics=False)
    start = exposition.gzip(NOW)
    assert exposition.gzip(NOW + SAME_SECONDS / 2) is start
    assert gzip.decompress(exposition.gzip(NOW + 5).end(b"")) == exposition.data(NOW + 5)
    for end in (b"", b"# EOF\n", b"x 1\n" * 50_000):
        assert gzip.decompress(start.end(end)) == Exposition(made, open_metrics=False).data(NOW) + end


def test_a_counter_has_its_ending_once() -> None:
    made = document(family("x_done", "counter", "X.", [], [([], 3)]))
    classic = Exposition(made, open_metrics=False).data(NOW)
    assert classic == b"# HELP x_done_total X.\n# TYPE x_done_total counter\nx_done_total 3\n"
    assert (
        Exposition(made, open_metrics=True).data(NOW).startswith(b"# HELP x_done X.\n# TYPE x_done counter\n")
    )
    assert shown(made, open_metrics=True) == {"x_done_total": {(): 3.0}}


def test_what_is_encoded_is_read_and_what_is_broken_is_corrupt() -> None:
    made = document(family("x", "gauge", 'A "name"\n\\.', ["a"], [(['"\\\n'], 1.5)]))
    assert decode_document(encode_document(made)) == made
    with pytest.raises(Corrupt, match="the next refresh replaces it"):
        decode_document(encode_document(made)[:-1])


text = st.text(st.characters(codec="utf-8"), max_size=12)
numbers = st.floats(allow_nan=False) | st.integers(-(2**60), 2**60).map(float)


@given(st.dictionaries(st.tuples(text, text), numbers, max_size=5), text)
def test_hypothesis_both_formats_say_what_is_in_the_document(
    series: dict[tuple[str, str], float], about: str
) -> None:
    made = document(family("x_size", "gauge", about, ["a", "b"], series.items()))
    for open_metrics in (False, True):
        found = shown(made, open_metrics=open_metrics).get("x_size", {})
        assert found.keys() == series.keys()
        assert all(math.isclose(found[key], series[key], rel_tol=1e-15) for key in series)


def test_a_part_that_is_computed_elsewhere_is_in_the_same_document() -> None:
    counters = Document(taken_at=20, families=[family("a", "gauge", "A.", (), [((), 1)])])
    rich = Document(
        taken_at=10,
        families=[family("a", "gauge", "A.", (), [((), 2)]), family("b", "age", "B.", (), [((), 3)])],
    )
    found = {each.name: each for each in merged("counters", counters, {"rich": rich}).families}
    assert found["a"].series == [((), 1)]
    assert found["b"].series == [((), 3)]
    assert found["forebay_snapshot_part_age_seconds"].series == [(("counters",), 20), (("rich",), 10)]
    alone = merged("counters", counters, {})
    assert (alone.taken_at, [each.name for each in alone.families]) == (
        20,
        ["a", "forebay_snapshot_part_age_seconds"],
    )
