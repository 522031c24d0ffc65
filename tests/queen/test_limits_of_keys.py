"""Keys that are for some queues see and touch these only, and do what their scopes allow."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.integration.key_steps import add_key
from tests.queen.wire import Client
from tests.servers import ForebayServer

ALL = ("read", "push", "take", "admin")


@pytest.fixture(scope="module")
def clients() -> Iterator[dict[str, Client]]:
    """Give clients with a key for everything, for one queue, and for looking at it."""
    server = ForebayServer()
    try:
        keys = {
            "all": add_key(server.data, *ALL),
            "mine": add_key(server.data, *ALL, queues=("mine",)),
            "reader": add_key(server.data, "read", queues=("mine",)),
        }
        server.start()
        found = {name: Client(server, key.text) for name, key in keys.items()}
        for queue in ("mine", "other"):
            found["all"].push(queue, queue)
            (message,) = found["all"].pop(queue, consumerGroup="g")["messages"]
            found["all"].ack(message, status="dlq", group="g")
        yield found
    finally:
        server.close()


@pytest.mark.parametrize("who", ["mine", "reader"])
def test_lists_show_only_the_queues_of_a_key(clients: dict[str, Client], who: str) -> None:
    client = clients[who]
    assert {m["queue"] for m in client.ask("GET", "/api/v1/messages").json()["messages"]} == {"mine"}
    assert {m["queue"] for m in client.ask("GET", "/api/v1/dlq").json()["messages"]} == {"mine"}
    groups = client.ask("GET", "/api/v1/consumer-groups").json()
    assert {group["queueName"] for group in groups} == {"mine"}
    assert set(client.ask("GET", "/api/v1/consumer-groups/g").json()) == {"mine"}
    lagging = client.ask("GET", "/api/v1/consumer-groups/lagging?minLagSeconds=0").json()
    assert {one["queue_name"] for one in lagging} <= {"mine"}


def test_another_queue_is_not_touched(clients: dict[str, Client]) -> None:
    (letter,) = clients["all"].ask("GET", "/api/v1/dlq?queue=other").json()["messages"]
    path = f"/api/v1/messages/{letter['partitionId']}/{letter['transactionId']}"
    asked: list[tuple[str, str, Any]] = [
        ("GET", path, None),
        ("DELETE", path, None),
        ("POST", f"{path}/retry", {}),
        ("POST", f"{path}/dlq", {}),
        ("GET", "/api/v1/messages?queue=other", None),
        ("GET", "/api/v1/dlq?queue=other", None),
        ("DELETE", "/api/v1/queues/other/clear", None),
        ("DELETE", "/api/v1/consumer-groups/g/queues/other", None),
        ("POST", "/api/v1/consumer-groups/g/queues/other/seek", {"toEnd": True}),
        ("POST", "/api/v1/consumer-groups/g/queues/other/partitions/Default/seek", {}),
    ]
    for method, where, body in asked:
        assert clients["mine"].ask(method, where, body).status == 403, (method, where)
    for queue in ("mine", "other"):
        clients["all"].pop(queue, consumerGroup="both", autoAck="true")
    assert clients["mine"].ask("DELETE", "/api/v1/consumer-groups/both").json()["deletedPartitions"] == 1
    left = clients["all"].ask("GET", "/api/v1/consumer-groups/both").json()
    assert set(left) == {"other"}


def test_who_may_only_look_changes_nothing(clients: dict[str, Client]) -> None:
    (message,) = clients["all"].ask("GET", "/api/v1/messages?queue=mine").json()["messages"]
    path = f"/api/v1/messages/{message['partitionId']}/{message['transactionId']}"
    assert clients["reader"].ask("GET", path).status == 200
    for method, where in (
        ("DELETE", path),
        ("POST", f"{path}/retry"),
        ("DELETE", "/api/v1/queues/mine/clear"),
        ("DELETE", "/api/v1/consumer-groups/g"),
        ("POST", "/api/v1/consumer-groups/g/queues/mine/seek"),
    ):
        assert clients["reader"].ask(method, where, {}).status == 403, (method, where)
