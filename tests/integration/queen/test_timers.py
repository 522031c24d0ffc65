"""Timers across servers, restarts and kills: each becomes one message."""

from __future__ import annotations

from base64 import b64encode
from contextlib import ExitStack
from typing import Any
from uuid import uuid4

import msgspec

from tests.integration.queen.calling import Caller, until
from tests.servers import ForebayServer, PostgresServer

HOUR_MS = 3_600_000
MODE = "/api/v1/system/maintenance"


def _schedule(caller: Caller, queue: str, numbers: range, delay_ms: int, **more: Any) -> None:
    ops = [
        {
            "op": "schedule",
            "queue": queue,
            "timerKey": f"k{n}",
            "payload": b64encode(msgspec.json.encode(n)).decode(),
            "delayMs": delay_ms,
            "partition": f"p{n % 5}",
            **more,
        }
        for n in numbers
    ]
    caller.post("/api/v1/timers", {"operations": ops})


def _numbers(messages: list[Any]) -> list[int]:
    return sorted(message["data"] for message in messages)


def test_timers_survive_a_kill_and_fire_once_after_it() -> None:
    with ForebayServer() as server:
        caller = Caller(server)
        _schedule(caller, "q", range(300), 1)
        _schedule(caller, "q", range(300, 400), 1_000)
        server.kill()
        server.start()
        assert _numbers(caller.drain("q", 400)) == list(range(400))
        assert caller.get("/api/v1/timers/q")["rows"] == []


def test_two_servers_on_one_log_fire_each_timer_once(postgres_server: PostgresServer) -> None:
    dsn, queue = postgres_server.create_database(), f"q-{uuid4().hex[:8]}"
    with ExitStack() as stack:
        stack.callback(postgres_server.drop_database, dsn)
        callers = [Caller(stack.enter_context(ForebayServer(dsn))) for _ in range(2)]
        for turn in range(4):
            _schedule(callers[turn % 2], queue, range(turn * 250, turn * 250 + 250), 300)
        assert _numbers(callers[0].drain(queue, 1_000)) == list(range(1_000))
        assert callers[1].get(f"/api/v1/timers/{queue}")["rows"] == []


def test_a_server_fires_what_a_server_made_that_is_gone(postgres_server: PostgresServer) -> None:
    dsn = postgres_server.create_database()
    with ExitStack() as stack:
        stack.callback(postgres_server.drop_database, dsn)
        first, second = (stack.enter_context(ForebayServer(dsn)) for _ in range(2))
        _schedule(Caller(first), "q", range(10), 500)
        first.kill()
        assert _numbers(Caller(second).drain("q", 10)) == list(range(10))


def test_timers_wait_while_pushes_are_held_back() -> None:
    with ForebayServer() as server:
        caller = Caller(server)
        caller.post(MODE, {"enabled": True})
        _schedule(caller, "q", range(3), 0)
        assert caller.pop("q", "batch=10&wait=true&timeout=1500")["messages"] == []
        assert len(caller.get("/api/v1/timers/q")["rows"]) == 3
        caller.post(MODE, {"enabled": False})
        assert _numbers(caller.drain("q", 3)) == [0, 1, 2]


def test_the_payload_of_a_queue_that_wants_it_is_sealed_from_the_start() -> None:
    with ForebayServer(variables={"QUEEN_ENCRYPTION_KEY": "ab" * 32}) as server:
        caller = Caller(server)
        caller.post("/api/v1/configure", {"queue": "q", "options": {"encryptionEnabled": True}})
        _schedule(caller, "q", range(42, 43), HOUR_MS)
        shown = caller.get("/api/v1/timers/q/k42")
        assert shown["encrypted"] is True
        assert shown["payload"] != b64encode(b"42").decode()
        _schedule(caller, "q", range(42, 43), 1)
        assert _numbers(caller.drain("q", 1)) == [42]


def test_a_timer_that_can_not_become_a_message_holds_up_no_other_and_says_why() -> None:
    with ForebayServer() as server:
        caller = Caller(server)
        caller.post("/api/v1/configure", {"queue": "sealed", "options": {}})
        caller.post(MODE, {"enabled": True})  # nothing fires before all is as it is to be
        _schedule(caller, "sealed", range(1), 0)
        # The server has no key: it can neither seal it nor say that it did.
        answer = caller.ask_any(
            "PATCH", "/v1/queues/sealed", {"labels": {"queen": {"options": {"encryptionEnabled": True}}}}
        )
        assert answer.status == 200, answer.body
        _schedule(caller, "free", range(3), 0)
        caller.post(MODE, {"enabled": False})
        assert _numbers(caller.drain("free", 3)) == [0, 1, 2]
        until(lambda: caller.get("/api/v1/timers/sealed/k0")["attempts"] > 0, "a failed attempt")
        assert "encryption key" in caller.get("/api/v1/timers/sealed/k0")["lastError"]
        assert caller.ask("DELETE", "/api/v1/timers/sealed/k0")["status"] == "cancelled"


def test_a_timer_does_not_write_a_transaction_id_again_that_its_partition_knows() -> None:
    with ForebayServer() as server:
        caller = Caller(server)
        caller.push("q", "first", partition="p1", transactionId="same")
        _schedule(caller, "q", range(1, 2), 1, txn="same")
        until(lambda: caller.get("/api/v1/timers/q")["rows"] == [], "the timer's end")
        assert [message["data"] for message in caller.drain("q", 1)] == ["first"]
