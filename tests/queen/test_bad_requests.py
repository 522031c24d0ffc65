"""Requests that are wrong in part: what of them happens, and what doesn't."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.queen.wire import Client, datas
from tests.servers import ForebayServer

Name = Callable[[str], str]


@pytest.fixture
def client(server: ForebayServer) -> Client:
    """Give a client."""
    return Client(server)


@pytest.mark.parametrize("bad", [{"payload": "x" * (2 << 20)}, {"payload": 1, "transactionId": "a\nb"}])
def test_of_a_push_with_a_bad_item_nothing_is_written(client: Client, name: Name, bad: Any) -> None:
    queue = name("bad")
    items = [{"queue": queue, "partition": "good", "payload": 1}, {"queue": queue, "partition": "bad", **bad}]
    answer = client.ask("POST", "/api/v1/push", {"items": items})
    assert answer.status in (400, 413), answer
    assert client.pop(queue)["messages"] == []


def test_an_id_that_is_none_fails_alone(client: Client, name: Name) -> None:
    queue = name("ids")
    client.push(queue, 1)
    (message,) = client.pop(queue)["messages"]
    bad = [{**message, "partitionId": id} for id in ("x" * 10_000, "\0" * 36, "nobody", "\u00e9" * 36)]
    answers = client.ack(*bad, message)
    assert [answer["error"] for answer in answers] == ["Message not found"] * 4 + [None]


def test_the_id_of_a_partition_is_known_in_capitals_too(client: Client, name: Name) -> None:
    queue = name("capitals")
    client.push(queue, 1)
    (message,) = client.pop(queue)["messages"]
    (answer,) = client.ack({**message, "partitionId": message["partitionId"].upper()})
    assert answer["success"], answer


def test_as_many_unknown_partitions_are_acknowledged_as_messages(client: Client) -> None:
    acks = [{"transactionId": "t", "partitionId": f"00000000-0000-8000-8000-{n:012d}"} for n in range(25_000)]
    answer = client.ask("POST", "/api/v1/ack/batch", {"acknowledgments": acks})
    assert answer.status == 200, answer.body[:200]
    assert {one["error"] for one in answer.json()} == {"Message not found"}


def test_all_queues_of_a_namespace_are_popped_however_many_there_are(client: Client, name: Name) -> None:
    namespace = name("many")
    for number in range(105):
        queue = f"{namespace}-{number:03d}"
        client.ask("POST", "/api/v1/configure", {"queue": queue, "namespace": namespace})
    client.push(f"{namespace}-104", "last")
    answer = client.ask("GET", f"/api/v1/pop?namespace={namespace}&wait=true&timeout=10000").json()
    assert datas(answer) == ["last"]
