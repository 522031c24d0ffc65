"""The administration of Queen's clients, as far as it is about messages, dead letters and groups."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from tests.queen.steps import datas

Name = Callable[[str], str]


async def pushed(queen: Any, queue: str, *payloads: Any) -> list[Any]:
    results: list[Any] = await queen.queue(queue).push([{"data": payload} for payload in payloads])
    return results


async def popped(queen: Any, queue: str, group: str | None = None, count: int = 10) -> list[Any]:
    """What is there now, acknowledged."""
    builder = queen.queue(queue).batch(count).wait(False)
    messages: list[Any] = await (builder.group(group) if group else builder).pop()
    if messages:
        await queen.ack(messages, True, {"group": group} if group else {})
    return datas(messages)


async def test_messages_are_listed_looked_at_and_deleted(queen: Any, name: Name) -> None:
    queue = name("q")
    results = await pushed(queen, queue, "a", "b")
    found = (await queen.admin.list_messages(queue=queue, limit=10))["messages"]
    assert [message["id"] for message in found] == [result["message_id"] for result in reversed(results)]
    which = (results[0]["partition_id"], results[0]["transaction_id"])
    assert (await queen.admin.get_message(*which))["payload"] == "a"
    assert (await queen.admin.delete_message(*which))["success"] is True
    assert await popped(queen, queue) == ["b"]


async def test_a_dead_letter_is_listed_and_retried(queen: Any, name: Name) -> None:
    queue = name("q")
    await queen.queue(queue).config({"retry_limit": 0}).create()
    await pushed(queen, queue, "a")
    (message,) = await queen.queue(queue).wait(False).pop()
    await queen.ack(message, False, {"error": "no good"})
    found = await queen.queue(queue).dlq().limit(10).get()
    assert found["total"] == 1
    (letter,) = found["messages"]
    assert (letter["data"], letter["errorMessage"]) == ("a", "no good")
    assert (await queen.queue(queue).dlq("nobody").get())["total"] == 0
    told = await queen.admin.retry_message(letter["partitionId"], letter["transactionId"])
    assert told["success"] is True
    assert await popped(queen, queue) == ["a"]


async def test_what_the_older_client_alone_can_do(queen: Any, version: str, name: Name) -> None:
    if version != "0.15.0":
        return
    queue = name("q")
    results = await pushed(queen, queue, "a", "b")
    which = (results[0]["partition_id"], results[0]["transaction_id"])
    assert (await queen.admin.move_message_to_dlq(*which))["success"] is True
    assert (await queen.queue(queue).dlq().get())["total"] == 1
    assert (await queen.admin.clear_queue(queue))["success"] is True
    assert await popped(queen, queue) == []


async def test_groups_are_listed_sent_elsewhere_and_deleted(queen: Any, name: Name) -> None:
    queue, group = name("q"), name("g")
    await pushed(queen, queue, "a")
    between = datetime.now(UTC).isoformat()
    await pushed(queen, queue, "b")
    assert await popped(queen, queue, group) == ["a", "b"]
    listed = await queen.admin.list_consumer_groups()
    assert [one["queueName"] for one in listed if one["name"] == group] == [queue]
    assert set(await queen.admin.get_consumer_group(group)) == {queue}
    assert isinstance(await queen.admin.get_lagging_consumers(60), list)
    await queen.admin.seek_consumer_group(group, queue, {"timestamp": between})
    assert await popped(queen, queue, group) == ["b"]
    told = await queen.admin.delete_consumer_group_for_queue(group, queue)
    assert told["success"] is True
    assert await popped(queen, queue, group) == ["a", "b"]
    assert (await queen.update_consumer_group_timestamp(group, between))["success"] is True
    assert (await queen.delete_consumer_group(group, False))["metadataDeleted"] is False
    assert await popped(queen, queue, group) == ["b"]
