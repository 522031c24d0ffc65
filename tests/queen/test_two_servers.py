"""Two servers on one log: what is done by hand on one holds on the other."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

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
