"""What the clients' `admin` shows of queues, groups of them, and the server."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

Name = Callable[[str], str]
COUNTS = {"total", "pending", "processing", "completed", "failed", "deadLetter"}


async def worked(queen: Any, queue: str) -> None:
    """Four messages in two partitions, of which one is done and one is out."""
    await queen.queue(queue).namespace("numbers").task("counted").config({"lease_time": 60}).create()
    for partition in ("p1", "p2"):
        await queen.queue(queue).partition(partition).push([{"data": 1}, {"data": 2}])
    done, _ = await queen.queue(queue).batch(2).wait(False).pop()
    await queen.ack(done, True)
    await queen.admin.refresh_consumer_stats()


@pytest.mark.parametrize("text", ["q", "a b/c%d"])
async def test_queues_and_what_they_have(queen: Any, name: Name, text: str) -> None:
    queue = name(text)
    await worked(queen, queue)
    found = await queen.admin.get_queue(queue)
    assert found["name"] == queue
    assert found["totals"] == {
        "total": 4, "pending": 2, "processing": 1, "completed": 1, "failed": 0, "deadLetter": 0,
    }  # fmt: skip
    assert [row["name"] for row in found["partitions"]] == ["Default", "p1", "p2"]
    detail = await queen.admin.get_queue_detail(queue)
    assert detail["queue"]["config"]["leaseTime"] == 60
    assert detail["totals"]["messages"]["pending"] == 2
    for page in (
        await queen.admin.list_queues(search=queue, limit=5),
        await queen.admin.get_queue_stats(namespace="numbers", limit=1000),
    ):
        row = next(row for row in page["queues"] if row["name"] == queue)
        assert (row["partitions"], row["messages"]["pending"]) == (3, 2)
    partitions = (await queen.admin.get_partitions(queue=queue, limit=2))["partitions"]
    assert [row["name"] for row in partitions] == ["Default", "p1"]


async def test_all_queues_together(queen: Any, name: Name) -> None:
    await worked(queen, name("q"))
    overview = await queen.admin.get_overview()
    assert overview["messages"].keys() == COUNTS
    assert overview["queues"] >= 1
    assert overview["messages"]["pending"] >= 2
    namespaces = (await queen.admin.get_namespaces())["namespaces"]
    assert "numbers" in [row["namespace"] for row in namespaces]
    tasks = (await queen.admin.get_tasks())["tasks"]
    assert "counted" in [row["task"] for row in tasks]
    status = await queen.admin.get_status(queue=name("q"))
    assert [row["name"] for row in status["queues"]] == [name("q")]
    assert status["leases"]["active"] == 1


async def test_time_series(queen: Any, name: Name) -> None:
    await worked(queen, name("q"))
    end, pushed = time.monotonic() + 20, 0
    while pushed < 4:
        assert time.monotonic() < end, "what was pushed is never seen"
        points = (await queen.admin.get_analytics(queue=name("q"), interval="minute"))["dataPoints"]
        pushed = sum(point["messages"] for point in points)
    system = await queen.admin.get_system_metrics()
    assert system["replicas"][0]["timeSeries"][-1]["metrics"]["memory"]["rss_bytes"]["last"] > 0
    workers = await queen.admin.get_worker_metrics()
    assert workers["summary"]["totalPushMessages"] >= 4


async def test_health_and_metrics(queen: Any) -> None:
    health = await queen.admin.health()
    assert (health["status"], health["database"], health["server"]) == ("healthy", "connected", "Forebay")
    before = (await queen.admin.metrics())["requests"]["total"]
    metrics = await queen.admin.metrics()
    assert metrics["requests"]["total"] > before
    assert metrics["uptime"] > 0
    assert metrics["memory"]["rss"] > 0


async def test_what_only_one_version_asks(queen: Any, version: str, name: Name) -> None:
    await worked(queen, name("q"))
    if version == "0.15.0":
        assert (await queen.admin.get_postgres_stats())["tableSizes"] == []
        return
    found = await queen.admin.get_queue_depth(name("q"))
    assert (found["pending"], found["partitionsPending"], found["effectivePending"]) == (3, 2, 3)
    assert sorted(row["pending"] for row in found["partitions"]) == [1, 2]


async def test_a_queue_that_isnt_there_is_an_error_that_says_so(queen: Any, name: Name) -> None:
    with pytest.raises(Exception, match="Queue not found"):
        await queen.admin.get_queue(name("none"))
