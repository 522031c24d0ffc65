"""Resources: what is shown of queues and partitions is what was done."""

from __future__ import annotations

from typing import Final
from urllib.parse import quote

import pytest

from tests.integration.queen.steps import NUMBERS, Asker, until
from tests.servers import ForebayServer

COUNTS: Final = {"total", "pending", "processing", "completed", "failed", "deadLetter"}


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


def test_a_partition_that_was_pushed_in_our_own_format_can_be_named_by_its_id(asker: Asker) -> None:
    asker.queue = asker.path = f"own-{next(NUMBERS)}"
    asker.answer("PUT", f"/v1/queues/{asker.path}", {"settings": {"ordered": True}})
    asker.answer("POST", f"/v1/queues/{asker.path}/messages", [{"payload": 1, "partition": "p"}])
    asker.refresh()
    found = asker.get(f"/api/v1/resources/queues/{asker.path}")
    (row,) = [row for row in found["partitions"] if row["name"] == "p"]
    assert (row["stats"]["pending"], found["partitionCount"]) == (1, 1)
    (message,) = asker.get(f"/api/v1/status/queues/{asker.path}/messages")
    assert message["partitionId"] == row["id"]
    shown = asker.get(f"/api/v1/messages/{row['id']}/{quote(message['transactionId'], safe='')}")
    assert (shown["queue"], shown["partition"]) == (asker.queue, "p")
