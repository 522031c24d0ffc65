"""Traces: noted about messages, found again by the message and by name; bad ones change nothing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import quote
from uuid import uuid4

import pytest

from tests.integration.queen.calling import Caller
from tests.servers import ForebayServer

TRACES = "/api/v1/traces"


@pytest.fixture(scope="module")
def caller() -> Iterator[Caller]:
    with ForebayServer() as server:
        yield Caller(server)


@pytest.fixture
def message(caller: Caller) -> dict[str, Any]:
    """A message of a queue of its own."""
    queue = uuid4().hex
    caller.push(queue, {"n": 1}, partition="p 1", transactionId="t/1")
    (found,) = caller.pop(queue)["messages"]
    return {"transactionId": found["transactionId"], "partitionId": found["partitionId"]}


def of_message(caller: Caller, message: dict[str, Any]) -> list[Any]:
    path = f"{TRACES}/{message['partitionId']}/{quote(message['transactionId'], safe='')}"
    found: list[Any] = caller.get(path)["traces"]
    return found


def test_a_trace_is_found_by_its_message_and_by_its_names_in_order_of_time(
    caller: Caller, message: dict[str, Any]
) -> None:
    one, both = uuid4().hex, "both/of them %"
    for step in range(3):
        body = {**message, "data": {"step": step}, "traceNames": [one, both], "eventType": "step"}
        assert caller.post(TRACES, body)["success"] is True
    caller.post(TRACES, {**message, "data": "alone"})
    traces = of_message(caller, message)
    assert [trace["data"] for trace in traces] == [{"step": 0}, {"step": 1}, {"step": 2}, "alone"]
    assert [trace["event_type"] for trace in traces] == ["step"] * 3 + ["info"]
    assert traces[0]["trace_names"] == sorted([one, both])
    for name in (one, both):
        found = caller.get(f"{TRACES}/by-name/{quote(name, safe='')}")
        assert [trace["data"]["step"] for trace in found["traces"]] == [0, 1, 2]
        assert found["traces"][0]["transactionId"] == message["transactionId"]
        assert found["traces"][0]["partitionName"] == "p 1"
        assert found["total"] == 3


def test_traces_of_a_name_come_in_pages_and_within_a_time(caller: Caller, message: dict[str, Any]) -> None:
    name = uuid4().hex
    for step in range(5):
        caller.post(TRACES, {**message, "data": step, "traceNames": name})
    found = caller.get(f"{TRACES}/by-name/{name}?limit=2&offset=1")
    assert [trace["data"] for trace in found["traces"]] == [1, 2]
    assert (found["total"], found["pagination"]) == (5, {"limit": 2, "offset": 1})
    begin, end = (found["traces"][place]["createdAt"] for place in (0, 1))
    within = caller.get(f"{TRACES}/by-name/{name}?from={begin}&to={end}")
    assert [trace["data"] for trace in within["traces"]] == [1, 2]
    caller.get(f"{TRACES}/by-name/{name}?from=yesterday", status=400)


def test_names_are_listed_with_their_numbers_the_latest_first(
    caller: Caller, message: dict[str, Any]
) -> None:
    first, second = uuid4().hex, uuid4().hex
    for name in (first, second, second):
        caller.post(TRACES, {**message, "data": {}, "traceNames": [name]})
    listed = caller.get(f"{TRACES}/names?limit=2")
    assert [row["trace_name"] for row in listed["trace_names"]] == [second, first]
    assert [(row["trace_count"], row["message_count"]) for row in listed["trace_names"]] == [(2, 1), (1, 1)]
    assert listed["total"] >= 2


@pytest.mark.parametrize(
    "bad",
    [
        {"transactionId": None},
        {"partitionId": ""},
        {"transactionId": 7},
        {"traceNames": [{}]},
        {"traceNames": [f"{n}" for n in range(21)]},
        {"traceNames": ["x" * 256]},
        {"traceNames": ["\0"]},
        {"data": "x" * 70_000},
        {"eventType": "x" * 256},
        {"consumerGroup": "x" * 3_000},
    ],
)
def test_a_trace_that_can_t_be_kept_is_refused_and_changes_nothing(
    caller: Caller, message: dict[str, Any], bad: dict[str, Any]
) -> None:
    answer = caller.ask_any("POST", TRACES, {**message, "data": {}, **bad})
    assert answer.status in (400, 413), answer
    assert answer.json()["error"]
    assert of_message(caller, message) == []


def test_a_trace_without_data_is_refused_and_null_is_data(caller: Caller, message: dict[str, Any]) -> None:
    caller.post(TRACES, message, status=400)
    caller.post(TRACES, {**message, "data": None})
    assert [trace["data"] for trace in of_message(caller, message)] == [None]


def test_a_message_that_isn_t_there_has_no_traces(caller: Caller, message: dict[str, Any]) -> None:
    for unknown in ({**message, "transactionId": "other"}, {**message, "partitionId": str(uuid4())}):
        assert caller.post(TRACES, {**unknown, "data": {}}, status=404)["error"] == "Message not found"
        assert of_message(caller, unknown) == []
