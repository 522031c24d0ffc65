"""Consumer groups: listed, looked at, sent elsewhere, begun elsewhere, deleted."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

import pytest

from tests.queen.wire import Client, datas
from tests.servers import ForebayServer

Name = Callable[[str], str]
BASE = "/api/v1/consumer-groups"


@pytest.fixture
def client(server: ForebayServer) -> Client:
    """Give a client."""
    return Client(server)


def now() -> str:
    return datetime.now(UTC).isoformat()


def taken(client: Client, queue: str, group: str | None = None, **query: Any) -> list[Any]:
    """All that a group gets now, acknowledged."""
    if group is not None:
        query["consumerGroup"] = group
    found: list[Any] = []
    while messages := client.pop(queue, batch=100, partitions=100, **query)["messages"]:
        found += [message["data"] for message in messages]
        assert all(result["success"] for result in client.ack(*messages, group=group))
    return found


def entry(client: Client, group: str, queue: str) -> Any:
    found = client.ask("GET", BASE).json()
    return next((one for one in found if (one["name"], one["queueName"]) == (group, queue)), None)


def post(client: Client, path: str, body: Any) -> Any:
    answer = client.ask("POST", f"{BASE}/{path}", body)
    assert answer.status == 200, answer
    return answer.json()


# Looking


def test_a_group_is_listed_with_how_far_it_is_behind(client: Client, name: Name) -> None:
    queue, group = name("q"), name("g")
    for partition in ("p1", "p2", "p3"):
        client.push(queue, 1, 2, partition=partition)
    assert entry(client, group, queue) is None
    (first, *_) = client.pop(queue, "p1", consumerGroup=group, batch=2)["messages"]
    found = entry(client, group, queue)
    assert (found["topics"], found["members"], found["partitionsWithLag"]) == ([queue], 1, 2)
    assert (found["totalLag"], found["subscriptionMode"], found["state"]) == (4, "all", "Stable")
    assert found["maxTimeLag"] >= 0
    assert found["subscriptionCreatedAt"].endswith("Z")
    assert entry(client, "__QUEUE_MODE__", queue) is None
    assert datas(client.pop(queue, "p2", batch=2)) == [1, 2]
    assert entry(client, "__QUEUE_MODE__", queue)["totalLag"] == 4
    assert first["data"] == 1


def test_a_group_is_shown_by_queue_and_partition(client: Client, name: Name) -> None:
    group = name("g 1/ü")
    for queue in (name("q1"), name("q2")):
        client.push(queue, 1, 2, partition="p1")
        client.push(queue, 3, partition="p2")
    client.pop(name("q1"), "p1", consumerGroup=group)
    client.pop(name("q2"), "p1", consumerGroup=group, batch=9, autoAck="true")
    found = client.ask("GET", f"{BASE}/{quote(group, safe='')}").json()
    assert set(found) == {name("q1"), name("q2")}
    by_name = {p["partition"]: p for p in found[name("q1")]["partitions"]}
    assert (by_name["p1"]["offsetLag"], by_name["p1"]["leaseActive"]) == (1, True)
    assert by_name["p1"]["workerId"].startswith("127.0.0.1:")
    assert (by_name["p2"]["offsetLag"], by_name["p2"]["leaseActive"]) == (1, False)
    done = {p["partition"]: p for p in found[name("q2")]["partitions"]}["p1"]
    assert (done["offsetLag"], done["totalConsumed"]) == (0, 2)
    assert client.ask("GET", f"{BASE}/{name('nobody')}").json() == {}


def test_partitions_that_lag_are_listed(client: Client, name: Name) -> None:
    queue, group = name("q"), name("g")
    client.push(queue, 1, partition="p1")
    client.push(queue, 1, partition="p2")
    client.pop(queue, "p1", consumerGroup=group, autoAck="true")
    found = client.ask("GET", f"{BASE}/lagging?minLagSeconds=0").json()
    assert not [one for one in found if one["time_lag_seconds"] <= 0]
    assert client.ask("GET", f"{BASE}/lagging?minLagSeconds=100000").json() == []
    assert client.ask("GET", f"{BASE}/lagging?minLagSeconds=x").status == 400


# Going elsewhere


def test_a_group_seeks_to_a_time_and_to_the_end(client: Client, name: Name) -> None:
    queue, group = name("q"), name("g")
    client.push(queue, "a", "b")
    between = now()
    client.push(queue, "c")
    assert taken(client, queue, group) == ["a", "b", "c"]
    told = post(client, f"{group}/queues/{queue}/seek", {"timestamp": between})
    assert (told["success"], told["seekToEnd"], told["targetTimestamp"]) == (True, False, between)
    assert told["partitionsUpdated"] == 1
    assert taken(client, queue, group) == ["c"]
    post(client, f"{group}/queues/{queue}/seek", {"timestamp": "2020-01-01T00:00:00Z"})
    assert taken(client, queue, group) == ["a", "b", "c"]
    client.push(queue, "d")
    assert post(client, f"{group}/queues/{queue}/seek", {"toEnd": True})["seekToEnd"] is True
    assert taken(client, queue, group) == []


def test_a_seek_without_a_place_is_refused(client: Client, name: Name) -> None:
    client.push(name("q"), 1)
    answer = client.ask("POST", f"{BASE}/g/queues/{name('q')}/seek", {})
    assert (answer.status, "timestamp or toEnd" in answer.json()["error"]) == (400, True)
    assert client.ask("POST", f"{BASE}/g/queues/{name('q')}/seek", {"timestamp": "soon"}).status == 400
    assert client.ask("POST", f"{BASE}/g/queues/{name('x')}/seek", {"toEnd": True}).status == 404


def test_leases_from_before_a_seek_are_over(client: Client, name: Name) -> None:
    queue, group = name("q"), name("g")
    client.push(queue, "a")
    (message,) = client.pop(queue, consumerGroup=group)["messages"]
    post(client, f"{group}/queues/{queue}/seek", {"timestamp": "2020-01-01T00:00:00Z"})
    (again,) = client.pop(queue, consumerGroup=group)["messages"]
    (late,) = client.ack(message, group=group)
    assert (late["success"], late["error"]) == (False, "Invalid or expired lease")
    (good,) = client.ack(again, group=group)
    assert good["success"] is True


def test_a_group_that_is_not_there_begins_where_it_is_sent(client: Client, name: Name) -> None:
    client.push(name("q"), "a")
    post(client, f"{name('g')}/queues/{name('q')}/seek", {"toEnd": True})
    client.push(name("q"), "b")
    assert taken(client, name("q"), name("g")) == ["b"]


def test_one_partition_is_skipped(client: Client, name: Name) -> None:
    queue, group = name("q"), name("g")
    client.push(queue, "a", "b", partition="p/1")
    client.push(queue, "c", partition="p2")
    client.pop(queue, "p2", consumerGroup=group)
    path = f"{group}/queues/{queue}/partitions/{quote('p/1', safe='')}/seek"
    told = post(client, path, {})
    assert (told["updated"], told["partitionName"], told["messagesSkipped"]) == (True, "p/1", 2)
    assert client.pop(queue, "p/1", consumerGroup=group)["messages"] == []
    client.push(queue, "d", partition="p/1")
    assert datas(client.pop(queue, "p/1", consumerGroup=group)) == ["d"]
    assert datas(client.pop(queue, "p/1")) == ["a"]
    assert post(client, f"{group}/queues/{queue}/partitions/none/seek", {})["updated"] is False
    assert client.ask("POST", f"{BASE}/x/queues/{queue}/partitions/p2/seek", {}).status == 404


# Deleting


def test_a_group_that_is_deleted_sees_everything_again(client: Client, name: Name) -> None:
    group = name("g")
    for queue in (name("q1"), name("q2")):
        client.push(queue, "a")
        assert taken(client, queue, group) == ["a"]
    told = client.ask("DELETE", f"{BASE}/{group}").json()
    assert (told["success"], told["deletedPartitions"], told["metadataDeleted"]) == (True, 2, True)
    assert entry(client, group, name("q1")) is None
    for queue in (name("q1"), name("q2")):
        assert taken(client, queue, group) == ["a"]


def test_a_group_is_deleted_for_one_queue(client: Client, name: Name) -> None:
    group = name("g")
    for queue in (name("q1"), name("q2")):
        client.push(queue, "a")
        taken(client, queue, group)
    told = client.ask("DELETE", f"{BASE}/{group}/queues/{name('q1')}").json()
    assert (told["queueName"], told["deletedPartitions"]) == (name("q1"), 1)
    assert taken(client, name("q1"), group) == ["a"]
    assert taken(client, name("q2"), group) == []
    assert client.ask("DELETE", f"{BASE}/{group}/queues/{name('nobody')}").status == 404


def test_queue_mode_is_deleted_by_beginning_anew(client: Client, name: Name) -> None:
    queue = name("q")
    client.push(queue, "a", "b")
    assert taken(client, queue) == ["a", "b"]
    assert client.ask("DELETE", f"{BASE}/__QUEUE_MODE__/queues/{queue}").json()["success"] is True
    assert taken(client, queue) == ["a", "b"]


def test_leases_of_a_group_that_is_deleted_are_over(client: Client, name: Name) -> None:
    queue, group = name("q"), name("g")
    client.push(queue, "a")
    (message,) = client.pop(queue, consumerGroup=group)["messages"]
    client.ask("DELETE", f"{BASE}/{group}/queues/{queue}")
    (late,) = client.ack(message, group=group)
    assert (late["success"], late["error"]) == (False, "Invalid or expired lease")
    (again,) = client.pop(queue, consumerGroup=group)["messages"]
    (late,) = client.ack(message, group=group)
    assert late["error"] == "Invalid or expired lease"
    assert client.ack(again, group=group)[0]["success"] is True


@pytest.mark.parametrize("keep", [True, False])
def test_where_a_group_began_is_kept_when_that_is_wanted(client: Client, name: Name, *, keep: bool) -> None:
    queue, group = name("q"), name("g")
    client.push(queue, "old")
    assert taken(client, queue, group, subscriptionMode="new") == []
    client.push(queue, "new")
    assert taken(client, queue, group) == ["new"]
    assert entry(client, group, queue)["subscriptionMode"] == "new"
    path = f"{BASE}/{group}/queues/{queue}?deleteMetadata={str(not keep).lower()}"
    assert client.ask("DELETE", path).json()["metadataDeleted"] is not keep
    assert taken(client, queue, group) == (["new"] if keep else ["old", "new"])


def test_since_when_a_group_wants_messages_is_changed(client: Client, name: Name) -> None:
    queue, group = name("q"), name("g")
    client.push(queue, "old")
    between = now()
    client.push(queue, "new")
    assert taken(client, queue, group) == ["old", "new"]
    told = post(client, f"{group}/subscription", {"subscriptionTimestamp": between})
    assert (told["rowsUpdated"], told["newTimestamp"]) == (1, between)
    assert entry(client, group, queue)["subscriptionMode"] == "timestamp"
    client.ask("DELETE", f"{BASE}/{group}?deleteMetadata=false")
    assert taken(client, queue, group) == ["new"]
    assert client.ask("POST", f"{BASE}/{group}/subscription", {}).status == 400
    assert post(client, f"{name('x')}/subscription", {"subscriptionTimestamp": between})["rowsUpdated"] == 0


def test_a_group_that_has_taken_nothing_begins_at_the_new_time_at_once(client: Client, name: Name) -> None:
    queue, group = name("q"), name("g")
    client.configure(queue)
    assert client.pop(queue, consumerGroup=group)["messages"] == []
    client.push(queue, "old")
    between = now()
    client.push(queue, "new")
    post(client, f"{group}/subscription", {"subscriptionTimestamp": between})
    assert taken(client, queue, group) == ["new"]


def test_a_group_may_be_called_lagging(client: Client, name: Name) -> None:
    queue = name("q")
    client.push(queue, "a")
    assert taken(client, queue, "lagging") == ["a"]
    assert client.ask("DELETE", f"{BASE}/lagging/queues/{queue}").json()["success"] is True
    assert taken(client, queue, "lagging") == ["a"]
