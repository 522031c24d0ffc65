"""Analytics and Prometheus: what was measured, and nothing else."""

from __future__ import annotations

from time import monotonic
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from tests.integration.http_wire import Wire
from tests.integration.queen.steps import Asker, until


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
    pushed = monotonic()
    assert until(lambda: monotonic() > pushed + 1.1)  # it is older than it may become
    assert asker.pop() == []
    assert until(lambda: asker.get("/api/v1/analytics/retention")["totals"]["evictionMsgs"]) == 1
    assert asker.counts() == (0, 0, 0, 1)


def test_what_has_no_counterpart_is_empty_in_the_right_shape(asker: Asker) -> None:
    found = asker.get("/api/v1/analytics/postgres-stats")
    assert found["database"] is None
    assert (found["tableSizes"], found["cacheSummary"]) == ([], {})


def _metrics(asker: Asker) -> dict[tuple[str, str], float]:
    answer = asker.answer("GET", "/metrics/prometheus")
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    families = text_string_to_metric_families(answer.body.decode())
    return {
        (sample.name, sample.labels.get("queue") or sample.labels.get("result") or ""): sample.value
        for family in families
        for sample in family.samples
    }


def _with_processing(asker: Asker) -> dict[tuple[str, str], float] | None:
    """The numbers, once the snapshot has what is looked for."""
    found = _metrics(asker)
    return found if found.get(("queen_queue_depth_processing", asker.queue)) == 1 else None


def test_prometheus_reads_our_names_and_queens(asker: Asker) -> None:
    asker.configure(options={"retryLimit": 0})
    before = _metrics(asker)
    asker.push(3)
    messages = asker.pop("batch=2")
    asker.ack(messages[0], "failed")
    found = until(lambda: _with_processing(asker))
    assert found["forebay_ready", ""] == 1
    assert found["queen_uptime_seconds", ""] > 0
    assert found["queen_dlq_depth_by_queue", asker.queue] == 1
    assert found["queen_queue_depth_pending", asker.queue] == 1
    assert found["queen_queue_depth_processing", asker.queue] == 1
    name = "queen_cluster_push_messages_total", ""
    assert found[name] - before[name] == 3
    name = "queen_cluster_ack_total", "failed"
    assert found[name] - before[name] == 1
