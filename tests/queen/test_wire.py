"""What is on the wire: statuses, errors in Queen's words, and where ours is right and Queen isn't."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.integration.http_wire import ask
from tests.queen.wire import Client, datas
from tests.servers import ForebayServer

Name = Callable[[str], str]


@pytest.fixture
def client(server: ForebayServer) -> Client:
    """Give a client."""
    return Client(server)


@pytest.mark.parametrize(
    ("path", "body", "error"),
    [
        ("/api/v1/push", {}, "items array is required"),
        ("/api/v1/push", {"items": [{"queue": 5, "payload": 1}]}, "Queue must be a string"),
        ("/api/v1/push", {"items": [{"queue": "q", "partition": []}]}, "Partition must be a string"),
        ("/api/v1/push", {"items": [{"queue": "q", "transactionId": {}}]}, "TransactionId must be a string"),
        ("/api/v1/push", b"{", "Invalid JSON"),
        ("/api/v1/push", b"", "Empty request body"),
        ("/api/v1/configure", {"options": {}}, "queue is required"),
        ("/api/v1/configure", {"queue": "q", "options": {"leaseTime": -1}}, "bad option"),
        ("/api/v1/ack", {"partitionId": "p"}, "transactionId is required"),
        ("/api/v1/ack", {"transactionId": "t"}, "partitionId is required to ensure message uniqueness"),
        ("/api/v1/ack/batch", {}, "acknowledgments array is required"),
        (
            "/api/v1/ack/batch",
            {"acknowledgments": [{}]},
            "Each acknowledgment must have a valid transactionId",
        ),
        ("/api/v1/transaction", {}, "operations array required"),
        ("/api/v1/transaction", {"operations": []}, "operations array cannot be empty"),
    ],
)
def test_what_is_wrong_is_said_in_queens_words(client: Client, path: str, body: Any, error: str) -> None:
    answer = client.ask("POST", path, body)
    assert answer.status == 400
    assert answer.json()["error"].startswith(error)
    assert answer.headers["access-control-allow-origin"] == "*"


def test_empty_lists_are_answered(client: Client) -> None:
    assert client.ask("POST", "/api/v1/push", {"items": []}).json() == []
    assert client.ask("POST", "/api/v1/ack/batch", {"acknowledgments": []}).json() == []


def test_a_browser_may_ask_first(server: ForebayServer) -> None:
    answer = ask(server.port, "OPTIONS", "/api/v1/push")
    assert (answer.status, answer.headers["access-control-allow-origin"]) == (200, "*")


def test_options_that_are_not_named_keep_their_value(client: Client, name: Name) -> None:
    client.configure(name("q"), leaseTime=77, retryLimit=9)
    options = client.configure(name("q"), priority=3)["options"]
    assert (options["leaseTime"], options["retryLimit"], options["priority"]) == (77, 9, 3)


def test_any_name_of_a_queue_can_be_used(client: Client, name: Name) -> None:
    for odd in ("", " ", ".", "~x", "a\tb", "workers", "x/partition/y", "%2F", "?a=1", "é"):
        queue = name(odd) if odd else ""
        assert client.configure(queue)["configured"] is True
        client.push(queue, odd, partition=odd)
        if queue:
            popped = client.pop(queue, odd or None, batch=5)
            assert datas(popped) == [odd]
            assert (popped["queue"], popped["partition"]) == (queue, odd)


def test_the_order_of_a_push_is_that_of_its_answer_over_queues_and_partitions(
    client: Client, name: Name
) -> None:
    items = [
        {"queue": name(f"q{n % 3}"), "partition": f"p{n % 5}", "payload": n, "transactionId": f"t{n}"}
        for n in range(60)
    ]
    results = client.ask("POST", "/api/v1/push", {"items": items}).json()
    assert [result["transaction_id"] for result in results] == [f"t{n}" for n in range(60)]
    assert [result["index"] for result in results] == list(range(60))
    assert [result["queueName"] for result in results] == [item["queue"] for item in items]
    for part in range(5):
        found = datas(client.pop(name("q0"), f"p{part}", batch=100))
        assert found == [n for n in range(60) if n % 3 == 0 and n % 5 == part]


def test_nothing_is_pushed_when_one_item_is_bad(client: Client, name: Name) -> None:
    items = [
        {"queue": name("q"), "payload": 1},
        {"queue": name("q"), "payload": 2, "transactionId": "x" * 300},
    ]
    assert client.ask("POST", "/api/v1/push", {"items": items}).status in (400, 413)
    assert client.pop(name("q"), batch=5)["messages"] == []


def test_unknown_messages_and_partitions_are_not_found(client: Client, name: Name) -> None:
    client.push(name("q"), 1)
    (message,) = client.pop(name("q"))["messages"]
    for changes in (
        {"partitionId": "00000000-0000-0000-0000-000000000000"},
        {"partitionId": "no uuid"},
        {"transactionId": "another"},
    ):
        (result,) = client.ack({**message, **changes})
        assert (result["success"], result["error"]) == (False, "Message not found")
    assert client.ack({**message, "leaseId": "01976d3e-7a10-7c3b-9f21-5d0c8e4b6a12"})[0]["error"] == (
        "Invalid or expired lease"
    )
    assert client.ack(message, status="nonsense")[0]["success"] is False
    assert client.ack(message)[0] == {
        "index": 0,
        "transactionId": message["transactionId"],
        "success": True,
        "error": None,
        "queueName": name("q"),
        "partitionName": "Default",
        "leaseReleased": True,
        "dlq": False,
    }
    assert client.ack(message)[0]["noop"] is True


def test_a_message_can_be_acknowledged_without_its_lease(client: Client, name: Name) -> None:
    client.push(name("q"), 1)
    (message,) = client.pop(name("q"))["messages"]
    assert client.ack({**message, "leaseId": None})[0]["success"] is True


def test_what_is_acknowledged_by_the_pop_has_no_lease_and_is_done(client: Client, name: Name) -> None:
    client.push(name("q"), 1, 2)
    popped = client.pop(name("q"), batch=5, autoAck="true")
    assert (popped["leaseId"], datas(popped)) == ("", [1, 2])
    client.push(name("q"), 3)
    assert datas(client.pop(name("q"), batch=5)) == [3]


def test_a_lease_that_is_over_changes_nothing_in_a_transaction(client: Client, name: Name) -> None:
    client.configure(name("q"), leaseTime=1, retryLimit=5)
    client.push(name("q"), 1)
    (stale,) = client.pop(name("q"))["messages"]
    (again,) = client.pop(name("q"), wait="true", timeout=15000)["messages"]
    assert again["retryCount"] == 1
    push = {"type": "push", "items": [{"queue": name("out"), "payload": "stale"}]}
    fenced = {"type": "ack", "status": "completed"} | {
        key: stale[key] for key in ("transactionId", "partitionId")
    }
    for body in (
        {"operations": [push, {**fenced, "leaseId": stale["leaseId"]}]},
        {"operations": [push, fenced], "requiredLeases": [stale["leaseId"]]},
    ):
        answer = client.ask("POST", "/api/v1/transaction", body).json()
        assert (answer["success"], answer["error"]) == (
            False, "ACK operation failed: Invalid or expired lease",
        )  # fmt: skip
    assert client.pop(name("out"), batch=5)["messages"] == []


def test_a_transaction_reaches_over_queues_and_partitions(client: Client, name: Name) -> None:
    client.push(name("a"), 1, partition="x")
    client.push(name("b"), 2, partition="y")
    messages = client.pop(name("a"))["messages"] + client.pop(name("b"))["messages"]
    operations: list[Any] = [
        {"type": "ack", **{k: m[k] for k in ("transactionId", "partitionId", "leaseId")}} for m in messages
    ]
    items = [{"queue": name(q), "partition": p, "payload": [q, p]} for q in "cd" for p in "xyz"]
    operations.append({"type": "push", "items": items})
    answer = client.ask("POST", "/api/v1/transaction", {"operations": operations}).json()
    assert answer["success"] is True
    assert [r["type"] for r in answer["results"]] == ["ack", "ack"] + ["push"] * 6
    for q in "cd":
        for p in "xyz":
            assert datas(client.pop(name(q), p)) == [[q, p]]
    assert client.pop(name("a"))["messages"] == client.pop(name("b"))["messages"] == []


def test_a_queue_that_is_made_again_is_empty_and_works_at_once(client: Client, name: Name) -> None:
    for _ in range(3):
        client.push(name("q"), 1, 2, ids=["a", "b"])
        assert datas(client.pop(name("q"), consumerGroup="g", batch=1)) == [1]
        client.ask("DELETE", f"/api/v1/resources/queues/{name('q')}")


def test_a_queue_of_our_own_format_is_popped_too(client: Client, name: Name) -> None:
    assert client.ask("POST", f"/v1/queues/{name('q')}/messages", [{"payload": {"n": 1}}]).status == 201
    popped = client.pop(name("q"), batch=5, partitions=3)
    assert datas(popped) == [{"n": 1}]
    assert client.ack(*popped["messages"])[0]["success"] is True
    refused = client.ask("GET", f"/api/v1/pop/queue/{name('q')}/partition/p")
    assert refused.status == 400


def test_a_lease_is_extended_and_never_made_shorter(client: Client, name: Name) -> None:
    client.configure(name("q"), leaseTime=300)
    client.push(name("q"), 1)
    popped = client.pop(name("q"))
    lease = popped["leaseId"]
    longer = client.ask("POST", f"/api/v1/lease/{lease}/extend", {"seconds": 900}).json()
    assert longer["success"] is True
    shorter = client.ask("POST", f"/api/v1/lease/{lease}/extend", {"seconds": 1}).json()
    assert shorter["newExpiresAt"] >= longer["newExpiresAt"]
    client.ack(*popped["messages"])
    over = client.ask("POST", f"/api/v1/lease/{lease}/extend", {}).json()
    assert (over["success"], over["error"]) == (False, "Lease not found")


def test_messages_that_were_popped_on_one_server_are_acknowledged_on_another(
    server: ForebayServer, name: Name
) -> None:
    if server.store_url.startswith("sqlite"):
        pytest.skip("one file has one server")
    here = Client(server)
    with ForebayServer(server.store_url) as other:
        there = Client(other)
        here.push(name("q"), 1, 2, 3)
        messages = here.pop(name("q"), batch=5)["messages"]
        assert len(messages) == 3
        done = there.ack(*messages[:2])
        assert [result["success"] for result in done] == [True, True]
        stale = {**messages[2], "leaseId": "01800000-0000-7000-8000-000000000000"}
        assert there.ack(stale)[0]["error"] == "Invalid or expired lease"
        assert there.ack(messages[2])[0]["success"] is True
        here.push(name("q"), 4)
        assert datas(here.pop(name("q"), batch=5, wait="true", timeout=10000)) == [4]


async def test_five_thousand_partitions_are_made_by_one_push(client: Client, name: Name) -> None:
    items = [{"queue": name("q"), "partition": f"p{n}", "payload": n} for n in range(5_000)]
    answer = await asyncio.to_thread(client.ask, "POST", "/api/v1/push", {"items": items})
    assert {result["status"] for result in answer.json()} == {"queued"}
    assert datas(client.pop(name("q"), "p4999")) == [4999]
    assert len({m["partition"] for m in client.pop(name("q"), batch=300, partitions=300)["messages"]}) == 300


def test_a_hundred_long_polls_each_get_their_message(client: Client, name: Name) -> None:
    client.configure(name("q"))
    with ThreadPoolExecutor(100) as pool:
        polls = [pool.submit(client.pop, name("q"), f"p{n}", wait="true", timeout=20000) for n in range(100)]
        for n in range(100):
            client.push(name("q"), n, partition=f"p{n}")
        assert [datas(poll.result()) for poll in polls] == [[n] for n in range(100)]
