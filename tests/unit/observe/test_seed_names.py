"""The snapshot under the names of other systems."""

from __future__ import annotations

import pytest

from forebay.model import Misconfigured
from forebay.observe.document import Document, Family, snapshot_family
from forebay.observe.seed_names import named
from forebay.observe.settings import MetricsSettings

NOW = 1_800_000_000.0
COUNTS = {"ready": 5, "leased": 2, "delayed": 3, "dead": 1}
TOTALS = {"done": 40, "purged": 6, "expired": 4}


def counters() -> list[Family]:
    """What the store counts of one queue with two groups."""
    groups = [("orders", "billing"), ("orders", "mail")]
    found = [snapshot_family(f"forebay_queue_{n}", [(key, c) for key in groups]) for n, c in COUNTS.items()]
    found += [
        snapshot_family(f"forebay_queue_{n}_total", [(key, c) for key in groups]) for n, c in TOTALS.items()
    ]
    tiers = {"warm": (7, 8, 0), "cold": (100, 200, 0)}
    idle = [*groups, ("quiet", "mail")]
    found += [
        snapshot_family(f"forebay_queue_{name}", list(zip(idle, counts, strict=True)))
        for name, counts in tiers.items()
    ]
    flows = [((*key, "daily", "TRANSFORM", action), 2) for key in groups for action in ("sum", "load")]
    found.append(snapshot_family("forebay_flow_warm", flows))
    return [*found, snapshot_family("forebay_queue_oldest_age_seconds", [(groups[0], NOW - 60)])]


def series(document: Document, name: str) -> dict[tuple[str, ...], float]:
    (found,) = [family for family in document.families if family.name == name]
    return dict(found.series)


def test_without_spark_convoys_deliveries_are_the_stores_counters() -> None:
    found = named(Document(taken_at=NOW, families=counters()), ["convoy"])
    deliveries = series(found, "convoy_event_delivery_queue_total")
    mine = {key[3]: number for key, number in deliveries.items() if key[2] == "billing"}
    assert mine == {
        "Scheduled": 5, "Processing": 2, "Retry": 3, "Failure": 1, "Success": 40, "Discarded": 10
    }  # fmt: skip
    assert ("", "", "billing", "Retry", "", "orders", "", "") in deliveries
    backlog = series(found, "convoy_event_delivery_queue_backlog_seconds")
    assert backlog == {("", "billing", "orders"): NOW - 60}
    assert len(found.families) == 2, "the other three need what only Spark knows"


def test_with_spark_all_five_families_of_convoy_are_its_own() -> None:
    rich = [
        snapshot_family("forebay_event_queue", [(("shop", "web", "ready"), 3)]),
        snapshot_family("forebay_event_queue_oldest_age_seconds", [(("shop", "web"), NOW - 9)]),
        snapshot_family(
            "forebay_event_delivery_queue",
            [(("shop", "Shop", "mail", "dead", "paid", "web", "1", "Acme"), 2)],
        ),
        snapshot_family(
            "forebay_event_delivery_queue_oldest_age_seconds", [(("shop", "mail", "web"), NOW - 8)]
        ),
        snapshot_family("forebay_event_delivery_attempts", [(("shop", "mail", "done", "204"), 4)]),
    ]
    found = named(Document(taken_at=NOW, families=[*counters(), *rich]), ["convoy"])
    assert series(found, "convoy_event_queue_total") == {("shop", "web", "Scheduled"): 3}
    assert series(found, "convoy_event_queue_backlog_seconds") == {("shop", "web"): NOW - 9}
    assert series(found, "convoy_event_delivery_queue_total") == {
        ("shop", "Shop", "mail", "Failure", "paid", "web", "1", "Acme"): 2
    }
    assert series(found, "convoy_event_delivery_queue_backlog_seconds") == {("shop", "mail", "web"): NOW - 8}
    assert series(found, "convoy_event_delivery_attempts_total") == {("shop", "mail", "Success", "204"): 4}
    assert {family.kind for family in found.families} == {"untyped", "age"}


def test_deltafis_gauges_add_up_what_waits_for_all_groups() -> None:
    found = named(Document(taken_at=NOW, families=counters()), ["deltafi"])
    assert series(found, "gauge_action_queue_queue_size") == {("orders",): 8, ("quiet",): 0}
    assert series(found, "gauge_deltafile_coldQueuedCount") == {(): 300}
    assert series(found, "gauge_deltafile_warmQueuedCount") == {(): 8}


def test_names_come_together_and_ours_go_when_they_are_not_asked_for() -> None:
    document = Document(taken_at=NOW, families=counters())
    both = {family.name for family in named(document, ["forebay", "deltafi"]).families}
    assert {"forebay_queue_ready", "gauge_action_queue_queue_size"} <= both
    assert not [f for f in named(document, ["deltafi"]).families if f.name.startswith("forebay")]
    assert named(document, ["forebay"]) == document


def test_names_of_nobody_are_refused() -> None:
    with pytest.raises(Misconfigured, match="no names of 'convoi'") as caught:
        MetricsSettings(names=("forebay", "convoi"))
    assert caught.value.key == "names"
    assert "deltafi" in str(caught.value.hint)
