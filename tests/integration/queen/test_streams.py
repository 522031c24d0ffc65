"""Cycles of streams over plain HTTP: state, pushes and acknowledgements change together, and once."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest

from tests.integration.queen.calling import Caller, until
from tests.servers import ForebayServer

CYCLE = "/streams/v1/cycle"
QUERIES = "/streams/v1/queries"
STATE = "/streams/v1/state/get"


@pytest.fixture(scope="module")
def caller() -> Iterator[Caller]:
    with ForebayServer() as server:
        yield Caller(server)


class Stream:
    """A query over a queue of its own, and its cycles."""

    def __init__(self, caller: Caller, *, lease: int = 60) -> None:
        self.caller = caller
        self.queue, self.sink, self.name = (uuid4().hex for _ in range(3))
        self.group = f"streams.{self.name}"
        caller.post("/api/v1/configure", {"queue": self.queue, "options": {"leaseTime": lease}})
        self.id = self.register()["query_id"]

    def register(self, config_hash: str = "h", *, status: int | None = None, **more: Any) -> Any:
        body = {"name": self.name, "source_queue": self.queue, "config_hash": config_hash, **more}
        return self.caller.post(QUERIES, body, status=status)

    def pop(self, batch: int = 10) -> list[Any]:
        query = f"batch={batch}&consumerGroup={self.group}&wait=true&timeout=10000"
        messages: list[Any] = self.caller.pop(self.queue, query)["messages"]
        return messages

    def cycle(self, messages: list[Any] | None, *ops: Any, push: Any = (), **more: Any) -> Any:
        """A cycle that acknowledges up to the last of messages, or nothing."""
        return self.caller.post(CYCLE, self.body(messages, *ops, push=push, **more))

    def body(self, messages: list[Any] | None, *ops: Any, push: Any = (), **more: Any) -> dict[str, Any]:
        ack = None
        if messages:
            last = messages[-1]
            ack = {"transactionId": last["transactionId"], "leaseId": last["leaseId"], "count": len(messages)}
        return {
            "query_id": self.id,
            "partition_id": self.partition,
            "consumer_group": self.group,
            "state_ops": list(ops),
            "push_items": [{"queue": self.sink, "payload": payload} for payload in push],
            "ack": ack,
            "release_lease": True,
            **more,
        }

    @property
    def partition(self) -> str:
        (queue,) = [self.caller.post("/api/v1/configure", {"queue": self.queue})]
        return str(queue["partitionId"])

    def state(self, **more: Any) -> dict[str, Any]:
        body = {"query_id": self.id, "partition_id": self.partition, "keys": [], **more}
        return {row["key"]: row["value"] for row in self.caller.post(STATE, body)["rows"]}

    def emitted(self) -> list[Any]:
        return [message["data"] for message in self.caller.pop(self.sink)["messages"]]


@pytest.fixture
def stream(caller: Caller) -> Stream:
    return Stream(caller)


def upsert(key: str, value: Any) -> dict[str, Any]:
    return {"type": "upsert", "key": key, "value": value}


def delete(key: str) -> dict[str, Any]:
    return {"type": "delete", "key": key}


def test_state_pushes_and_acknowledgement_change_together(stream: Stream, caller: Caller) -> None:
    caller.push(stream.queue, 1, 2, 3)
    messages = stream.pop()
    answer = stream.cycle(messages, upsert("k\u001fä", {"acc": 6}), upsert("gone", 1), push=[{"sum": 6}])
    assert (answer["success"], answer["state_ops_applied"]) == (True, 2)
    assert answer["queueName"] == stream.queue
    assert answer["push_results"][0]["status"] == "queued"
    assert answer["ack_result"] == {"success": True, "lease_released": True, "dlq": False, "count": 3}
    assert stream.state() == {"k\u001fä": {"acc": 6}, "gone": 1}
    assert stream.state(keys=["gone", "missing"]) == {"gone": 1}
    assert stream.emitted() == [{"sum": 6}]
    caller.push(stream.queue, 4)
    again = stream.pop()
    assert [message["data"] for message in again] == [4]
    stream.cycle(again, delete("gone"))
    assert stream.state() == {"k\u001fä": {"acc": 6}}


def test_a_cycle_whose_answer_was_lost_can_be_sent_again(stream: Stream, caller: Caller) -> None:
    caller.push(stream.queue, 1)
    body = stream.body(stream.pop(), upsert("k", 1), push=["once"])
    assert caller.post(CYCLE, body)["success"] is True
    again = caller.post(CYCLE, body)
    assert (again["success"], again["repeated"]) == (True, True)
    assert stream.emitted() == ["once"]
    other = caller.post(CYCLE, {**body, "push_items": []})
    assert (other["success"], other["error"]) == (False, "Invalid or expired lease")


def test_a_flush_whose_answer_was_lost_can_be_sent_again(stream: Stream, caller: Caller) -> None:
    caller.push(stream.queue, 1)
    stream.cycle(stream.pop(), upsert("w", {"acc": 1, "windowEnd": 5}))
    assert stream.state(ripe_at_or_before=5) == {"w": {"acc": 1, "windowEnd": 5}}
    body = stream.body(None, delete("w"), push=["window"])
    assert caller.post(CYCLE, body)["success"] is True
    assert caller.post(CYCLE, body)["repeated"] is True
    assert len(stream.emitted()) == 1
    assert stream.state() == {}


def test_who_lost_its_lease_changes_nothing(caller: Caller) -> None:
    stream = Stream(caller, lease=1)
    caller.push(stream.queue, 1)
    late = stream.pop()
    messages = stream.pop()  # it came back
    assert [message["data"] for message in messages] == [1]
    answer = stream.cycle(late, upsert("k", "late"), push=["late"])
    assert (answer["success"], answer["error"]) == (False, "Invalid or expired lease")
    assert stream.state() == {}
    assert stream.cycle(messages, upsert("k", "in time"), push=["in time"])["success"] is True
    assert stream.state() == {"k": "in time"}
    assert len(stream.emitted()) == 1


def test_a_flush_of_a_window_that_has_grown_meanwhile_is_refused(stream: Stream, caller: Caller) -> None:
    caller.push(stream.queue, 1)
    stream.cycle(stream.pop(), upsert("w", {"acc": 1, "windowEnd": 5}))
    assert stream.state(ripe_at_or_before=9)
    caller.push(stream.queue, 2)
    stream.cycle(stream.pop(), upsert("w", {"acc": 2, "windowEnd": 5}))
    answer = stream.cycle(None, delete("w"), push=[1])
    assert (answer["success"], stream.emitted()) == (False, [])
    assert stream.state(ripe_at_or_before=9) == {"w": {"acc": 2, "windowEnd": 5}}
    assert stream.cycle(None, delete("w"), push=[2])["success"] is True


def test_a_cycle_over_state_that_was_flushed_meanwhile_is_refused_and_its_batch_comes_again(
    stream: Stream, caller: Caller
) -> None:
    caller.push(stream.queue, 1)
    stream.cycle(stream.pop(), upsert("w", {"acc": 1, "windowEnd": 5}))
    caller.push(stream.queue, 2)
    messages = stream.pop()
    assert stream.state() == {"w": {"acc": 1, "windowEnd": 5}}
    assert stream.cycle(None, delete("w"), push=[1])["success"] is True
    answer = stream.cycle(messages, upsert("w", {"acc": 2, "windowEnd": 5}))
    assert (answer["success"], stream.state()) == (False, {})
    again = stream.pop()
    assert [message["data"] for message in again] == [2]
    assert stream.cycle(again, upsert("w", {"acc": 1, "windowEnd": 5}))["success"] is True


def test_what_a_gate_leaves_stays_out_until_its_lease_is_over(caller: Caller) -> None:
    stream = Stream(caller, lease=1)
    caller.push(stream.queue, 1, 2, 3)
    messages = stream.pop()
    answer = stream.cycle(messages[:2], release_lease=False)
    assert (answer["ack_result"]["count"], answer["ack_result"]["lease_released"]) == (2, False)
    again = stream.pop()
    assert [(message["data"], message["retryCount"]) for message in again] == [(3, 0)]


def test_a_batch_that_failed_comes_again_at_once(stream: Stream, caller: Caller) -> None:
    caller.push(stream.queue, 1, 2)
    messages = stream.pop()
    body = stream.body(messages, upsert("k", 1), push=[1])
    body["ack"]["status"] = "failed"
    began = time.monotonic()
    assert caller.post(CYCLE, body)["success"] is True
    assert [message["data"] for message in stream.pop()] == [1, 2]
    assert time.monotonic() - began < 20
    assert (stream.state(), stream.emitted()) == ({}, [])


def test_registering_again_finds_the_query_and_a_reset_begins_anew(stream: Stream, caller: Caller) -> None:
    caller.push(stream.queue, 1)
    stream.cycle(stream.pop(), upsert("k", 1))
    same = stream.register()
    assert (same["query_id"], same["fresh"], same["reset"]) == (stream.id, False, False)
    refused = stream.register("other", status=409)
    assert (refused["success"], refused["query_id"]) == (False, stream.id)
    assert stream.state() == {"k": 1}
    assert stream.register("other", reset=True)["reset"] is True
    assert stream.state() == {}
    stream.register(status=409)


@pytest.mark.parametrize(
    "change",
    [
        {"query_id": None},
        {"partition_id": ""},
        {"state_ops": [{"type": "add", "key": "k"}]},
        {"state_ops": [{"type": "upsert"}]},
        {"state_ops": [upsert("", 1)]},
        {"state_ops": [upsert("\0", 1)]},
        {"state_ops": [upsert("k" * 1_000, 1)]},
        {"push_items": [{"payload": 1}]},
        {"ack": {"transactionId": 1, "status": []}},
    ],
)
def test_a_bad_cycle_changes_nothing(stream: Stream, caller: Caller, change: dict[str, Any]) -> None:
    caller.push(stream.queue, 1)
    messages = stream.pop()
    good = stream.body(messages, upsert("k", 1))
    assert caller.post(CYCLE, {**good, **change}, status=400)["error"]
    assert stream.state() == {}
    assert caller.post(CYCLE, good)["success"] is True


def test_what_isn_t_there_is_said(stream: Stream, caller: Caller) -> None:
    nowhere = str(uuid4())
    body = stream.body(None)
    assert caller.post(CYCLE, {**body, "query_id": nowhere}, status=404)["error"] == "query not found"
    assert caller.post(CYCLE, {**body, "partition_id": nowhere}, status=404)["error"] == "partition not found"
    caller.post(STATE, {"query_id": nowhere, "partition_id": nowhere}, status=404)
    for missing in ("name", "source_queue", "config_hash"):
        form = {"name": "n", "source_queue": "q", "config_hash": "h", missing: None}
        caller.post(QUERIES, form, status=400)


def test_state_of_many_keys_comes_whole(stream: Stream, caller: Caller) -> None:
    caller.push(stream.queue, 1)
    ops = [upsert(f"w\u001f{number}", {"windowEnd": number}) for number in range(3_000)]
    stream.cycle(stream.pop(), *ops, upsert("x", 0))
    assert len(stream.state()) == 3_001
    assert len(stream.state(key_prefix="w\u001f", ripe_at_or_before=9)) == 10


def test_cycles_wait_for_nothing_while_the_server_is_restarted() -> None:
    with ForebayServer() as server:
        caller = Caller(server)
        stream = Stream(caller)
        caller.push(stream.queue, 1)
        body = stream.body(stream.pop(), upsert("k", 1), push=[1])
        assert caller.post(CYCLE, body)["success"] is True
        server.kill()
        server.start()
        assert caller.post(CYCLE, body)["repeated"] is True
        assert stream.state() == {"k": 1}
        until(lambda: len(stream.emitted()) == 1, "what was pushed is there")


def test_a_cycle_may_come_to_another_server_than_the_one_that_gave_out_its_batch() -> None:
    with ForebayServer() as server, ForebayServer(server.store_url) as other:
        caller = Caller(server)
        stream, elsewhere = Stream(caller), Caller(other)
        for caller_of in (caller, elsewhere):  # both have claimed, so they know of each other
            caller_of.push("warm", 1)
            caller_of.drain("warm", 1)
        for value in (1, 2, 3):
            caller.push(stream.queue, value)
        messages = stream.pop()
        assert [message["data"] for message in messages] == [1, 2, 3]
        body = stream.body(messages[:2], upsert("k", 3), push=[3], release_lease=False)
        assert elsewhere.post(CYCLE, body)["ack_result"]["count"] == 2
        rest = stream.body(messages, upsert("k", 6), push=[6])
        assert elsewhere.post(CYCLE, rest)["ack_result"]["count"] == 1
        assert elsewhere.post(CYCLE, rest)["repeated"] is True
        assert stream.state() == {"k": 6}
        assert [message["data"] for message in elsewhere.drain(stream.sink, 2)] == [3, 6]
