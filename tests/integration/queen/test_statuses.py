"""Status: what a dashboard shows of queues and of the time behind."""

from __future__ import annotations

from typing import Any

from tests.integration.queen.steps import Asker, until


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
