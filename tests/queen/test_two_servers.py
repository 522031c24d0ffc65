"""Two servers on one log: what is done by hand on one holds on the other."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from forebay.api.routes import ROUTES
from tests.queen.wire import Client
from tests.servers import ForebayServer, PostgresServer

Name = Callable[[str], str]


@pytest.fixture(scope="module")
def pair(postgres_server: PostgresServer) -> Iterator[tuple[Client, Client]]:
    """Give clients of two servers."""
    dsn = postgres_server.create_database()
    try:
        with ForebayServer(dsn) as one, ForebayServer(dsn) as other:
            yield Client(one), Client(other)
    finally:
        postgres_server.drop_database(dsn)


def path_of(message: Any, verb: str = "") -> str:
    return f"/api/v1/messages/{message['partitionId']}/{message['transactionId']}{verb}"


@pytest.mark.parametrize("how", ["seek", "delete"])
def test_a_lease_from_before_a_seek_is_over_on_every_server(
    pair: tuple[Client, Client], name: Name, how: str
) -> None:
    one, other = pair
    queue, group = name("q"), name("g")
    one.push(queue, "a")
    (message,) = one.pop(queue, consumerGroup=group)["messages"]
    where = f"/api/v1/consumer-groups/{group}/queues/{queue}"
    if how == "seek":
        body = {"timestamp": "2020-01-01T00:00:00Z"}
        assert one.ask("POST", f"{where}/seek", body).json()["success"] is True
    else:
        assert one.ask("DELETE", where).json()["success"] is True
    (again,) = one.pop(queue, consumerGroup=group, wait="true", timeout=10_000)["messages"]
    (late,) = other.ack(message, group=group)
    assert (late["success"], late["error"]) == (False, "Invalid or expired lease")
    (good,) = other.ack(again, group=group)
    assert good["success"] is True


def test_what_one_server_has_out_is_deleted_on_the_other(pair: tuple[Client, Client], name: Name) -> None:
    one, other = pair
    one.push(name("q"), "a", "b")
    messages = one.pop(name("q"), batch=2)["messages"]
    assert other.ask("DELETE", path_of(messages[0])).json()["success"] is True
    assert [result["success"] for result in one.ack(*messages)] == [False, True]


def test_what_waits_on_one_server_is_deleted_on_the_other(pair: tuple[Client, Client], name: Name) -> None:
    one, other = pair
    pushed = one.push(name("q"), "a", "b", "c")
    one.ack(*one.pop(name("q"))["messages"])
    which = {"partitionId": pushed[1]["partition_id"], "transactionId": pushed[1]["transaction_id"]}
    assert other.ask("DELETE", path_of(which)).json()["success"] is True
    (message,) = one.pop(name("q"), wait="true", timeout=20_000, batch=5)["messages"]
    assert message["data"] == "c"


def reaches(queue: str, group: str, made: Any) -> list[tuple[str, str, Any]]:
    """A request of every kind that is about a queue, or a group of it, in both formats."""
    operations = [{"type": "push", "items": [{"queue": queue, "payload": 1}]}]
    timer = {
        "op": "schedule",
        "queue": queue,
        "timerKey": "k",
        "delayMs": 10**6,
        "payload": "MQ==",
        "txn": "t",
    }
    partition = f"/api/v1/messages/{made['partitionId']}"
    return [
        ("POST", "/api/v1/configure", {"queue": queue}),
        ("POST", "/api/v1/push", {"items": [{"queue": queue, "payload": 1}]}),
        ("POST", "/api/v1/transaction", {"operations": operations}),
        ("POST", "/api/v1/timers", {"operations": [timer]}),
        ("GET", f"/api/v1/pop/queue/{queue}?consumerGroup={group}-2", None),
        ("GET", f"/api/v1/pop/queue/{queue}/partition/Default?consumerGroup={group}-2", None),
        ("GET", f"/api/v1/resources/queues/{queue}", None),
        ("GET", f"/api/v1/resources/queues/{queue}/depth", None),
        ("GET", f"/api/v1/status/queues/{queue}", None),
        ("GET", f"/api/v1/status/queues/{queue}/messages", None),
        ("GET", f"/api/v1/consumer-groups/{group}", None),
        ("GET", f"{partition}/known", None),
        ("POST", f"/api/v1/consumer-groups/{group}/queues/{queue}/seek", {"toEnd": True}),
        ("POST", f"/api/v1/consumer-groups/{group}/queues/{queue}/partitions/Default/seek", {}),
        ("DELETE", f"/api/v1/consumer-groups/{group}/queues/{queue}?deleteMetadata=false", None),
        ("DELETE", f"/api/v1/queues/{queue}/clear", None),
        ("GET", f"/v1/queues/{queue}", None),
        ("PUT", f"/v1/queues/{queue}", {}),
        ("GET", f"/v1/queues/{queue}/groups", None),
        ("POST", f"/v1/queues/{queue}/messages", [{"payload": 1}]),
        ("POST", f"/v1/queues/{queue}/take", {"group": group, "count": 1}),
        ("GET", f"/v1/queues/{queue}/peek?group={group}", None),
        ("GET", f"/v1/queues/{queue}/dead?group={group}", None),
        ("POST", f"/v1/queues/{queue}/groups/{group}/seek", {"start": "earliest"}),
        ("PATCH", f"/v1/queues/{queue}", {"visibility_seconds": 9}),
        ("POST", f"/v1/queues/{queue}/pause", {}),
        ("POST", f"/v1/queues/{queue}/resume", {}),
        ("POST", f"/v1/queues/{queue}/purge", {"group": group}),
        ("DELETE", f"/v1/queues/{queue}", None),
        ("PUT", f"/v1/queues/{queue}/groups/{group}", {}),
        ("DELETE", f"/v1/queues/{queue}/groups/{group}", None),
        ("POST", f"/v1/queues/{queue}/dead/redrive", {"group": group}),
        ("POST", f"/v1/queues/{queue}/dead/purge", {"group": group}),
        ("GET", f"/v1/queues/{queue}/blocks", None),
        ("GET", f"/v1/stats?queue={queue}", None),
        ("GET", f"/v1/ledger?queue={queue}", None),
        ("GET", f"/v1/flows?queue={queue}", None),
        ("POST", "/v1/take", {"queues": [queue], "count": 1}),
        ("GET", f"/api/v1/timers/{queue}", None),
        ("DELETE", f"/api/v1/resources/queues/{queue}", None),
    ]


ELSEWHERE = {
    "/v1/queues/{queue}/dead/undo": "it needs letters, and goes the way of redrive",
    "/api/v1/timers/{queue}/{key}": "a timer is a record of the log, whether there is a queue or not",
    "/api/v1/ephemeral/queue/{queue}": "ephemeral queues are in the memory of one server",
    "/api/v1/ephemeral/queues/{queue}/depth": "likewise",
}
"""Routes that no request above is for, and why."""


def test_there_is_a_request_for_every_route_of_a_queue() -> None:
    asked = [(verb, path.partition("?")[0]) for verb, path, _ in reaches("q", "g", {"partitionId": "p"})]
    left = []
    for route in ROUTES:
        pattern = re.compile(re.sub(r"\{[^}]+\}", "[^/]+", route.path))
        is_asked = any(verb == route.method and pattern.fullmatch(path) for verb, path in asked)
        if "{queue}" in route.path and not is_asked and route.path not in ELSEWHERE:
            left.append(f"{route.method} {route.path}")
    assert left == []


@pytest.mark.parametrize("is_known", [False, True], ids=["unknown", "known from before"])
@pytest.mark.parametrize("place", range(len(reaches("", "", {"partitionId": ""}))))
def test_nothing_is_denied_at_one_server_that_is_there_at_the_other(
    pair: tuple[Client, Client], name: Name, place: int, *, is_known: bool
) -> None:
    one, other = pair
    queue, group = name(f"q{place}"), name("g")
    if is_known:
        other.push(queue, "before")
        other.pop(queue, consumerGroup=group)
        other.ask("GET", f"/api/v1/resources/queues/{queue}")
        assert one.ask("DELETE", f"/api/v1/resources/queues/{queue}").json()["existed"]
    made = one.configure(queue)
    one.push(queue, "known", ids=["known"])
    one.pop(queue, consumerGroup=group, subscriptionMode="new")
    request = reaches(queue, group, made)[place]
    answer = other.ask(*request)
    assert answer.status in (200, 201, 202), (request, answer)
    found = answer.json()
    assert not (isinstance(found, dict) and found.get("error")), (request, found)


def test_options_that_were_set_at_one_server_are_shown_and_kept_by_the_other(
    pair: tuple[Client, Client], name: Name
) -> None:
    one, other = pair
    queue = name("q")
    for number in range(1, 6):
        here, there = (one, other) if number % 2 else (other, one)
        here.configure(queue, leaseTime=number, retryLimit=number)
        made = there.configure(queue, priority=number)
        assert (made["options"]["leaseTime"], made["options"]["retryLimit"]) == (number, number)
        shown = there.ask("GET", f"/api/v1/status/queues/{queue}").json()["queue"]["config"]
        assert (shown["leaseTime"], shown["priority"]) == (number, number)
        listed = here.ask("GET", "/api/v1/resources/queues").json()["queues"]
        assert [row["priority"] for row in listed if row["name"] == queue] == [number]


def test_a_message_without_transaction_id_is_acknowledged_at_the_other_server(
    pair: tuple[Client, Client], name: Name
) -> None:
    one, other = pair
    one.configure(name("q"))
    assert one.ask("POST", f"/v1/queues/{name('q')}/messages", [{"payload": 1}]).status == 201
    (message,) = one.pop(name("q"))["messages"]
    (answer,) = other.ack(message)
    assert answer["success"], answer


def test_a_pop_by_namespace_finds_what_the_other_server_just_made(
    pair: tuple[Client, Client], name: Name
) -> None:
    one, other = pair
    path = f"/api/v1/pop?namespace={name('ns')}&batch=10"
    assert other.ask("GET", path).json()["messages"] == []
    for number in range(3):
        queue = name(f"q{number}")
        assert one.ask("POST", "/api/v1/configure", {"queue": queue, "namespace": name("ns")}).status == 200
        one.push(queue, number)
        (message,) = other.ask("GET", path).json()["messages"]
        assert message["data"] == number
