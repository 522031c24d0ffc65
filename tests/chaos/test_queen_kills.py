"""A server that is killed while Queen's clients forward messages in transactions, some of them too late."""

from __future__ import annotations

import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import Any, Final

import pytest

from tests.integration.queen.calling import until
from tests.queen.wire import Client
from tests.servers import ForebayServer, PostgresServer

MESSAGES: Final = 300
PARTITIONS: Final = 5
WORKERS: Final = 4
KILLS: Final = 4


@pytest.fixture(params=["sqlite", "postgres"])
def server(request: pytest.FixtureRequest) -> Iterator[ForebayServer]:
    """Give a server that may be killed."""
    if request.param == "sqlite":
        with ForebayServer() as server:
            yield server
        return
    postgres: PostgresServer = request.getfixturevalue("postgres_server")
    dsn = postgres.create_database()
    try:
        with ForebayServer(dsn) as server:
            yield server
    finally:
        postgres.drop_database(dsn)


class Forwarding:
    """Clients that forward what comes, and what they were told is done."""

    def __init__(self, server: ForebayServer, seed: int) -> None:
        self.forwarded: set[int] = set()
        self.is_over = Event()
        self._client = Client(server)
        self._seed = seed

    def run(self, number: int) -> None:
        """Forward until it is over, whatever happens to the server."""
        chance = random.Random(self._seed + number)
        while not self.is_over.is_set():
            try:
                self._forward(chance)
            except (OSError, ValueError, AssertionError, KeyError):
                self.is_over.wait(0.05)  # the server is gone, or not there yet

    def _forward(self, chance: random.Random) -> None:
        popped = self._client.pop("src", batch=5, partitions=2, wait="true", timeout=500)
        messages = popped["messages"]
        if messages and chance.random() < 0.1:
            self.is_over.wait(1.5)  # until the lease is over
        if messages and self._transact(messages, popped["leaseId"])["success"]:
            self.forwarded.update(message["data"] for message in messages)

    def _transact(self, messages: Any, lease: str) -> Any:
        items = [{"queue": "dst", "partition": m["partition"], "payload": m["data"]} for m in messages]
        acks = [{key: m[key] for key in ("transactionId", "partitionId")} for m in messages]
        operations = [{"type": "push", "items": items}, *({"type": "ack", **ack} for ack in acks)]
        body = {"operations": operations, "requiredLeases": [lease]}
        return self._client.ask("POST", "/api/v1/transaction", body).json()


def test_each_message_is_forwarded_once_and_in_order_however_often_the_server_is_killed(
    server: ForebayServer, seed: int
) -> None:
    client, forwarding = Client(server), Forwarding(server, seed)
    client.configure("src", leaseTime=1, retryDelay=0, retryLimit=1_000)
    client.configure("dst")
    for number in range(MESSAGES):
        client.push("src", number, partition=f"p{number % PARTITIONS}")
    with ThreadPoolExecutor(WORKERS) as pool:
        running = [pool.submit(forwarding.run, number) for number in range(WORKERS)]
        try:
            for kill in range(KILLS):
                enough = MESSAGES * (kill + 1) // (KILLS + 2)
                until(lambda enough=enough: len(forwarding.forwarded) >= enough, "it goes on")  # type: ignore[misc]
                server.kill()
                server.start()
            until(lambda: _is_done(client), "all is forwarded")
        finally:
            forwarding.is_over.set()
        for one in running:
            one.result()
    found = _drained(client)
    assert sorted(number for _, number in found) == list(range(MESSAGES))
    assert forwarding.forwarded <= {number for _, number in found}
    for partition in {partition for partition, _ in found}:
        mine = [number for name, number in found if name == partition]
        assert mine == sorted(mine), partition


def _is_done(client: Client) -> bool:
    totals = client.ask("GET", "/api/v1/resources/queues/src").json()["totals"]
    return bool(totals["pending"] + totals["processing"] == 0)


def _drained(client: Client) -> list[tuple[str, int]]:
    found: list[tuple[str, int]] = []
    while messages := client.pop("dst", batch=1000, partitions=100, autoAck="true")["messages"]:
        found += [(message["partition"], message["data"]) for message in messages]
    return found
