"""Labels of rich series: from which part of a message they come."""

import pytest

from forebay.model import Misconfigured
from forebay.observe.labels import GROUP, LABELS, VALUE_CHARACTERS_MAX, LabelRules, LabelSettings, filled


def values(settings: LabelSettings, queue: str, **headers: str) -> dict[str, str]:
    found = LabelRules(settings).values(queue, headers, "eu")
    return dict(zip(LABELS, found, strict=True))


def test_labels_make_sense_without_any_header() -> None:
    assert values(LabelSettings(), "shop.orders") == {
        "project": "shop",
        "project_name": "shop",
        "endpoint": GROUP,
        "source": "",
        "event_type": "",
        "organisation_id": "",
        "organisation_name": "",
    }
    assert filled(GROUP, "mail") == "mail"
    assert filled("web", "mail") == "web"


@pytest.mark.parametrize(
    ("queue", "prefix"),
    [("orders", "orders"), ("shop.orders", "shop"), ("a/b", "a"), ("a:b", "a"), (".hidden", ".hidden")],
)
def test_a_prefix_ends_at_the_first_separator(queue: str, prefix: str) -> None:
    assert values(LabelSettings(), queue)["project"] == prefix


def test_the_first_place_that_says_something_counts_and_empty_says_nothing() -> None:
    settings = LabelSettings(
        project="header.tenant | partition", source="header.origin|=nobody", event_type=""
    )
    assert values(settings, "q", tenant="", origin="")["project"] == "eu"
    assert values(settings, "q", tenant="t1")["project"] == "t1"
    assert values(settings, "q")["source"] == "nobody"
    assert values(settings, "q")["event_type"] == ""
    assert LabelRules(settings).needs_partition


def test_long_values_are_cut() -> None:
    assert len(values(LabelSettings(), "q", source="x" * 1_000)["source"]) == VALUE_CHARACTERS_MAX


@pytest.mark.parametrize("text", ["headers.x", "header.", "queue | ", "project"])
def test_a_place_that_is_none_is_refused_by_the_name_of_the_label(text: str) -> None:
    with pytest.raises(Misconfigured) as refused:
        LabelSettings(source=text)
    assert refused.value.key == "source"
