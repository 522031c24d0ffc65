"""Maintenance: pushes are held back and come once and in order after it; pops bring nothing meanwhile."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.integration.queen.calling import Caller, until
from tests.servers import ForebayServer

MODE = "/api/v1/system/maintenance"
POP_MODE = "/api/v1/system/maintenance/pop"


@pytest.fixture
def server() -> Iterator[ForebayServer]:
    with ForebayServer() as server:
        yield server


@pytest.fixture
def caller(server: ForebayServer) -> Caller:
    return Caller(server)


def payloads(messages: list[Any], partition: str) -> list[Any]:
    return [message["data"] for message in messages if message["partition"] == partition]


def test_pushes_are_held_back_and_come_once_and_in_order_after_it(caller: Caller) -> None:
    caller.push("q", 0, partition="a")
    on = caller.post(MODE, {"enabled": True})
    assert (on["maintenanceMode"], on["bufferedMessages"], on["bufferHealthy"]) == (True, 0, True)
    for value in range(1, 6):
        (answer,) = caller.push("q", value, partition="a")
        assert answer["status"] == "buffered"
        caller.push("q", -value, partition="b")
    shown = caller.get(MODE)
    assert (shown["maintenanceMode"], shown["bufferedMessages"]) == (True, 10)
    assert shown["bufferStats"]["pendingCount"] == 10
    assert payloads(caller.drain("q", 1), "a") == [0]
    off = caller.post(MODE, {"enabled": False})
    assert off["maintenanceMode"] is False
    caller.push("q", 6, partition="a")
    messages = caller.drain("q", 11)
    assert payloads(messages, "a") == [1, 2, 3, 4, 5, 6]
    assert payloads(messages, "b") == [-1, -2, -3, -4, -5]


def test_what_was_held_back_survives_a_kill_and_stays_held_back(
    server: ForebayServer, caller: Caller
) -> None:
    caller.post(MODE, {"enabled": True})
    for value in range(20):
        caller.push("new queue", value, partition="p")
    server.kill()
    server.start()
    assert caller.get(MODE)["maintenanceMode"] is True
    (answer,) = caller.push("new queue", 20, partition="p")
    assert answer["status"] == "buffered"
    until(lambda: caller.get(MODE)["bufferedMessages"] == 21, "what is held back is counted")
    assert caller.pop("new%20queue")["messages"] == []
    caller.post(MODE, {"enabled": False})
    messages = caller.drain("new%20queue", 21)
    assert payloads(messages, "p") == list(range(21))


def test_transaction_ids_that_are_known_are_found_when_it_is_over(caller: Caller) -> None:
    caller.push("q", 1, transactionId="known")
    caller.post(MODE, {"enabled": True})
    caller.push("q", 2, transactionId="known")
    caller.push("q", 3, transactionId="twice")
    caller.push("q", 4, transactionId="twice")
    caller.post(MODE, {"enabled": False})
    assert payloads(caller.drain("q", 2), "Default") == [1, 3]


def test_our_own_pushes_are_held_back_too(caller: Caller) -> None:
    caller.push("q", 0)
    caller.post(MODE, {"enabled": True})
    receipt = caller.post("/v1/queues/q/messages", [{"payload": 1}])
    assert [result["status"] for result in receipt["results"]] == ["spooled"]
    assert caller.get("/v1/spool")["held"] == "maintenance"
    caller.post(MODE, {"enabled": False})
    assert payloads(caller.drain("q", 2), "Default") == [0, 1]


def test_a_transaction_is_refused_while_pushes_are_held_back(caller: Caller) -> None:
    caller.post(MODE, {"enabled": True})
    push = {"type": "push", "items": [{"queue": "q", "payload": 1}]}
    caller.post("/api/v1/transaction", {"operations": [push]}, status=503)
    caller.post(MODE, {"enabled": False})
    assert caller.post("/api/v1/transaction", {"operations": [push]})["success"] is True


def test_pops_bring_nothing_and_are_not_answered_at_once(caller: Caller) -> None:
    caller.push("q", 1)
    assert caller.post(POP_MODE, {"enabled": True})["popMaintenanceMode"] is True
    began = time.monotonic()
    answer = caller.pop("q", "wait=false")
    assert (answer["messages"], answer["paused"]) == ([], True)
    assert time.monotonic() - began > 0.5
    assert caller.get(POP_MODE)["popMaintenanceMode"] is True
    assert caller.get(MODE)["maintenanceMode"] is False
    caller.post(POP_MODE, {"enabled": False})
    assert payloads(caller.drain("q", 1), "Default") == [1]


def test_a_pop_that_waits_gets_its_message_when_pops_are_resumed_and_not_before(caller: Caller) -> None:
    caller.push("q", 0)
    caller.drain("q", 1)
    found: list[Any] = []
    waiting = threading.Thread(target=lambda: found.append(caller.pop("q", "wait=true&timeout=20000")))
    waiting.start()
    until(lambda: caller.waiting() == 1, "somebody waits")
    caller.post(POP_MODE, {"enabled": True})
    until(lambda: caller.waiting() == 0, "nobody waits for a task")
    caller.push("q", 1)
    assert caller.pop("q")["messages"] == []
    assert not found
    caller.post(POP_MODE, {"enabled": False})
    waiting.join(10)
    assert [message["data"] for message in found[0]["messages"]] == [1]


def test_without_a_spool_pushes_can_t_be_held_back() -> None:
    with ForebayServer(sections={"spool": {"enabled": False}}) as server:
        caller = Caller(server)
        assert "spool" in caller.post(MODE, {"enabled": True}, status=400)["error"]
        assert caller.get(MODE)["maintenanceMode"] is False
        (answer,) = caller.push("q", 1)
        assert answer["status"] == "queued"


def test_another_server_of_the_log_follows(server: ForebayServer, caller: Caller) -> None:
    with ForebayServer(server.store_url) as other:
        caller.post(MODE, {"enabled": True})
        caller.post(POP_MODE, {"enabled": True})
        follower = Caller(other)
        until(lambda: follower.get(MODE)["maintenanceMode"], "the other server follows")
        assert follower.get("/api/v1/system/shared-state")["popMaintenanceMode"] is True
        (answer,) = follower.push("q", 1)
        assert answer["status"] == "buffered"
        caller.post(POP_MODE, {"enabled": False})
        caller.post(MODE, {"enabled": False})
        until(lambda: not follower.get(MODE)["maintenanceMode"], "the other server follows")
        assert payloads(follower.drain("q", 1), "Default") == [1]


@pytest.mark.parametrize("body", [{}, {"enabled": None}, {"enabled": "perhaps"}, []])
def test_a_switch_needs_to_know_how(caller: Caller, body: Any) -> None:
    caller.post(MODE, body, status=400)
    assert caller.get(MODE)["maintenanceMode"] is False
