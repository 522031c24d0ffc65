"""Two servers on one database, with clients that go from one to the other."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.integration.queen.calling import Caller, until
from tests.queen.wire import Client, datas
from tests.servers import ForebayServer


@pytest.fixture
def servers(postgres_dsn: str) -> Iterator[tuple[ForebayServer, ForebayServer]]:
    """Give two of them."""
    with ForebayServer(postgres_dsn) as one, ForebayServer(postgres_dsn) as other:
        yield one, other


def _transaction(client: Client, message: Any, lease: str) -> Any:
    """Forward a message, as clients do: they name the lease for the whole."""
    ack = {key: message[key] for key in ("transactionId", "partitionId")}
    operations = [
        {"type": "push", "items": [{"queue": "out", "payload": message["data"]}]},
        {"type": "ack", **ack, "status": "completed"},
    ]
    body = {"operations": operations, "requiredLeases": [lease]}
    return client.ask("POST", "/api/v1/transaction", body).json()


def test_who_lost_a_lease_changes_nothing_by_another_server(
    servers: tuple[ForebayServer, ForebayServer],
) -> None:
    one, other = map(Client, servers)
    one.configure("q", leaseTime=1, retryDelay=0)
    one.push("q", "x")
    (late,) = one.pop("q")["messages"]
    (current,) = one.pop("q", wait="true", timeout=20_000)["messages"]
    assert current["retryCount"] == 1
    assert not _transaction(other, late, late["leaseId"])["success"]
    assert not _transaction(other, late, "no lease at all")["success"]
    assert other.pop("out")["messages"] == []
    one.configure("q", leaseTime=60)
    assert _transaction(other, current, current["leaseId"])["success"]
    assert datas(other.pop("out")) == ["x"]


def test_a_queue_that_another_server_made_anew_is_popped_and_acknowledged_everywhere(
    servers: tuple[ForebayServer, ForebayServer],
) -> None:
    one, other = map(Client, servers)
    one.push("q", 1, partition="p")
    assert datas(other.pop("q", consumerGroup="g")) == [1]
    assert Caller(servers[0]).ask("DELETE", "/api/v1/resources/queues/q")["existed"]
    one.configure("q")
    other.push("q", 2, partition="p")
    (message,) = other.pop("q", consumerGroup="g")["messages"]
    assert message["data"] == 2
    (answer,) = one.ack(message, group="g")
    assert answer["success"], answer


def test_who_waits_at_one_server_gets_what_comes_after_another_made_the_queue_anew(
    servers: tuple[ForebayServer, ForebayServer],
) -> None:
    (one, other), caller = map(Client, servers), Caller(servers[0])
    one.push("q", "before")
    one.ack(*one.pop("q", consumerGroup="g")["messages"], group="g")
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(one.pop, "q", consumerGroup="g", wait="true", timeout=20_000)
        until(lambda: caller.waiting() > 0, "somebody waits")
        assert Caller(servers[1]).ask("DELETE", "/api/v1/resources/queues/q")["existed"]
        other.configure("q")
        other.push("q", "after")
        assert datas(waiting.result()) == ["after"]
