"""The options of a queue, each by what it does."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from time import monotonic, time
from typing import Any

import pytest

from tests.queen.wire import Client, datas
from tests.servers import ForebayServer

Name = Callable[[str], str]


@pytest.fixture(scope="module")
def server() -> Iterator[ForebayServer]:
    """Give a server that can encrypt; what options do is the same on every log."""
    with ForebayServer(variables={"QUEEN_ENCRYPTION_KEY": "5a" * 32}) as server:
        yield server


@pytest.fixture
def client(server: ForebayServer) -> Client:
    """Give a client."""
    return Client(server)


def wait_for(client: Client, queue: str, count: int = 1, **query: Any) -> Any:
    return client.pop(queue, batch=count, wait="true", timeout=15000, **query)


def at_last(client: Client, queue: str, partition: str | None = None, **query: Any) -> list[Any]:
    """What comes: at once, which would be too early if no time has passed, or by waiting."""
    found = datas(client.pop(queue, partition, **query))
    return found or datas(client.pop(queue, partition, wait="true", timeout=15000, **query))


def test_lease_time_is_how_long_a_consumer_may_take(client: Client, name: Name) -> None:
    client.configure(name("q"), leaseTime=1, retryLimit=5)
    client.push(name("q"), 1)
    began = monotonic()
    client.pop(name("q"))
    (again,) = wait_for(client, name("q"))["messages"]
    assert monotonic() - began > 0.9
    assert again["retryCount"] == 1


def test_expired_leases_count_as_attempts_so_a_poison_message_ends_as_a_dead_letter(
    client: Client, name: Name
) -> None:
    client.configure(name("q"), leaseTime=1, retryLimit=1)
    client.push(name("q"), "poison")
    assert datas(client.pop(name("q"))) == ["poison"]
    assert datas(wait_for(client, name("q"))) == ["poison"]
    client.push(name("q"), "next")
    assert datas(wait_for(client, name("q"))) == ["next"]


def test_retry_delay_is_how_long_a_failed_message_waits(client: Client, name: Name) -> None:
    client.configure(name("q"), retryDelay=1500)
    client.push(name("q"), 1)
    messages = client.pop(name("q"))["messages"]
    began = monotonic()
    client.ack(*messages, status="failed")
    assert at_last(client, name("q")) == [1]
    assert monotonic() - began > 1.4


def test_delayed_processing_holds_messages_back(client: Client, name: Name) -> None:
    client.configure(name("q"), delayedProcessing=2)
    began = monotonic()
    client.push(name("q"), 1, 2)
    assert at_last(client, name("q"), batch=5) == [1, 2]
    assert monotonic() - began > 1.9


def test_a_window_gathers_messages_and_gives_them_out_together(client: Client, name: Name) -> None:
    client.configure(name("q"), windowBuffer=2)
    tries = count()
    while True:
        partition, began = str(next(tries)), monotonic()
        for n in range(4):
            client.push(name("q"), n, partition=partition)
        if monotonic() - began < 2:  # else the machine was too busy, and they are in two windows
            break
    assert at_last(client, name("q"), partition, batch=9) == [0, 1, 2, 3]
    assert monotonic() - began > 1.9


def test_a_queue_takes_no_more_than_its_size(client: Client, name: Name) -> None:
    client.configure(name("q"), maxSize=3)
    assert {r["status"] for r in client.push(name("q"), 1, 2, 3)} == {"queued"}
    (refused,) = client.push(name("q"), 4)
    assert refused["status"] == "failed"
    assert "maxSize" in refused["error"]
    client.ack(*client.pop(name("q"), batch=2)["messages"])
    assert client.push(name("q"), 4)[0]["status"] == "queued"


@pytest.mark.parametrize("option", ["ttl", "maxWaitTimeSeconds"])
def test_what_nobody_takes_in_time_is_a_dead_letter_and_not_lost(
    client: Client, name: Name, option: str
) -> None:
    client.configure(name("q"), **{option: 1})
    client.push(name("q"), "old", partition="a")
    end = time() + 1.3
    while time() < end:
        pass
    found: list[Any] = []
    while not found:  # once more, where the machine was so busy that this is too old as well
        client.push(name("q"), "new", partition="b")
        found = datas(client.pop(name("q"), batch=5, partitions=5))
    assert set(found) == {"new"}
    letters = client.ask("GET", f"/api/v1/dlq?queue={name('q')}&limit=100").json()["messages"]
    assert "old" in [letter["data"] for letter in letters]


def test_payloads_are_kept_encrypted_and_come_as_they_were(
    client: Client, server: ForebayServer, name: Name
) -> None:
    client.configure(name("q"), encryptionEnabled=True)
    client.push(name("q"), {"card": "4111-1111-secret"})
    assert datas(client.pop(name("q"))) == [{"card": "4111-1111-secret"}]
    files = [path.read_bytes() for path in server.data.rglob("forebay.db*")]
    assert files
    assert not any(b"4111-1111-secret" in content for content in files)


def test_encryption_without_a_key_is_refused(name: Name) -> None:
    with ForebayServer() as server:
        body = {"queue": name("q"), "options": {"encryptionEnabled": True}}
        answer = Client(server).ask("POST", "/api/v1/configure", body)
        assert answer.status == 400
        assert "no encryption key" in answer.json()["error"]


def test_retention_drops_old_messages_only_where_it_is_enabled(client: Client, name: Name) -> None:
    asleep = client.configure(name("q"), retentionSeconds=5, completedRetentionSeconds=7)["options"]
    assert asleep["retentionEnabled"] is False
    settings = client.ask("GET", f"/v1/queues/{name('q')}").json()["settings"]
    assert settings["expire_seconds"] is None
    client.configure(name("q"), retentionEnabled=True)
    settings = client.ask("GET", f"/v1/queues/{name('q')}").json()["settings"]
    assert (settings["expire_seconds"], settings["keep_seconds"]) == (5, 7)
