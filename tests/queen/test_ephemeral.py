"""Queues in memory, through the client that has them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from tests.integration.http_wire import ask
from tests.queen.packages import package
from tests.servers import ForebayServer

Name = Callable[[str], str]


@pytest.fixture
async def memory(server: ForebayServer) -> AsyncIterator[Any]:
    """Give the verbs of a client for queues in memory."""
    async with package("2.6.0").Queen(server.url) as client:
        yield client.ephemeral


def _payloads(answer: Any) -> list[Any]:
    return [message["payload"] for message in answer["messages"]]


async def test_what_is_pushed_is_popped_and_acknowledged(memory: Any, name: Name) -> None:
    queue = name("q/ü")
    assert (await memory.push(queue, [{"n": 1}, {"payload": None}, {"data": "x"}]))["pushed"] == 3
    answer = await memory.pop(queue, batch=10, group="g")
    assert _payloads(answer) == [{"n": 1}, None, "x"]
    done = await memory.ack(queue, answer["messages"], group="g")
    assert [one["outcome"] for one in done["results"]] == ["acked"] * 3
    assert (await memory.depth(queue))["length"] == 0
    assert (await memory.pop(queue, group="g"))["messages"] == []


async def test_who_waits_is_answered_when_something_comes(memory: Any, name: Name) -> None:
    queue = name("q")
    waiting = asyncio.create_task(memory.pop(queue, wait=True, timeout=20_000))
    other = asyncio.create_task(memory.pop(queue, wait=True, timeout=20_000, group="fan-out"))
    async with asyncio.timeout(20):
        while queue not in [one["queue"] for one in (await memory.queues())["queues"]]:
            pass
    await memory.push(queue, 7, partition="room")
    assert _payloads(await waiting) == [7]
    assert _payloads(await other) == [7]


async def test_what_fails_comes_back_with_its_attempts_and_is_dropped_in_the_end(
    memory: Any, name: Name
) -> None:
    queue = name("q")
    await memory.configure(queue, retry_limit=1, lease_seconds=60)
    await memory.push(queue, 1)
    for attempts, outcome in ((0, "redelivered"), (1, "acked")):
        (message,) = (await memory.pop(queue))["messages"]
        assert message["attempts"] == attempts
        failed = await memory.ack(queue, message, status=False)
        assert failed["results"][0]["outcome"] == outcome
    assert (await memory.depth(queue))["dropped"] == 1


async def test_a_waiting_pop_gets_what_a_lease_lets_go(memory: Any, name: Name) -> None:
    queue = name("q")
    await memory.configure(queue, lease_seconds=0.3)
    await memory.push(queue, 1)
    (first,) = (await memory.pop(queue))["messages"]
    (again,) = (await memory.pop(queue, wait=True, timeout=20_000))["messages"]
    assert (again["payload"], again["attempts"]) == (1, 1)
    late = await memory.ack(queue, first)
    assert late["results"][0]["outcome"] == "stale"


async def test_a_reset_empties_a_queue_and_old_ids_are_stale(memory: Any, name: Name) -> None:
    queue = name("q")
    await memory.configure(queue, max_length=2)
    await memory.push(queue, [1, 2])
    (message,) = (await memory.pop(queue))["messages"]
    assert (await memory.reset(queue))["dropped"] == 2
    assert (await memory.ack(queue, message))["results"][0]["outcome"] == "stale"
    assert (await memory.depth(queue))["options"]["maxLength"] == 2
    assert (await memory.reset(name("nowhere")))["dropped"] == 0


async def test_queues_are_listed_and_deleted_and_one_that_is_not_there_says_so(
    memory: Any, name: Name
) -> None:
    queue, errors = name("q"), package("2.6.0").errors
    await memory.push(queue, 1)
    await memory.configure(name("declared"), ttl_seconds=5)
    listed = {one["queue"]: one for one in (await memory.queues())["queues"]}
    assert (listed[queue]["length"], listed[queue]["declared"]) == (1, False)
    assert listed[name("declared")]["declared"] is True
    assert (await memory.delete(queue))["deleted"] is True
    assert (await memory.delete(queue))["deleted"] is False
    with pytest.raises(errors.EphemeralQueueNotFoundError):
        await memory.depth(queue)


async def test_taking_at_delivery_leaves_nothing_to_acknowledge(memory: Any, name: Name) -> None:
    queue = name("q")
    await memory.push(queue, [1, 2])
    assert _payloads(await memory.pop(queue, batch=1, commit_on_delivery=True)) == [1]
    assert (await memory.depth(queue))["length"] == 1


async def test_a_buffered_push_arrives(memory: Any, name: Name) -> None:
    queue = name("q")
    await memory.push(queue, [1, 2, 3], buffered=True)
    await memory.flush(queue)
    assert _payloads(await memory.pop(queue, batch=10)) == [1, 2, 3]


async def test_a_full_queue_answers_so(server: ForebayServer, memory: Any, name: Name) -> None:
    queue = name("q")
    await memory.configure(queue, max_length=1)
    await memory.push(queue, 1)
    body = {"queue": queue, "messages": [{"payload": 2}]}
    answer = await asyncio.to_thread(ask, server.port, "POST", "/api/v1/ephemeral/push", body)
    assert (answer.status, "full" in answer.json()["error"]) == (429, True)
    await memory.configure(queue, max_length=1, policy="drop_oldest")
    await memory.push(queue, 3)
    assert _payloads(await memory.pop(queue, batch=5)) == [3]


@pytest.mark.parametrize("options", [{"maxLength": 0}, {"policy": "hope"}, {"ttlSeconds": "x"}])
async def test_options_that_can_not_be_are_refused(server: ForebayServer, name: Name, options: Any) -> None:
    body = {"queue": name("q"), "options": options}
    answer = await asyncio.to_thread(ask, server.port, "POST", "/api/v1/ephemeral/configure", body)
    assert answer.status == 400
