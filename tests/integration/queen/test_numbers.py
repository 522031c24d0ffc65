"""Numbers in Queen's format: what a dashboard shows is what was done."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any, Final
from urllib.parse import quote

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.integration.http_wire import Answer, Wire, ask
from tests.integration.key_steps import add_key
from tests.servers import ForebayServer

NUMBERS: Final = count(1)
DEADLINE_SECONDS: Final = 20.0
COUNTS: Final = {"total", "pending", "processing", "completed", "failed", "deadLetter"}


class Asker:
    """Asks one server about a queue of its own."""

    def __init__(self, server: ForebayServer, headers: dict[str, str] | None = None) -> None:
        self.port = server.port
        self.headers = headers or {}
        self.queue = f"a b/{next(NUMBERS)}%"
        self.path = quote(self.queue, safe="")

    def answer(self, method: str, path: str, body: Any = None) -> Answer:
        return ask(self.port, method, path, body, self.headers)

    def get(self, path: str) -> Any:
        found = self.answer("GET", path)
        assert found.status == 200, found.body
        return found.json()

    def post(self, path: str, body: Any) -> Any:
        found = self.answer("POST", path, body)
        assert found.status in {200, 201}, found.body
        return found.json()

    def configure(self, **about: Any) -> Any:
        return self.post("/api/v1/configure", {"queue": self.queue, **about})

    def push(self, number: int, partition: str = "Default") -> None:
        item = {"queue": self.queue, "partition": partition, "payload": 1}
        self.post("/api/v1/push", {"items": [item] * number})

    def pop(self, query: str = "") -> list[Any]:
        messages: list[Any] = self.get(f"/api/v1/pop/queue/{self.path}?{query}")["messages"]
        return messages

    def ack(self, message: Any, status: str = "completed", **more: Any) -> None:
        item = {name: message[name] for name in ("transactionId", "partitionId", "leaseId")}
        (found,) = self.post("/api/v1/ack", {**item, "status": status, **more})
        assert found["success"], found

    def refresh(self) -> Any:
        return self.post("/api/v1/stats/refresh", {})

    def counts(self) -> tuple[int, ...]:
        """Pending, processing, completed and dead letters, read anew."""
        self.refresh()
        found = self.get(f"/api/v1/resources/queues/{self.path}")["totals"]
        return tuple(found[name] for name in ("pending", "processing", "completed", "deadLetter"))


@pytest.fixture(scope="module")
def server() -> Iterator[ForebayServer]:
    with ForebayServer() as server:
        yield server


@pytest.fixture
def asker(server: ForebayServer) -> Asker:
    return Asker(server)


def until(look: Callable[[], Any]) -> Any:
    """Look until there is something."""
    end = time.monotonic() + DEADLINE_SECONDS
    while not (found := look()):
        assert time.monotonic() < end, "it did not come"
        time.sleep(0.05)
    return found


# Resources


def test_messages_are_counted_where_they_are(asker: Asker) -> None:
    asker.configure(options={"retryLimit": 0})
    assert asker.counts() == (0, 0, 0, 0)
    asker.push(5)
    assert asker.counts() == (5, 0, 0, 0)
    done, dead, out = asker.pop("batch=3")
    assert asker.counts() == (2, 3, 0, 0)
    asker.ack(done)
    asker.ack(dead, "failed", error="no")
    assert asker.counts() == (2, 1, 1, 1)
    asker.ack(out)
    assert asker.counts() == (2, 0, 2, 1)


def test_what_named_groups_have_not_done_is_what_waits(asker: Asker) -> None:
    asker.push(4)
    for message in asker.pop("batch=4&consumerGroup=fast"):
        asker.ack(message, consumerGroup="fast")
    assert asker.counts() == (0, 0, 4, 0)
    (one,) = asker.pop("batch=1&consumerGroup=slow")
    asker.ack(one, consumerGroup="slow")
    assert asker.counts() == (3, 0, 1, 0)


def test_a_queue_shows_its_partitions_by_name(asker: Asker) -> None:
    made = asker.configure(namespace="billing", task="send")
    for partition, number in (("p2", 2), ("p1", 1), ("ä/%", 3)):
        asker.push(number, partition)
    (message,) = asker.pop("batch=1")
    asker.refresh()
    found = asker.get(f"/api/v1/resources/queues/{asker.path}")
    head = {name: found[name] for name in ("id", "name", "namespace", "task")}
    assert head == {"id": made["queueId"], "name": asker.queue, "namespace": "billing", "task": "send"}
    rows = {row["name"]: row for row in found["partitions"]}
    assert list(rows) == ["Default", "p1", "p2", "ä/%"]
    assert found["partitionCount"] == 4
    assert rows["Default"]["id"] == made["partitionId"]
    assert all(row["stats"].keys() == COUNTS for row in rows.values())
    waiting = {name: row["stats"]["pending"] + row["stats"]["processing"] for name, row in rows.items()}
    assert waiting == {"Default": 0, "p1": 1, "p2": 2, "ä/%": 3}
    out = next(row for row in rows.values() if row["stats"]["processing"])
    assert (out["id"], out["name"]) == (message["partitionId"], message["partition"])
    assert rows["p2"]["createdAt"] <= rows["p2"]["oldestMessage"] <= rows["p2"]["newestMessage"]


def test_partitions_come_page_by_page(asker: Asker) -> None:
    for partition in "cab":
        asker.push(1, partition)
    asker.refresh()
    path = f"/api/v1/resources/queues/{asker.path}?limit=2"
    first = [row["name"] for row in asker.get(path)["partitions"]]
    rest = [row["name"] for row in asker.get(f"{path}&after={first[-1]}")["partitions"]]
    assert (first, rest) == (["a", "b"], ["c"])
    found = asker.get(f"/api/v1/resources/partitions?queue={asker.path}&limit=2&offset=1")
    assert [row["name"] for row in found["partitions"]] == ["b", "c"]
    assert {row["queue"] for row in found["partitions"]} == {asker.queue}


def test_depth_is_what_a_group_has_left_by_partition(asker: Asker) -> None:
    asker.push(3, "p1")
    asker.push(2, "p2")
    for message in asker.pop("batch=3&consumerGroup=g"):
        if message["partition"] == "p1":
            asker.ack(message, consumerGroup="g")
    asker.refresh()
    path = f"/api/v1/resources/queues/{asker.path}/depth"
    found = asker.get(f"{path}?group=g")
    left = {row["partition"]: row["pending"] for row in found["partitions"]}
    assert (found["group"], found["pending"], found["partitionsPending"]) == ("g", 2, 1)
    assert found["effectivePending"] == found["pending"]
    assert (found["queue"], found["conflation"]) == (asker.queue, False)
    assert left == {"p2": 2}
    unnamed = asker.get(path)
    assert (unnamed["group"], unnamed["pending"]) == (None, 2)
    missing = asker.answer("GET", f"{path}?group=nobody")
    assert (missing.status, missing.json()["error"]) == (404, "Consumer group not found")


@pytest.mark.parametrize("path", ["resources/queues/{}", "resources/queues/{}/depth", "status/queues/{}"])
def test_a_queue_that_isnt_there_is_said_to_be_missing(asker: Asker, path: str) -> None:
    answer = asker.answer("GET", f"/api/v1/{path.format('nothing')}")
    assert (answer.status, answer.json()["error"]) == (404, "Queue not found")


def test_a_queue_that_was_deleted_and_made_again_is_the_new_one(asker: Asker) -> None:
    asker.push(3)
    assert asker.counts() == (3, 0, 0, 0)
    asker.answer("DELETE", f"/api/v1/resources/queues/{asker.path}")
    asker.push(1)
    found = asker.get(f"/api/v1/resources/queues/{asker.path}")
    assert found["totals"]["pending"] == 1


def test_queues_are_listed_by_what_they_have_in_common(server: ForebayServer) -> None:
    askers = [Asker(server) for _ in range(3)]
    for number, asker in enumerate(askers):
        asker.configure(namespace="shop", task=f"t{number % 2}")
        asker.push(number + 1)
    asker = askers[0]
    asker.refresh()
    found = asker.get("/api/v1/resources/queues?namespace=shop")["queues"]
    assert [row["name"] for row in found] == [one.queue for one in reversed(askers)], "newest first"
    assert [row["messages"]["pending"] for row in found] == [3, 2, 1]
    assert {row["partitions"] for row in found} == {1}
    paged = asker.get("/api/v1/status/queues?namespace=shop&limit=1&offset=1")
    assert [row["name"] for row in paged["queues"]] == [askers[1].queue]
    assert paged["pagination"] == {"limit": 1, "offset": 1, "total": 3}
    by_task = asker.get("/api/v1/resources/queues?namespace=shop&task=t1")["queues"]
    assert [row["name"] for row in by_task] == [askers[1].queue]
    searched = asker.get(f"/api/v1/resources/queues?search={asker.path.upper()}")["queues"]
    assert asker.queue in [row["name"] for row in searched]
    (shop,) = [r for r in asker.get("/api/v1/resources/namespaces")["namespaces"] if r["namespace"] == "shop"]
    assert (shop["queues"], shop["partitions"], shop["messages"]["pending"]) == (3, 3, 6)
    tasks = {row["task"]: row for row in asker.get("/api/v1/resources/tasks")["tasks"]}
    assert (tasks["t0"]["queues"], tasks["t0"]["messages"]["total"]) == (2, 4)


def test_the_overview_adds_everything_up() -> None:
    with ForebayServer() as server:
        asker, other = Asker(server), Asker(server)
        asker.configure(namespace="n", task="t")
        asker.push(3)
        other.push(1)
        asker.ack(asker.pop()[0])
        refreshed = asker.refresh()
        found = asker.get("/api/v1/resources/overview")
        shape = [found[name] for name in ("queues", "partitions", "namespaces", "tasks")]
        assert shape == [2, 2, 1, 1]
        assert found["messages"] == refreshed["messages"]
        assert [found["messages"][name] for name in ("total", "pending", "completed")] == [4, 3, 1]
        assert found["lag"]["offset"] == {"avg": 1.5, "median": 1.5, "min": 1, "max": 2}
        assert found["lag"]["time"].keys() == {"avg", "median", "min", "max"}
        rates = until(lambda: _rates(asker))
        assert rates["ingestedPerSecond"] > rates["processedPerSecond"] > 0
        assert 0 <= found["statsAge"] < 10


def _rates(asker: Asker) -> dict[str, float] | None:
    found: dict[str, float] = asker.get("/api/v1/resources/overview")["throughput"]
    return found if found["processedPerSecond"] else None


# Status


def test_the_status_of_a_queue_has_its_options_and_cursors(asker: Asker) -> None:
    asker.configure(options={"leaseTime": 7, "maxSize": 100, "priority": 3})
    asker.push(2)
    asker.ack(asker.pop()[0])
    asker.refresh()
    found = asker.get(f"/api/v1/status/queues/{asker.path}")
    assert found["queue"]["config"]["leaseTime"] == 7
    assert (found["queue"]["config"]["maxQueueSize"], found["queue"]["priority"]) == (100, 3)
    assert found["totals"]["messages"]["completed"] == found["totals"]["completed"] == 1
    (row,) = found["partitions"]
    assert row["messages"] == row["stats"]
    assert row["cursor"]["totalConsumed"] == 1


def test_the_newest_messages_of_a_queue_say_where_they_are(asker: Asker) -> None:
    asker.configure(options={"retryLimit": 0})
    asker.push(2, "p1")
    asker.push(3, "p2")
    messages = asker.pop("batch=10&partitions=2")
    for message, status in zip(messages, ("completed", "failed"), strict=False):
        asker.ack(message, status)
    asker.push(1, "p3")
    asker.refresh()
    found = asker.get(f"/api/v1/status/queues/{asker.path}/messages")
    assert [row["partition"] for row in found] == ["p3", "p2", "p2", "p2", "p1", "p1"]
    states = {row["transactionId"]: row["status"] for row in found}
    wanted = ["completed", "dead_letter", "processing", "processing", "processing"]
    assert [states[message["transactionId"]] for message in messages] == wanted
    assert found[0]["status"] == "pending"
    assert {row["queuePath"] for row in found} == {f"{asker.queue}/p{number}" for number in (1, 2, 3)}
    ids = {row["id"] for row in found}
    assert {message["id"] for message in messages} < ids
    paged = asker.get(f"/api/v1/status/queues/{asker.path}/messages?limit=2&offset=1")
    assert paged == found[1:3]


def test_the_status_shows_what_went_through(asker: Asker) -> None:
    asker.push(4)
    messages = asker.pop("batch=2")
    asker.ack(messages[0])
    asker.ack(messages[1], "failed")

    def look() -> Any:
        found = asker.get(f"/api/v1/status?queue={asker.path}")
        return found if sum(point["processed"] for point in found["throughput"]) == 2 else None

    found = until(look)
    assert found["pointCount"] == len(found["throughput"]) <= 60
    sums = {
        name: sum(point[name] for point in found["throughput"])
        for name in ("ingested", "popMessages", "ackFailed")
    }
    assert sums == {"ingested": 4, "popMessages": 2, "ackFailed": 1}
    assert found["throughput"][0]["queenRssMb"] > 1
    assert [row["name"] for row in found["queues"]] == [asker.queue]
    assert found["messages"]["total"] == 4
    assert found["errors"]["ackFailed"] == 1


def test_leases_that_are_out_are_counted(asker: Asker) -> None:
    asker.push(2, "p1")
    asker.push(2, "p2")
    asker.pop("batch=4&partitions=2")
    asker.pop("consumerGroup=g")
    asker.refresh()
    found = asker.get(f"/api/v1/status?queue={asker.path}")["leases"]
    assert (found["active"], found["partitionsWithLeases"], found["totalBatchSize"]) == (2, 3, 5)


def test_analytics_count_what_was_pushed_by_time(asker: Asker) -> None:
    asker.push(3)

    def look() -> Any:
        found = asker.get(f"/api/v1/status/analytics?queue={asker.path}&interval=minute")
        return found if sum(point["messages"] for point in found["dataPoints"]) == 3 else None

    assert until(look)["interval"] == "minute"
    everything = asker.get("/api/v1/status/analytics")
    assert everything["interval"] == "hour"
    assert sum(point["messages"] for point in everything["dataPoints"]) >= 3
    assert asker.answer("GET", "/api/v1/status/analytics?interval=week").status == 400
    assert asker.answer("GET", "/api/v1/status/analytics?from=2026-01-02&to=2026-01-01").status == 400


def test_buffers_say_that_nothing_waits(asker: Asker) -> None:
    found = asker.get("/api/v1/status/buffers")
    assert found == {"pending": 0, "failed": 0, "dbHealthy": True, "worker": 0}


# Analytics


def test_the_process_is_seen_once_a_second(asker: Asker) -> None:
    found = until(lambda: _replicas(asker, ""))
    (replica,) = found
    metrics = replica["timeSeries"][-1]["metrics"]
    assert metrics["memory"]["rss_bytes"]["last"] > 1 << 20
    assert metrics["cpu"]["user_us"]["max"] >= metrics["cpu"]["user_us"]["avg"] >= 0
    assert metrics["database"]["pool_size"] == {"avg": 0.0, "min": 0.0, "max": 0.0, "last": 0.0}
    assert replica["port"] == asker.port
    assert _replicas(asker, "?hostname=another") == []


def _replicas(asker: Asker, query: str) -> Any:
    return asker.get(f"/api/v1/analytics/system-metrics{query}")["replicas"]


def test_what_went_through_the_server_is_shown_by_time_and_by_queue(asker: Asker) -> None:
    asker.push(3)
    messages = asker.pop("batch=3")
    for message in messages:
        asker.ack(message)
    asker.pop()

    def look() -> Any:
        found = asker.get(f"/api/v1/analytics/queue-ops?queue={asker.path}")["series"]
        return found if sum(row["popEmpty"] for row in found) else None

    series = until(look)
    names = ("pushRequests", "pushMessages", "popMessages", "ackRequests", "ackSuccess", "ackFailed")
    assert [sum(row[name] for row in series) for name in names] == [1, 3, 3, 3, 3, 0]
    assert {row["queueName"] for row in series} == {asker.queue}
    lag = asker.get(f"/api/v1/analytics/queue-lag?queue={asker.path}")
    assert sum(row["popCount"] for row in lag) == 3
    assert all(0 < row["avgLagMs"] <= row["maxLagMs"] < 60_000 for row in lag)
    found = asker.get("/api/v1/analytics/worker-metrics")
    assert found["summary"]["totalPushMessages"] >= 3
    assert sum(row["ackMessages"] for row in found["timeSeries"]) >= 3
    assert asker.queue in [row["queueName"] for row in found["queues"]]
    (worker,) = found["workers"]
    assert (worker["workerId"], worker["messagesProcessed"] > 0) == (0, True)


def test_who_waits_for_messages_is_counted(asker: Asker) -> None:
    asker.configure()
    with Wire(asker.port) as wire:
        wire.send(f"GET /api/v1/pop/queue/{asker.path}?wait=true HTTP/1.1\r\nHost: test\r\n\r\n".encode())
        found = until(lambda: _parked(asker))
        asker.push(1)
        assert len(wire.answer().json()["messages"]) == 1
    assert found["series"][0]["queueName"] == asker.queue
    assert 0 < found["series"][0]["parkedCount"] <= 1
    assert len(found["replicas"]) == 1


def _parked(asker: Asker) -> Any:
    found = asker.get(f"/api/v1/analytics/queue-parked-replicas?queue={asker.path}")
    return found if found["series"] else None


def test_messages_that_nobody_took_in_time_are_evictions(asker: Asker) -> None:
    asker.configure(options={"ttl": 1})
    asker.push(1)
    pushed_at = time.monotonic()
    until(lambda: time.monotonic() - pushed_at > 1.01)
    assert asker.pop() == []
    assert until(lambda: asker.get("/api/v1/analytics/retention")["totals"]["evictionMsgs"]) == 1
    assert asker.counts() == (0, 0, 0, 1)


def test_what_has_no_counterpart_is_empty_in_the_right_shape(asker: Asker) -> None:
    found = asker.get("/api/v1/analytics/postgres-stats")
    assert found["database"] is None
    assert (found["tableSizes"], found["cacheSummary"]) == ([], {})


# Prometheus


def _metrics(asker: Asker) -> dict[tuple[str, str], float]:
    answer = asker.answer("GET", "/metrics/prometheus")
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    families = text_string_to_metric_families(answer.body.decode())
    return {
        (sample.name, sample.labels.get("queue") or sample.labels.get("result") or ""): sample.value
        for family in families
        for sample in family.samples
    }


def test_prometheus_reads_our_names_and_queens(asker: Asker) -> None:
    asker.configure(options={"retryLimit": 0})
    before = _metrics(asker)
    asker.push(3)
    messages = asker.pop("batch=2")
    asker.ack(messages[0], "failed")
    asker.refresh()
    found = _metrics(asker)
    assert found["forebay_ready", ""] == 1
    assert found["queen_uptime_seconds", ""] > 0
    assert found["queen_dlq_depth_by_queue", asker.queue] == 1
    assert found["queen_queue_depth_pending", asker.queue] == 1
    assert found["queen_queue_depth_processing", asker.queue] == 1
    name = "queen_cluster_push_messages_total", ""
    assert found[name] - before[name] == 3
    name = "queen_cluster_ack_total", "failed"
    assert found[name] - before[name] == 1


# Keys


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
