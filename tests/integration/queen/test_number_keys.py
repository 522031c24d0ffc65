"""Who may see which numbers."""

from __future__ import annotations

from typing import Any

from tests.integration.http_wire import ask
from tests.integration.key_steps import add_key
from tests.integration.queen.steps import Asker, until
from tests.servers import ForebayServer


def test_a_key_for_some_queues_sees_these_and_nothing_of_the_whole_server() -> None:
    with ForebayServer() as server:
        everything = Asker(server, add_key(server.data, "admin").headers)
        until(lambda: ask(server.port, "GET", "/api/v1/resources/queues").status == 401)
        everything.configure(namespace="secret", task="secret")
        everything.push(5)
        key = add_key(server.data, "admin", queues=["mine"])
        some = Asker(server, key.headers)
        some.queue = some.path = "mine-1"
        until(lambda: some.answer("GET", "/api/v1/resources/queues").status == 200)
        some.push(2)
        some.refresh()
        assert [row["name"] for row in some.get("/api/v1/resources/queues")["queues"]] == ["mine-1"]
        assert some.get("/api/v1/resources/overview")["messages"]["total"] == 2
        assert some.get("/api/v1/resources/namespaces")["namespaces"] == []
        assert some.get("/api/v1/resources/tasks")["tasks"] == []
        assert {row["queue"] for row in some.get("/api/v1/resources/partitions")["partitions"]} == {"mine-1"}
        assert some.get("/api/v1/status")["messages"]["total"] == 2
        assert some.refresh()["queues"] == 1

        def look() -> Any:
            found = some.get("/api/v1/status/analytics")["dataPoints"]
            return found if any(point["messages"] for point in found) else None

        assert sum(point["messages"] for point in until(look)) == 2
        status = some.get("/api/v1/status")
        assert sum(point["ingested"] for point in status["throughput"]) == 2
        assert status["workers"] == []
        assert {row["queueName"] for row in some.get("/api/v1/analytics/queue-ops")["series"]} == {"mine-1"}
        for path in (
            f"/api/v1/resources/queues/{everything.path}",
            f"/api/v1/resources/queues/{everything.path}/depth",
            f"/api/v1/status/queues/{everything.path}",
            f"/api/v1/status/queues/{everything.path}/messages",
            "/api/v1/status/buffers",
            "/api/v1/analytics/system-metrics",
            "/api/v1/analytics/worker-metrics",
            "/api/v1/analytics/retention",
            "/api/v1/analytics/postgres-stats",
            "/metrics/prometheus",
        ):
            assert some.answer("GET", path).status == 403, path
        reader = Asker(server, add_key(server.data, "read").headers)
        until(lambda: reader.answer("GET", "/api/v1/status").status == 200)
        assert reader.answer("POST", "/api/v1/stats/refresh", {}).status == 403
