"""Messages one by one: listed, looked at, deleted, handed out again, made dead letters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import quote, urlencode

import pytest

from forebay.api.queen.identity import message_number
from tests.queen.wire import Client, datas
from tests.servers import ForebayServer

Name = Callable[[str], str]


@pytest.fixture
def client(server: ForebayServer) -> Client:
    """Give a client."""
    return Client(server)


def path_of(message: Any, verb: str = "") -> str:
    """Where a message is that was pushed, popped or listed."""
    partition = message.get("partitionId") or message["partition_id"]
    transaction = message.get("transactionId") or message["transaction_id"]
    return f"/api/v1/messages/{partition}/{quote(transaction, safe='')}{verb}"


def number_of(pushed: Any) -> int:
    """The number of a message that was pushed."""
    number = message_number(pushed["message_id"])
    assert number is not None
    return number


def listed(client: Client, **query: Any) -> list[Any]:
    found: list[Any] = client.ask("GET", f"/api/v1/messages?{urlencode(query)}").json()["messages"]
    return found


def letters(client: Client, **query: Any) -> Any:
    return client.ask("GET", f"/api/v1/dlq?{urlencode(query)}").json()


def drained(client: Client, queue: str, **query: Any) -> list[Any]:
    """All that is handed out now."""
    found: list[Any] = []
    while messages := client.pop(queue, batch=100, partitions=100, autoAck="true", **query)["messages"]:
        found += [message["data"] for message in messages]
    return found


# Lists


def test_messages_are_listed_newest_first_with_how_they_stand(client: Client, name: Name) -> None:
    queue = name("q")
    client.configure(queue, priority=3)
    client.push(queue, "a", "b", "c", "d", ids=["ta", "tb", "tc", "td"])
    a, b, _ = client.pop(queue, batch=3)["messages"]
    client.ack(a)
    client.ack(b, status="dlq", error="no good")
    found = listed(client, queue=queue)
    assert [(m["transactionId"], m["status"]) for m in found] == [
        ("td", "pending"), ("tc", "processing"), ("tb", "dead_letter"), ("ta", "completed"),
    ]  # fmt: skip
    assert found[1]["leaseExpiresAt"] > found[1]["createdAt"]
    assert found[0]["leaseExpiresAt"] is None
    assert {(m["queue"], m["partition"], m["queuePath"], m["queuePriority"]) for m in found} == {
        (queue, "Default", f"{queue}/Default", 3)
    }
    assert {m["busStatus"]["totalGroups"] for m in found} == {0}


def test_a_list_has_a_page_a_status_a_partition_and_a_time(client: Client, name: Name) -> None:
    queue = name("q")
    client.push(queue, *range(5), ids=[f"t{n}" for n in range(5)])
    client.push(queue, "other", partition="p 2/ü", ids=["o"])
    client.ack(*client.pop(queue, batch=2)["messages"])

    def ids(**query: Any) -> list[str]:
        return [message["transactionId"] for message in listed(client, queue=queue, **query)]

    assert ids(limit=2) == ["o", "t4"]
    assert ids(limit=2, offset=1) == ["t4", "t3"]
    assert ids(status="completed") == ["t1", "t0"]
    assert ids(status="pending", limit=1, offset=1) == ["t4"]
    assert ids(partition="p 2/ü") == ["o"]
    assert ids(partition="Default", limit=1) == ["t4"]
    assert ids(partition="nobody") == []
    times = [message["createdAt"] for message in listed(client, queue=queue)]
    assert len(ids(to=times[0], **{"from": times[-1]})) == 6
    assert ids(to="2020-01-01T00:00:00Z") == []
    assert ids(**{"from": "2099-01-01T00:00:00Z"}) == []


def test_a_list_of_several_queues_goes_by_namespace_and_task(client: Client, name: Name) -> None:
    for queue in ("q1", "q2", "q3"):
        body = {"queue": name(queue), "namespace": name("ns"), "task": name(queue)}
        client.ask("POST", "/api/v1/configure", body)
        client.push(name(queue), queue, ids=[queue])
    assert [m["transactionId"] for m in listed(client, ns=name("ns"))] == ["q3", "q2", "q1"]
    assert [m["transactionId"] for m in listed(client, ns=name("ns"), task=name("q2"))] == ["q2"]
    assert listed(client, ns=name("nobody")) == []
    assert listed(client, queue=name("nobody")) == []


def test_what_groups_have_consumed_is_counted_apart(client: Client, name: Name) -> None:
    queue = name("q")
    client.push(queue, 1)
    for group in ("g1", "g2"):
        client.pop(queue, consumerGroup=group)
    assert client.pop(queue, consumerGroup="g1")["messages"] == []
    (message,) = listed(client, queue=queue)
    assert (message["status"], message["busStatus"]) == ("processing", {"consumedBy": 0, "totalGroups": 2})
    mode = client.ask("GET", f"/api/v1/messages?queue={queue}").json()["mode"]
    assert mode == {"hasQueueMode": False, "busGroupsCount": 2, "type": "bus"}


@pytest.mark.parametrize("query", ["status=odd", "limit=x", "from=yesterday", "offset=1000000"])
def test_a_bad_filter_is_refused(client: Client, query: str) -> None:
    answer = client.ask("GET", f"/api/v1/messages?{query}")
    assert (answer.status, bool(answer.json()["error"])) == (400, True)


# One message


def test_a_message_is_shown_with_all_that_is_known_of_it(client: Client, name: Name) -> None:
    queue = name("q")
    client.configure(queue, retryLimit=0, leaseTime=60)
    (pushed,) = client.push(queue, {"a": 1}, ids=["t/1 ü"])
    found = client.ask("GET", path_of(pushed)).json()
    assert (found["payload"], found["status"], found["isEncrypted"]) == ({"a": 1}, "pending", False)
    assert found["queueConfig"]["leaseTime"] == 60
    (message,) = client.pop(queue)["messages"]
    client.ack(message, status="failed", error="broke")
    found = client.ask("GET", path_of(pushed)).json()
    assert (found["status"], found["errorMessage"]) == ("dead_letter", "broke")
    assert [group["name"] for group in found["consumerGroups"]] == ["__QUEUE_MODE__"]


def test_a_message_without_a_transaction_id_is_named_by_its_number(client: Client, name: Name) -> None:
    queue = name("q")
    client.configure(queue)
    client.ask("POST", f"/v1/queues/{queue}/messages", [{"payload": "x"}])
    (message,) = listed(client, queue=queue)
    assert message["transactionId"].startswith("message:")
    assert client.ask("GET", path_of(message)).json()["payload"] == "x"
    assert client.ask("DELETE", path_of(message)).json()["success"] is True
    assert drained(client, queue) == []


@pytest.mark.parametrize("method", ["GET", "DELETE", "POST"])
def test_a_message_that_is_not_there_is_not_found(client: Client, name: Name, method: str) -> None:
    (pushed,) = client.push(name("q"), 1)
    verb = "/retry" if method == "POST" else ""
    for path in (
        path_of({**pushed, "transaction_id": "nobody"}, verb),
        path_of({**pushed, "partition_id": "00000000-0000-0000-0000-000000000000"}, verb),
        path_of({**pushed, "partition_id": "no id"}, verb).replace(" ", "%20"),
        path_of({**pushed, "transaction_id": "message:99999999999999999999"}, verb),
        path_of({**pushed, "transaction_id": "message:1"}, verb),
        path_of({**pushed, "transaction_id": f"message:{number_of(pushed) + 5}"}, verb),
        path_of({**pushed, "transaction_id": f"message:{number_of(pushed)}"}, verb),
    ):
        answer = client.ask(method, path)
        assert (answer.status, answer.json()["error"]) == (404, "Message not found")


# Deleting


def test_what_is_deleted_is_handed_out_to_nobody(client: Client, name: Name) -> None:
    queue = name("q")
    pushed = client.push(queue, "a", "b", "c")
    client.pop(queue, consumerGroup="g", batch=1)
    deleted = client.ask("DELETE", path_of(pushed[1])).json()
    assert deleted["success"] is True
    assert deleted["message"] == "Message deleted successfully"
    assert drained(client, queue) == ["a", "c"]
    assert client.ask("GET", path_of(pushed[1])).status == 404
    assert [m["id"] for m in listed(client, queue=queue)] == [
        pushed[2]["message_id"],
        pushed[0]["message_id"],
    ]
    assert letters(client, queue=queue)["total"] == 0
    assert client.ask("DELETE", path_of(pushed[1])).json()["success"] is False


def test_one_that_is_out_is_deleted_and_its_consumer_comes_too_late(client: Client, name: Name) -> None:
    queue = name("q")
    client.push(queue, "a", "b", "c")
    messages = client.pop(queue, batch=3)["messages"]
    assert client.ask("DELETE", path_of(messages[1])).json()["success"] is True
    results = client.ack(*messages)
    assert [result["success"] for result in results] == [True, False, True]
    assert results[1]["error"] == "Invalid or expired lease"
    assert drained(client, queue) == []


def test_a_dead_letter_is_deleted(client: Client, name: Name) -> None:
    queue = name("q")
    client.push(queue, "a")
    (message,) = client.pop(queue)["messages"]
    client.ack(message, status="dlq")
    assert client.ask("DELETE", path_of(message)).json()["success"] is True
    assert letters(client, queue=queue) == {
        "messages": [], "total": 0, "pagination": {"limit": 100, "offset": 0, "total": 0},
    }  # fmt: skip


def test_what_everybody_has_finished_is_not_deleted_again(client: Client, name: Name) -> None:
    queue = name("q")
    client.push(queue, "a")
    (message,) = client.pop(queue)["messages"]
    client.ack(message)
    told = client.ask("DELETE", path_of(message)).json()
    assert told["success"] is False
    assert "finished" in told["message"]


# Handing out again


def test_a_dead_letter_is_handed_out_again(client: Client, name: Name) -> None:
    queue = name("q")
    client.push(queue, "a")
    (message,) = client.pop(queue)["messages"]
    client.ack(message, status="dlq", error="no")
    assert client.ask("POST", path_of(message, "/retry"), {}).json()["success"] is True
    (again,) = client.pop(queue)["messages"]
    assert (again["data"], again["id"]) == ("a", message["id"])
    assert letters(client, queue=queue)["total"] == 0


def test_what_failed_comes_at_once_when_it_is_retried(client: Client, name: Name) -> None:
    queue = name("q")
    client.configure(queue, retryDelay=3_600_000)
    client.push(queue, "a")
    (message,) = client.pop(queue)["messages"]
    client.ack(message, status="failed")
    assert client.pop(queue)["messages"] == []
    assert client.ask("POST", path_of(message, "/retry"), {}).json()["success"] is True
    assert datas(client.pop(queue)) == ["a"]


def test_what_is_delayed_by_its_queue_comes_at_once_when_it_is_retried(client: Client, name: Name) -> None:
    queue = name("q")
    client.configure(queue, delayedProcessing=3600)
    pushed = client.push(queue, "a", "b")
    assert client.pop(queue)["messages"] == []
    assert client.ask("POST", path_of(pushed[0], "/retry"), {}).json()["success"] is True
    assert drained(client, queue) == ["a"]


def test_one_that_is_out_or_done_says_why_it_is_not_retried(client: Client, name: Name) -> None:
    queue = name("q")
    (pushed,) = client.push(queue, "a")
    told = [client.ask("POST", path_of(pushed, "/retry"), {}).json()]
    (message,) = client.pop(queue)["messages"]
    told.append(client.ask("POST", path_of(pushed, "/retry"), {}).json())
    client.ack(message)
    told.append(client.ask("POST", path_of(pushed, "/retry"), {}).json())
    assert [one["success"] for one in told] == [False] * 3
    for one, word in zip(told, ("waits", "out with a consumer", "finished"), strict=True):
        assert word in one["message"]


# Dead letters


def test_a_message_is_made_a_dead_letter_by_hand(client: Client, name: Name) -> None:
    queue = name("q")
    pushed = client.push(queue, "a", "b", "c")
    assert client.ask("POST", path_of(pushed[1], "/dlq"), {}).json()["success"] is True
    (letter,) = letters(client, queue=queue)["messages"]
    assert (letter["errorMessage"], letter["data"], letter["id"]) == (
        "moved by hand", "b", pushed[1]["message_id"],
    )  # fmt: skip
    assert letter["failedAt"] >= letter["createdAt"]
    assert drained(client, queue) == ["a", "c"]
    assert "already" in client.ask("POST", path_of(pushed[1], "/dlq"), {}).json()["message"]


def test_the_lease_of_one_that_is_made_a_dead_letter_ends(client: Client, name: Name) -> None:
    queue = name("q")
    client.push(queue, "a")
    (message,) = client.pop(queue)["messages"]
    assert client.ask("POST", path_of(message, "/dlq"), {}).json()["success"] is True
    (result,) = client.ack(message)
    assert (result["success"], result["error"]) == (False, "Invalid or expired lease")


def test_dead_letters_are_listed_newest_first_by_group_partition_and_time(client: Client, name: Name) -> None:
    queue = name("q")
    for partition, text in (("p1", "a"), ("p2", "b"), ("p1", "c")):
        client.push(queue, text, partition=partition, ids=[text])
    for text in "abc":
        (message,) = client.pop(queue, "p2" if text == "b" else "p1")["messages"]
        client.ack(message, status="dlq", error=f"no {text}")
    (first,) = client.pop(queue, "p2", consumerGroup="g")["messages"]
    client.ack(first, status="dlq", error="no g", group="g")

    def found(**query: Any) -> list[str]:
        return [letter["errorMessage"] for letter in letters(client, queue=queue, **query)["messages"]]

    assert found() == ["no g", "no c", "no b", "no a"]
    assert found(consumerGroup="g") == ["no g"]
    assert found(consumerGroup="__QUEUE_MODE__") == ["no c", "no b", "no a"]
    assert found(partition="p1") == ["no c", "no a"]
    assert found(limit=1, offset=1) == ["no c"]
    assert letters(client, queue=queue, limit=1)["total"] == 4
    when = letters(client, queue=queue)["messages"][1]["failedAt"]
    assert found(to=when) == ["no c", "no b", "no a"]
    assert found(**{"from": when}) == ["no g", "no c"]
    assert letters(client, queue=name("nobody"))["total"] == 0


# Clearing


def test_a_queue_is_cleared_and_goes_on(client: Client, name: Name) -> None:
    queue = name("q")
    client.push(queue, "a", "b", "c")
    (message,) = client.pop(queue)["messages"]
    told = client.ask("DELETE", f"/api/v1/queues/{queue}/clear").json()
    assert (told["success"], told["messagesCleared"]) == (True, 3)
    (result,) = client.ack(message)
    assert result["error"] == "Invalid or expired lease"
    client.push(queue, "d")
    assert drained(client, queue) == ["d"]


def test_one_partition_is_cleared(client: Client, name: Name) -> None:
    queue = name("q")
    client.push(queue, "a", "b", partition="p 1")
    client.push(queue, "c", partition="p2")
    told = client.ask("DELETE", f"/api/v1/queues/{queue}/clear?partition=p%201").json()
    assert told["messagesCleared"] == 2
    assert drained(client, queue) == ["c"]
    assert client.ask("DELETE", f"/api/v1/queues/{name('nobody')}/clear").status == 404
