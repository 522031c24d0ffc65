"""Each query of dashboard, alerts and scaling, in a Prometheus that has scraped real programs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import yaml

from tests.awake import Awake
from tests.integration.observe.fleet import Fleet
from tests.servers import PrometheusServer
from tests.tidy.test_deploy import ALERTS, DASHBOARD, KEDA, PANELS, RULES

pytestmark = pytest.mark.usefixtures("prometheus_program")

JOBS = {
    "server": "forebay", "worker": "forebay-worker", "manager": "forebay-manager",
    "deliver": "forebay-deliver", "pipeline": "forebay-pipeline", "relay": "forebay-relay",
    "snapshot": "forebay-snapshot",
}  # fmt: skip
EXAMPLE = yaml.safe_load((RULES.parent / "prometheus.yml").read_text("utf-8"))
NOT_HERE = {
    "forebay_warm_healthy",  # each server has its own warm tier
    "max by (family) (forebay_snapshot_folded_series)",  # there aren't that many series
    # Nothing was given up.
    "sum by (destination, error_type) (rate(forebay_delivery_dead_letters_total[$__rate_interval]))",
}
QUERIES = sorted({target["expr"] for panel in PANELS for target in panel["targets"]})


@pytest.fixture(scope="module")
def prometheus(fleet: Fleet) -> Iterator[PrometheusServer]:
    """Give a Prometheus that scrapes all programs, under the names of jobs that `deploy` has."""
    jobs = {job: [fleet.ports[program]] for program, job in JOBS.items()}
    with PrometheusServer(jobs, rules=[RULES]) as server:
        yield server


def filled_in(expr: str) -> str:
    """An expression as Grafana sends it."""
    return expr.replace("$queue", ".*").replace("$__rate_interval", "1m")


def test_the_example_of_what_to_scrape_has_a_job_for_each_program() -> None:
    assert {job["job_name"] for job in EXAMPLE["scrape_configs"]} == set(JOBS.values())


@pytest.mark.parametrize("expr", QUERIES)
def test_a_query_of_the_dashboard_has_an_answer(
    expr: str, prometheus: PrometheusServer, awake: Awake
) -> None:
    if expr in NOT_HERE:
        assert prometheus.query(filled_in(expr)) == []
    else:
        prometheus.until(filled_in(expr), bool, awake)


def test_the_variable_of_queues_lists_them(prometheus: PrometheusServer, awake: Awake) -> None:
    (query,) = [
        variable["query"]["query"]
        for variable in DASHBOARD["templating"]["list"]
        if variable["name"] == "queue"
    ]
    metric, label = query.removeprefix("label_values(").removesuffix(")").split(", ")
    prometheus.until(metric, bool, awake)
    values = prometheus.get(f"label/{label}/values", **{"match[]": metric})
    assert {"orders", "mail", "hooks", "tasks"} <= set(values)


def test_what_scales_workers_is_one_number(prometheus: PrometheusServer, awake: Awake) -> None:
    for trigger in KEDA["spec"]["triggers"]:
        prometheus.until(trigger["metadata"]["query"], lambda found: len(found) == 1, awake)


def test_alerts_are_evaluated_and_none_of_them_fails(prometheus: PrometheusServer, awake: Awake) -> None:
    deadline = awake() + 60
    while True:
        rules = [rule for group in prometheus.get("rules")["groups"] for rule in group["rules"]]
        if all(rule["health"] != "unknown" for rule in rules):
            break
        assert awake() < deadline, rules
    assert {rule["name"]: rule["health"] for rule in rules} == {rule["alert"]: "ok" for rule in ALERTS}
