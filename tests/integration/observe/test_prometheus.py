"""A real Prometheus over servers that share one snapshot: what PromQL says of their numbers."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import pytest

from tests.awake import Awake
from tests.integration.http_wire import ask
from tests.integration.observe.fleet import Fleet
from tests.integration.test_snapshot_metrics import quick
from tests.servers import ForebayServer, PrometheusServer
from tests.servers.prometheus import Sample

pytestmark = pytest.mark.usefixtures("prometheus_program")


def values(found: list[Sample]) -> list[float]:
    return [value for _, value in found]


@pytest.mark.parametrize("leader_only", [True, False], ids=["leader_only", "all"])
def test_sums_over_servers_count_once_where_one_shows_the_queues(
    leader_only: bool,  # noqa: FBT001 - a parameter
    postgres_dsn: str,
    valkey_url: str,
    awake: Awake,
) -> None:
    shared: dict[str, Any] = quick(leader_only=leader_only, url=valkey_url, lock_ttl="2s")
    with ExitStack() as stack:
        servers = [stack.enter_context(ForebayServer(postgres_dsn, sections=shared)) for _ in range(2)]
        for number, server in enumerate(servers):
            body = [{"payload": number}] * 10
            assert ask(server.port, "POST", "/v1/queues/orders/messages", body).status == 201
        ports = [server.port for server in servers]
        prometheus = stack.enter_context(PrometheusServer({"forebay": ports}))
        # Both are scraped, and each has seen the snapshot of one of them.
        fresh = "count(forebay_snapshot_stale == 0) == 2"
        prometheus.until(fresh, lambda found: values(found) == [2], awake)
        assert len(ask(servers[1].port, "POST", "/v1/queues/orders/take", {"count": 3}).json()["tasks"]) == 3
        total = 17.0 if leader_only else 34.0
        prometheus.until("sum(forebay_queue_ready)", lambda found: values(found) == [total], awake)
        shown_by = prometheus.query("count(forebay_queue_ready{queue='orders'})")
        assert values(shown_by) == [1 if leader_only else 2]
        # Whatever the mode: the largest of what servers show, and the sum of what each counts itself.
        top = "sum(max by (queue, group) (forebay_queue_ready))"
        assert values(prometheus.query(top)) == [17]
        # What a server without a shared tier holds in its memory is in the numbers of any that counts.
        waiting = "sum(max by (queue, group) (forebay_flow_warm + forebay_flow_cold))"
        assert values(prometheus.query(waiting)) == [17]
        assert values(prometheus.query("max(forebay_queue_oldest_age_seconds)"))[0] > 0
        assert values(prometheus.query("max(forebay_queue_leased)")) == [3]
        running = ask(servers[0].port, "GET", "/api/v2/metrics/queues/running").json()
        assert running["tasks"] == []
        assert "here 0 of the 3" in running["problems"][0]["reason"]
        pushed = "sum(forebay_messages_total{what='pushed'})"
        prometheus.until(pushed, lambda found: values(found) == [20], awake)


def test_all_programs_are_scraped_in_openmetrics_with_their_types(fleet: Fleet, awake: Awake) -> None:
    jobs = {program: [port] for program, port in fleet.ports.items()}
    with PrometheusServer(jobs) as prometheus:
        up = "sum(up)"
        prometheus.until(up, lambda found: values(found) == [len(jobs)], awake)
        ages = "max(forebay_queue_oldest_age_seconds{queue='orders'})"
        (first,) = values(prometheus.until(ages, bool, awake))
        prometheus.until(ages, lambda found: values(found)[0] > first, awake)
        types = prometheus.get("metadata")
        assert types["forebay_http_requests"][0]["type"] == "counter"
        assert types["forebay_http_request_seconds"][0] == {
            "type": "histogram", "unit": "seconds", "help": types["forebay_http_request_seconds"][0]["help"]
        }  # fmt: skip
        assert types["convoy_event_delivery_queue_total"][0]["type"] == "unknown"
        versions = prometheus.query("count by (version) (forebay_build_info)")
        assert values(versions) == [len(jobs)]
