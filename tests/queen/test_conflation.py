"""Conflation through the client that has it: of what waits in a partition the newest message comes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from tests.integration.http_wire import Answer, ask
from tests.queen.packages import package
from tests.queen.steps import datas
from tests.servers import ForebayServer

Name = Callable[[str], str]


@pytest.fixture
async def queen(server: ForebayServer) -> AsyncIterator[Any]:
    """Give a client that has conflation."""
    async with package("2.6.0").Queen(server.url) as client:
        yield client


async def _push(queen: Any, queue: str, partition: str, *numbers: int) -> None:
    await queen.queue(queue).partition(partition).push([{"data": number} for number in numbers])


def _group(queen: Any, queue: str, group: str = "g", *, conflation: bool = True) -> Any:
    return queen.queue(queue).group(group).conflation(conflation).batch(100).partitions(100).wait(False)


async def _ask(server: ForebayServer, queue: str, query: str) -> Answer:
    return await asyncio.to_thread(ask, server.port, "GET", f"/api/v1/pop/queue/{queue}?{query}")


async def test_only_the_newest_of_each_partition_comes_and_the_older_ones_are_over(
    queen: Any, name: Name
) -> None:
    queue = name("q")
    for partition in ("a", "b"):
        for begin in range(0, 60, 20):
            await _push(queen, queue, partition, *range(begin, begin + 20))
    messages = await _group(queen, queue).pop()
    assert sorted((m["partition"], m["data"]) for m in messages) == [("a", 59), ("b", 59)]
    assert await _group(queen, queue).pop() == []
    assert (await queen.ack(messages, True, {"group": "g"}))["success"] is True
    assert await _group(queen, queue).pop() == []
    await _push(queen, queue, "a", 60)
    assert datas(await _group(queen, queue).pop()) == [60]


async def test_a_backlog_that_is_larger_than_what_is_taken_at_once_is_passed_as_a_whole(
    queen: Any, name: Name
) -> None:
    queue = name("q")
    for begin in range(0, 13_000, 1_000):
        await _push(queen, queue, "a", *range(begin, begin + 1_000))
    assert datas(await _group(queen, queue).pop()) == [12_999]


async def test_the_newest_comes_back_when_it_fails_unless_a_newer_one_came(queen: Any, name: Name) -> None:
    queue = name("q")
    await queen.queue(queue).config({"retry_delay": 0, "retry_limit": 5}).create()
    await _push(queen, queue, "a", 1, 2)
    messages = await _group(queen, queue).pop()
    await queen.ack(messages, False, {"group": "g", "error": "no"})
    messages = await _group(queen, queue).wait(True).timeout_millis(20_000).pop()
    assert datas(messages) == [2]
    await _push(queen, queue, "a", 3)
    await queen.ack(messages, False, {"group": "g", "error": "no"})
    assert datas(await _group(queen, queue).wait(True).timeout_millis(20_000).pop()) == [3]


async def test_another_group_and_those_without_one_see_every_message(queen: Any, name: Name) -> None:
    queue = name("q")
    await _push(queen, queue, "a", 1, 2, 3)
    assert datas(await _group(queen, queue).pop()) == [3]
    assert datas(await _group(queen, queue, "all", conflation=False).pop()) == [1, 2, 3]
    assert datas(await queen.queue(queue).batch(10).wait(False).pop()) == [1, 2, 3]


async def test_what_the_group_began_with_counts_for_everybody(
    queen: Any, server: ForebayServer, name: Name
) -> None:
    queue = name("q")
    await _push(queen, queue, "a", 1, 2)
    assert datas(await _group(queen, queue).pop()) == [2]
    await _push(queen, queue, "b", 3, 4)
    answer = (await _ask(server, queue, "consumerGroup=g&batch=10")).json()
    assert (answer["conflation"], answer["conflationConflict"], datas(answer["messages"])) == (
        True,
        True,
        [4],
    )
    plain = (await _ask(server, queue, "consumerGroup=plain&batch=10&partitions=1")).json()
    assert "conflation" not in plain
    asked = (await _ask(server, queue, "consumerGroup=plain&batch=10&conflation=true")).json()
    assert asked["conflationConflict"] is True
    assert "conflation" not in asked
    await queen.delete_consumer_group("plain")
    asked = (await _ask(server, queue, "consumerGroup=plain&batch=10&partitions=5&conflation=true")).json()
    assert asked["conflation"] is True
    assert sorted(datas(asked["messages"])) == [2, 4]


async def test_empty_answers_say_it_too_also_where_there_is_no_queue(queen: Any, name: Name) -> None:
    assert await _group(queen, name("nowhere")).pop() == []
    await queen.queue(name("q")).create()
    assert await _group(queen, name("q")).pop() == []


@pytest.mark.parametrize("query", ["conflation=true&consumerGroup=g&autoAck=true", "conflation=true"])
async def test_what_can_not_be_is_refused(server: ForebayServer, name: Name, query: str) -> None:
    answer = await _ask(server, name("q"), query)
    assert answer.status == 400
    assert "conflation" in answer.json()["error"]


async def test_while_producers_push_the_last_value_always_comes_and_never_an_older_one_after_it(
    queen: Any, name: Name
) -> None:
    queue, seen = name("q"), dict[str, list[int]]()

    async def produce(partition: str) -> None:
        for number in range(150):
            await _push(queen, queue, partition, number)

    async def consume() -> None:
        while any(seen.get(partition, [0])[-1] < 149 for partition in ("a", "b", "c")):
            messages = await _group(queen, queue).wait(True).timeout_millis(1_000).pop()
            for message in messages:
                seen.setdefault(message["partition"], []).append(message["data"])
            if messages:
                await queen.ack(messages, True, {"group": "g"})

    async with asyncio.timeout(60), asyncio.TaskGroup() as tasks:
        for partition in ("a", "b", "c"):
            tasks.create_task(produce(partition))
        tasks.create_task(consume())
        tasks.create_task(consume())
    for numbers in seen.values():
        assert numbers[-1] == 149
        assert numbers == sorted(set(numbers))
