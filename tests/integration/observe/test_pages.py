"""Every program's page, under every choice of names: in the table, clean, and the same in both formats."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.openmetrics import parser as open_parser
from prometheus_client.parser import text_string_to_metric_families

from forebay.observe.metric_table import TABLE
from tests.awake import Awake
from tests.chaos.relay_parts import RelayProcess
from tests.integration.http_wire import ask, scrape
from tests.integration.observe.fleet import NAMES, PROGRAMS, Fleet
from tests.integration.test_snapshot_metrics import quick, until
from tests.servers import ForebayServer, promtool

pytestmark = pytest.mark.usefixtures("prometheus_program")
OPEN = {"Accept": "application/openmetrics-text;version=1.0.0,text/plain;q=0.5"}
NOT_CLEAN = {
    "gauge_deltafile_coldQueuedCount": "snake_case",
    "gauge_deltafile_warmQueuedCount": "snake_case",
    "queen_cpu_user_microseconds_total": "base unit",
    "queen_cpu_system_microseconds_total": "base unit",
}
"""Names of others that break the conventions; that dashboards know them is why they are shown."""


CONVOYS_HEALTH = {
    "convoy_queue_metrics_snapshot_age_seconds",
    "convoy_queue_metrics_refresh_duration_seconds",
    "convoy_queue_metrics_refresh_total",
    "convoy_queue_metrics_snapshot_last_success_timestamp_seconds",
}


def complaints(text: str) -> Iterator[str]:
    """What promtool says of a page, without what it says of other systems' names."""
    _, lines = promtool("check", "metrics", text=text)
    for line in lines:
        name, _, what = line.partition(" ")
        if NOT_CLEAN.get(name, "-") not in what:
            yield line


def names_of(families: Iterable[Any]) -> set[str]:
    """The names of families, as the table has them."""
    return {f"{each.name}_total" if each.type == "counter" else each.name for each in families}


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_page_is_clean_and_has_nothing_that_the_table_lacks(program: str, fleet: Fleet) -> None:
    text = scrape(fleet.ports[program])
    assert list(complaints(text)) == []
    classic = names_of(text_string_to_metric_families(text))
    assert sorted(classic - TABLE.keys()) == []
    assert {"forebay_build_info", "process_resident_memory_bytes", "python_gc_collections_total"} <= classic
    answer = ask(fleet.ports[program], "GET", "/metrics", headers=OPEN)
    assert answer.headers["content-type"].startswith("application/openmetrics-text; version=1.0.0")
    families = open_parser.text_string_to_metric_families(answer.body.decode())  # type: ignore[no-untyped-call]
    assert names_of(families) == classic


NOT_SHOWN = {
    "forebay_snapshot_last_failure_timestamp_seconds",  # nothing has failed
    "forebay_warm_healthy",  # each server has its own warm tier
}
"""Names that a program shows in another situation than these are in."""


def test_all_programs_together_show_what_the_table_has(fleet: Fleet, awake: Awake) -> None:
    until(fleet.server, "forebay_snapshot_stale", 0, awake)
    until(fleet.server, 'forebay_snapshot_part_stale{part="rich"}', 0, awake)
    pages = [scrape(port) for port in fleet.ports.values()]
    shown = set[str]().union(*(names_of(text_string_to_metric_families(page)) for page in pages))
    assert sorted(TABLE.keys() - shown) == sorted(NOT_SHOWN)


@pytest.mark.parametrize("name", NAMES)
def test_a_choice_of_names_shows_those_and_is_clean(name: str, awake: Awake) -> None:
    sections = quick()
    sections["metrics"]["names"] = [name]
    first = {"forebay": "forebay_snapshot_stale 0", "convoy": "convoy_queue_metrics_snapshot_age_seconds"}
    with ForebayServer(sections=sections) as server:
        ask(server.port, "POST", "/v1/queues/orders/messages", [{"payload": 1}] * 3)
        wanted = {
            "forebay": 'forebay_queue_ready{queue="orders",group="workers"}',
            "convoy": "convoy_event_delivery_queue_total"
            '{project="",project_name="",endpoint="workers",status="Scheduled",event_type="",source="orders",'
            'organisation_id="",organisation_name=""}',
            "deltafi": "gauge_deltafile_coldQueuedCount",
            "queen": 'queen_queue_depth_pending{queue="orders"}',
        }[name]
        until(server, wanted, 3, awake)
        text = scrape(server.port)
        assert list(complaints(text)) == []
        assert first.get(name, "") in text
        found = names_of(text_string_to_metric_families(text))
        assert (found >= CONVOYS_HEALTH) == (name == "convoy")
        begins = {"forebay": "forebay_", "convoy": "convoy_", "deltafi": "gauge_", "queen": "queen_"}[name]
        shared = ("process_", "python_", "forebay_build_info")
        assert [each for each in found if not each.startswith((begins, *shared))] == []


def test_a_bare_curl_gets_the_numbers_as_json(fleet: Fleet) -> None:
    found = ask(fleet.ports["server"], "GET", "/metrics", headers={"Accept": "*/*"})
    assert found.headers["content-type"] == "application/json"
    assert "file_buffer" in found.json()


async def test_a_relay_under_the_names_of_metrics_governor_is_clean(tmp_path: Path) -> None:
    config = tmp_path / "relay.yaml"
    config.write_text("relay: {metrics_prefix: metrics_governor}\n")
    async with RelayProcess(tmp_path / "queue", ["http://127.0.0.1:9/x"], "--config", str(config)) as relay:
        text = await relay.page("/metrics")
    text = text.partition("\r\n\r\n")[2] or text
    assert "\nmetrics_governor_queue_workers_total{" in text
    assert list(complaints(text)) == []
