"""What is in `deploy` has the shape that Grafana, Prometheus and KEDA want, and names what there is."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from forebay.observe.metric_table import TABLE
from tests.servers import ServerUnavailableError, absent, promtool

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
RULES = DEPLOY / "prometheus" / "alerts.yml"
DASHBOARD: Any = json.loads((DEPLOY / "grafana" / "forebay.json").read_text("utf-8"))
ALERTS = [rule for group in yaml.safe_load(RULES.read_text("utf-8"))["groups"] for rule in group["rules"]]
KEDA = yaml.safe_load((DEPLOY / "keda" / "scaled-object.yaml").read_text("utf-8"))
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
METRIC = re.compile(r"\b(?:forebay|queue|process|python)_\w+")
PARTS = re.compile(r"_(?:bucket|sum|count)$")


def metrics_in(promql: str) -> set[str]:
    """The names in an expression, those of labels and of sets of labels left out."""
    bare = re.sub(r"\bby \([^)]*\)|\{[^}]*\}", " ", promql)
    return {PARTS.sub("", name) for name in METRIC.findall(bare)}


def expressions() -> Iterator[str]:
    """All expressions of dashboard, alerts and scaling."""
    yield from (target["expr"] for panel in PANELS for target in panel["targets"])
    yield from (rule["expr"] for rule in ALERTS)
    yield from (trigger["metadata"]["query"] for trigger in KEDA["spec"]["triggers"])


def said_by(*arguments: str | Path) -> tuple[int, list[str]]:
    """What promtool says; the test is skipped where there is none."""
    try:
        return promtool(*arguments, directory=DEPLOY / "prometheus")
    except ServerUnavailableError as error:
        absent(str(error))


def test_every_metric_that_is_asked_for_is_in_the_table() -> None:
    named = set().union(*map(metrics_in, expressions()))
    assert len(named) > 50
    assert sorted(named - TABLE.keys()) == []


def test_the_dashboard_is_up_to_date() -> None:
    run = subprocess.run([sys.executable, "tools/dashboard.py", "--check"], cwd=ROOT, check=False)
    assert run.returncode == 0, "run `make docs`"


def test_the_dashboard_is_one_that_grafana_imports() -> None:
    assert {"title", "uid", "schemaVersion", "panels", "templating", "time"} <= DASHBOARD.keys()
    variables = {variable["name"] for variable in DASHBOARD["templating"]["list"]}
    assert set(re.findall(r"\$(?!__)\{?(\w+)", json.dumps(DASHBOARD["panels"]))) <= variables
    numbers = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(set(numbers)) == len(numbers)
    rows = [panel["title"] for panel in DASHBOARD["panels"] if panel["type"] == "row"]
    assert {"Queues", "Flows", "Deliveries", "Spool and outages", "The snapshot", "Workers"} <= set(rows)
    for panel in PANELS:
        assert panel["type"] in ("stat", "timeseries")
        assert panel["title"]
        assert panel["fieldConfig"]["defaults"]["unit"]
        references = [target["refId"] for target in panel["targets"]]
        assert references == sorted(set(references))


def test_no_panel_lies_on_another() -> None:
    taken = set[tuple[int, int]]()
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        taken |= cells


@pytest.mark.parametrize("rule", ALERTS, ids=lambda rule: rule["alert"])
def test_an_alert_has_a_page_that_names_it_and_a_test(rule: dict[str, Any]) -> None:
    page = ROOT / rule["annotations"]["runbook_url"]
    text = page.read_text("utf-8")
    assert f"`{rule['alert']}`" in text
    assert "\n## Look at\n" in text
    assert "\n## Do\n" in text
    assert rule["labels"]["severity"] in ("critical", "warning", "info")
    tests = yaml.safe_load((DEPLOY / "prometheus" / "alerts_test.yml").read_text("utf-8"))["tests"]
    assert rule["alert"] in [one["name"] for one in tests]


def test_every_runbook_is_that_of_an_alert() -> None:
    pages = {f"docs/how-to/runbooks/{path.name}" for path in (ROOT / "docs/how-to/runbooks").glob("*.md")}
    assert pages == {rule["annotations"]["runbook_url"] for rule in ALERTS}


def test_prometheus_takes_the_rules_and_the_example() -> None:
    for what, name in (("rules", "alerts.yml"), ("config", "prometheus.yml")):
        status, lines = said_by("check", what, name)
        assert status == 0, lines


def test_alerts_fire_when_they_should_and_not_before() -> None:
    status, lines = said_by("test", "rules", "alerts_test.yml")
    assert status == 0, lines


def test_the_scaled_object_scales_by_prometheus() -> None:
    assert (KEDA["apiVersion"], KEDA["kind"]) == ("keda.sh/v1alpha1", "ScaledObject")
    assert KEDA["spec"]["minReplicaCount"] <= KEDA["spec"]["fallback"]["replicas"]
    for trigger in KEDA["spec"]["triggers"]:
        assert trigger["type"] == "prometheus"
        assert {"serverAddress", "query", "threshold"} <= trigger["metadata"].keys()
        assert all(isinstance(value, str) for value in trigger["metadata"].values()), "KEDA wants strings"
