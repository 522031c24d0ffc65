"""The verbs of Queen's clients, one after the other: queues, push, pop, acknowledgements, groups, retries."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import pytest

from tests.queen.steps import datas, pop_all, until

Name = Callable[[str], str]


async def test_a_queue_is_made_with_its_options_and_deleted(queen: Any, name: Name) -> None:
    queue = queen.queue(name("q")).namespace("ns").task("t")
    made = await queue.config({"lease_time": 60, "retry_limit": 5, "priority": 9}).create()
    assert made["configured"] is True
    assert (made["namespace"], made["task"]) == ("ns", "t")
    assert {key: made["options"][key] for key in ("leaseTime", "retryLimit", "priority")} == {
        "leaseTime": 60, "retryLimit": 5, "priority": 9,
    }  # fmt: skip
    assert len(made["options"]) == 15
    assert (await queen.queue(name("q")).delete())["deleted"] is True
    assert (await queen.queue(name("q")).delete())["existed"] is False


async def test_what_is_pushed_is_popped_once_and_done_when_acknowledged(queen: Any, name: Name) -> None:
    queue = name("q")
    results = await queen.queue(queue).push([{"data": {"n": n}} for n in range(3)])
    assert [result["status"] for result in results] == ["queued"] * 3
    messages = await queen.queue(queue).batch(10).wait(False).pop()
    assert datas(messages) == [{"n": 0}, {"n": 1}, {"n": 2}]
    assert [message["id"] for message in messages] == [result["message_id"] for result in results]
    assert await queen.queue(queue).batch(10).wait(False).pop() == []
    assert (await queen.ack(messages, True))["success"] is True
    assert await queen.queue(queue).batch(10).wait(False).pop() == []


async def test_a_transaction_id_that_is_known_is_a_duplicate_of_the_first(queen: Any, name: Name) -> None:
    queue, id = name("q"), str(uuid4())
    (first,) = await queen.queue(queue).push([{"data": 1, "transactionId": id}])
    again = await queen.queue(queue).push(
        [{"data": 2, "transactionId": id}, {"data": 3}, {"data": 4, "transactionId": id}]
    )
    assert [result["status"] for result in again] == ["duplicate", "queued", "duplicate"]
    assert {again[0]["message_id"], again[2]["message_id"]} == {first["message_id"]}
    other = await queen.queue(queue).partition("p2").push([{"data": 5, "transactionId": id}])
    assert other[0]["status"] == "queued"
    messages = await pop_all(lambda: queen.queue(queue).batch(10).partitions(2), 3)
    assert sorted(datas(messages)) == [1, 3, 5]


@pytest.mark.parametrize(
    "payload", [None, 0, "", [], {}, False, "x" * 1_000_000, {"deep": [{"ü": "€\u0000"}]}]
)
async def test_any_json_comes_back_as_it_was(queen: Any, name: Name, payload: Any) -> None:
    queue = name("q")
    await queen.queue(queue).push([{"data": payload}])
    (message,) = await pop_all(lambda: queen.queue(queue).batch(1), 1)
    assert message["data"] == payload
    assert (await queen.ack(message, True))["success"] is True


async def test_a_long_poll_is_answered_when_a_push_arrives_also_in_a_queue_that_was_not_there(
    queen: Any, name: Name
) -> None:
    queue = name("q")
    waiting = asyncio.create_task(queen.queue(queue).batch(5).wait(True).timeout_millis(20_000).pop())
    named = asyncio.create_task(
        queen.queue(queue).partition("p9").batch(5).wait(True).timeout_millis(20_000).pop()
    )
    await queen.queue(queue).partition("p1").push([{"data": 1}])
    assert datas(await waiting) == [1]
    assert not named.done()
    await queen.queue(queue).partition("p9").push([{"data": 2}])
    assert datas(await named) == [2]


async def test_a_partition_is_out_to_one_consumer_until_its_batch_is_settled(queen: Any, name: Name) -> None:
    queue = name("q")
    for n in range(6):
        await queen.queue(queue).partition("p").push([{"data": n}])
    first = await queen.queue(queue).partition("p").batch(3).wait(False).pop()
    assert datas(first) == [0, 1, 2]
    assert await queen.queue(queue).partition("p").batch(3).wait(False).pop() == []
    assert await queen.queue(queue).batch(3).wait(False).pop() == []
    await queen.ack(first[:2], True)
    assert await queen.queue(queue).partition("p").batch(3).wait(False).pop() == []
    (last,) = (await queen.ack([first[2]], True))["results"]
    assert last["leaseReleased"] is True
    assert datas(await queen.queue(queue).partition("p").batch(3).wait(False).pop()) == [3, 4, 5]


async def test_one_pop_may_bring_several_partitions_under_one_lease(queen: Any, name: Name) -> None:
    queue = name("q")
    for n in range(8):
        await queen.queue(queue).partition(f"p{n}").push([{"data": n}])
    alone = await queen.queue(queue).batch(10).partitions(1).wait(False).pop()
    assert len(alone) == 1
    several = await queen.queue(queue).batch(10).partitions(5).wait(False).pop()
    assert len({message["partitionId"] for message in several}) == len(several) == 5
    assert len({message["leaseId"] for message in several}) == 1
    assert (await queen.ack(several, True))["success"] is True


async def test_every_group_sees_every_message_and_new_ones_only_what_is_new(queen: Any, name: Name) -> None:
    queue = name("q")
    for n in range(3):
        await queen.queue(queue).partition(f"p{n}").push([{"data": n}])

    def popping(group: str, mode: str | None = None) -> Any:
        builder = queen.queue(queue).group(group).batch(10).partitions(10)
        return builder.subscription_mode(mode) if mode else builder

    assert sorted(datas(await pop_all(lambda: popping("a"), 3))) == [0, 1, 2]
    assert sorted(datas(await pop_all(lambda: popping("b"), 3))) == [0, 1, 2]
    assert await popping("late", "new").wait(False).pop() == []
    await queen.queue(queue).partition("p1").push([{"data": 9}])
    assert datas(await pop_all(lambda: popping("late", "new"), 1)) == [9]


async def test_a_message_that_fails_comes_back_as_often_as_allowed_and_is_then_a_dead_letter(
    queen: Any, name: Name
) -> None:
    queue = name("q")
    await queen.queue(queue).config({"retry_limit": 2, "retry_delay": 10}).create()
    await queen.queue(queue).push([{"data": {"bad": True}}])
    for attempt in range(3):
        (message,) = await pop_all(lambda: queen.queue(queue).batch(1), 1)
        await queen.ack(message, False, {"error": f"attempt {attempt}"})
    assert await queen.queue(queue).batch(1).wait(False).pop() == []
    letters = await queen.queue(queue).dlq().limit(10).get()
    assert [(letter["data"], letter["errorMessage"]) for letter in letters["messages"]] == [
        ({"bad": True}, "attempt 2")
    ]


async def test_a_batch_with_several_statuses_settles_each_message_by_its_own(queen: Any, name: Name) -> None:
    queue = name("q")
    await queen.queue(queue).config({"retry_limit": 3, "retry_delay": 0}).create()
    await queen.queue(queue).push([{"data": n} for n in range(5)])
    messages = await pop_all(lambda: queen.queue(queue).batch(5), 5)
    statuses = ["completed", "dlq", "failed", "completed", "failed"]
    marked = [{**m, "_status": s, "_error": "why"} for m, s in zip(messages, statuses, strict=True)]
    await queen.ack(marked)
    # Nothing is acknowledged past what failed: it comes back with it.
    assert datas(await pop_all(lambda: queen.queue(queue).batch(5), 3)) == [2, 3, 4]
    assert [letter["data"] for letter in (await queen.queue(queue).dlq().get())["messages"]] == [1]


async def test_a_batch_that_fails_comes_back_whole_and_in_order(queen: Any, name: Name) -> None:
    queue = name("q")
    await queen.queue(queue).config({"retry_limit": 3, "retry_delay": 0}).create()
    await queen.queue(queue).push([{"data": n} for n in range(10)])
    messages = await pop_all(lambda: queen.queue(queue).batch(10), 10)
    await queen.ack(messages, False)
    assert datas(await pop_all(lambda: queen.queue(queue).batch(10), 10)) == list(range(10))


async def test_consume_works_with_several_workers_and_acknowledges_by_itself(queen: Any, name: Name) -> None:
    queue, seen = name("q"), list[int]()
    for n in range(40):
        await queen.queue(queue).partition(f"p{n % 7}").push([{"data": n}])

    async def handle(messages: Any) -> None:
        seen.extend(m["data"] for m in (messages if isinstance(messages, list) else [messages]))

    stop = asyncio.Event()
    consuming = asyncio.ensure_future(
        _consumed(queen.queue(queue).concurrency(3).batch(4).timeout_millis(500), handle, stop)
    )
    await until(lambda: len(seen) >= 40, "all messages")
    stop.set()
    await consuming
    assert sorted(seen) == list(range(40))
    for part in range(7):
        mine = [n for n in seen if n % 7 == part]
        assert mine == sorted(mine)
    assert await queen.queue(queue).batch(10).wait(False).pop() == []


async def test_consume_each_retries_what_its_handler_throws_at(queen: Any, name: Name) -> None:
    queue, seen = name("q"), list[int]()
    await queen.queue(queue).config({"retry_limit": 3, "retry_delay": 0}).create()
    await queen.queue(queue).push([{"data": n} for n in range(4)])

    async def handle(message: Any) -> None:
        seen.append(message["data"])
        if message["data"] == 2 and seen.count(2) < 3:
            raise RuntimeError("not yet")

    stop = asyncio.Event()
    consuming = asyncio.ensure_future(
        _consumed(queen.queue(queue).batch(2).each().timeout_millis(500), handle, stop)
    )
    await until(lambda: seen.count(2) >= 3 and seen[-1] == 3, "the retries")
    stop.set()
    await consuming
    # A client that goes on past what failed does so in vain: the rest of the batch comes again, in order.
    assert (seen.count(2), seen[-2:]) == (3, [2, 3])


async def test_a_lease_that_is_renewed_keeps_its_messages(queen: Any, name: Name) -> None:
    queue, seen = name("q"), list[Any]()
    await queen.queue(queue).config({"lease_time": 4, "retry_limit": 3}).create()
    await queen.queue(queue).push([{"data": 1}])

    async def handle(messages: Any) -> None:
        seen.append(messages)
        began = asyncio.get_running_loop().time()
        await until(lambda: asyncio.get_running_loop().time() - began > 4.5, "longer than the lease")

    stop = asyncio.Event()
    builder = queen.queue(queue).batch(2).renew_lease(True, 300).timeout_millis(300).concurrency(2)
    consuming = asyncio.ensure_future(_consumed(builder, handle, stop))
    await until(lambda: len(seen) >= 1, "the message")
    stop.set()
    await consuming
    assert len(seen) == 1
    assert await queen.queue(queue).batch(1).wait(False).pop() == []


async def test_transactions_push_and_acknowledge_together_or_not_at_all(queen: Any, name: Name) -> None:
    here, there = name("in"), name("out")
    await queen.queue(here).push([{"data": n} for n in range(2)])
    first, second = await pop_all(lambda: queen.queue(here).batch(2), 2)
    done = await queen.transaction().ack(first).queue(there).push([{"data": {"from": 0}}]).commit()
    assert done["success"] is True
    assert datas(await pop_all(lambda: queen.queue(there).batch(5), 1)) == [{"from": 0}]
    twice = queen.transaction().ack(first).ack(second).queue(there).partition("p").push([{"data": "lost"}])
    with pytest.raises(Exception, match="ACK operation failed"):
        await twice.commit()
    assert await queen.queue(there).partition("p").batch(5).wait(False).pop() == []
    assert (await queen.ack(second, True))["success"] is True, "it was left as it was"


async def test_messages_that_are_buffered_come_when_the_buffer_is_flushed(queen: Any, name: Name) -> None:
    queue = name("q")
    for n in range(25):
        await queen.queue(queue).buffer({"message_count": 10, "time_millis": 60_000}).push([{"data": n}])
    await queen.flush_all_buffers()
    # The older client sends its buffers side by side, and in any order.
    assert sorted(datas(await pop_all(lambda: queen.queue(queue).batch(50), 25))) == list(range(25))


@pytest.mark.parametrize("odd", ["with space", "a/b/c", "100% sure", "ümläut€", "q?x=1&y#z"])
async def test_names_may_have_any_characters(queen: Any, name: Name, odd: str) -> None:
    queue = name(odd)
    if "?" in odd:
        pytest.skip("these clients don't encode names in paths, so what comes after ? is a query for them")
    await queen.queue(queue).partition(odd).push([{"data": 1}])
    (message,) = await pop_all(lambda: queen.queue(queue).partition(odd).batch(1), 1)
    assert message["partition"] == odd
    assert (await queen.ack(message, True))["success"] is True
    assert (await queen.queue(queue).delete())["existed"] is True


async def test_pops_by_namespace_and_task_prefer_queues_of_higher_priority(queen: Any, name: Name) -> None:
    space = name("space")
    for text, priority in (("low", 1), ("high", 9)):
        await queen.queue(name(text)).namespace(space).task(text).config({"priority": priority}).create()
        await queen.queue(name(text)).push([{"data": text}])
    first = await queen.queue().namespace(space).batch(1).wait(False).pop()
    second = await queen.queue().namespace(space).batch(1).wait(False).pop()
    assert [*datas(first), *datas(second)] == ["high", "low"]
    await queen.queue(name("low")).push([{"data": "more"}])
    await queen.ack(second, True)
    assert datas(await queen.queue().task("low").namespace(space).batch(1).wait(False).pop()) == ["more"]


async def _consumed(builder: Any, handle: Any, stop: asyncio.Event) -> None:
    await builder.consume(handle, signal=stop)
