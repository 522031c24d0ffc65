"""What acknowledgements of Queen 2.6's client commit, and what else its newer calls promise."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from tests.queen.packages import package
from tests.queen.steps import datas, pop_all
from tests.queen.wire import Client
from tests.servers import ForebayServer

Name = Callable[[str], str]


@pytest.fixture
async def queen(server: ForebayServer) -> AsyncIterator[Any]:
    """Give the newer client."""
    async with package("2.6.0").Queen(server.url) as client:
        yield client


async def popped(queen: Any, queue: str, count: int, **options: Any) -> list[Any]:
    """Push numbers into one partition of a new queue, and pop them under one lease."""
    await queen.queue(queue).config({"lease_time": 300, "retry_delay": 0, **options}).create()
    await queen.queue(queue).push([{"data": n, "transactionId": f"t{n}"} for n in range(1, count + 1)])
    messages: list[Any] = await queen.queue(queue).batch(count).wait(False).pop()
    assert len(messages) == count
    return messages


@pytest.mark.parametrize("status", ["failed", "retry"])
async def test_a_later_ack_of_a_call_skips_no_earlier_message_that_comes_back(
    queen: Any, name: Name, status: str
) -> None:
    messages = await popped(queen, name("q"), 5)
    for message in messages:
        message["_status"] = "completed"
    messages[1]["_status"] = status
    answer = await queen.ack(messages)
    assert [result["success"] for result in answer["results"]] == [True, True, False, False, False]
    assert "comes back first" in answer["results"][2]["error"]
    again = await pop_all(lambda: queen.queue(name("q")).batch(10), 4)
    assert datas(again) == [2, 3, 4, 5]
    assert [message["retryCount"] for message in again] == [int(status == "failed"), 0, 0, 0]
    assert (await queen.ack(again, True))["success"]
    assert (await queen.queue(name("q")).dlq().get())["messages"] == []


async def test_the_order_within_a_call_does_not_matter_and_other_partitions_go_on(
    queen: Any, name: Name
) -> None:
    queue = name("q")
    await queen.queue(queue).config({"retry_delay": 0}).create()
    for partition in ("a", "b"):
        await queen.queue(queue).partition(partition).push([{"data": f"{partition}{n}"} for n in range(2)])
    messages = await queen.queue(queue).batch(10).partitions(2).wait(False).pop()
    for message in messages:
        message["_status"] = "failed" if message["data"] == "a0" else "completed"
    answer = await queen.ack(messages[::-1])
    taken = {m["data"] for m, r in zip(messages[::-1], answer["results"], strict=True) if r["success"]}
    assert taken == {"a0", "b0", "b1"}
    assert datas(await pop_all(lambda: queen.queue(queue).batch(10).partitions(2), 2)) == ["a0", "a1"]


async def test_an_ack_commits_its_partition_up_to_its_message(queen: Any, name: Name) -> None:
    messages = await popped(queen, name("q"), 4)
    assert (await queen.ack(messages[2]))["success"]
    again = await queen.ack(messages[0])
    assert (again["success"], again["noop"]) == (True, True)
    late = await queen.ack(messages[1], False, {"error": "too late"})
    assert not late["success"]
    assert "committed" in late["error"]
    last = await queen.ack(messages[3])
    assert (last["success"], last.get("noop"), last["leaseReleased"]) == (True, None, True)
    assert await queen.queue(name("q")).batch(10).wait(False).pop() == []
    assert (await queen.queue(name("q")).dlq().get())["messages"] == []


async def test_an_ack_that_is_sent_again_is_a_no_op(queen: Any, name: Name) -> None:
    messages = await popped(queen, name("q"), 3)
    assert (await queen.ack(messages, True))["success"]
    again = await queen.ack(messages, True)
    assert again["success"]
    assert [result["noop"] for result in again["results"]] == [True] * 3


async def test_an_ack_of_an_unknown_transaction_fails(queen: Any, name: Name) -> None:
    (message,) = await popped(queen, name("q"), 1)
    for status in (True, False):
        unknown = await queen.ack({**message, "transactionId": "nobody's"}, status)
        assert (unknown["success"], unknown["error"]) == (False, "Message not found")
    assert (await queen.ack(message))["success"]


async def test_what_is_with_another_consumer_by_now_is_not_acknowledged(queen: Any, name: Name) -> None:
    (early,) = await popped(queen, name("q"), 1, lease_time=1)
    (current,) = await pop_all(lambda: queen.queue(name("q")).batch(1), 1)
    late = await queen.ack(early)
    assert (late["success"], late["error"]) == (False, "Invalid or expired lease")
    await queen.queue(name("q")).config({"lease_time": 300}).create()
    assert (await queen.ack(current))["success"]


async def test_a_transaction_with_an_ack_under_an_expired_lease_is_refused_whole(
    queen: Any, name: Name
) -> None:
    (early,) = await popped(queen, name("q"), 1, lease_time=1)
    (current,) = await pop_all(lambda: queen.queue(name("q")).batch(1), 1)

    async def forward(message: Any) -> None:
        await queen.transaction().queue(name("out")).push([{"data": "out"}]).ack(message).commit()

    with pytest.raises(Exception, match="lease"):
        await forward(early)
    assert await queen.queue(name("out")).batch(10).wait(False).pop() == []
    assert (await queen.ack(current))["success"]
    with pytest.raises(Exception, match="lease"):  # what is committed isn't committed again along with a push
        await forward(current)
    assert await queen.queue(name("out")).batch(10).wait(False).pop() == []


async def test_transactions_on_one_batch_commit_in_any_order(queen: Any, name: Name) -> None:
    messages = await popped(queen, name("q"), 3)
    for message in messages[::-1]:
        out = {"data": message["data"]}
        await queen.transaction().queue(name("out")).push([out]).ack(message).commit()
    assert datas(await pop_all(lambda: queen.queue(name("out")).batch(10), 3)) == [3, 2, 1]
    assert await queen.queue(name("q")).batch(10).wait(False).pop() == []


async def test_a_lock_has_one_holder_and_a_call_that_is_sent_again_is_the_same_permit(
    queen: Any, name: Name
) -> None:
    lock = name("lock")
    owners = [f"owner-{n}" for n in range(10)]
    found = await asyncio.gather(
        *(queen.locks.acquire(lock, ttl_seconds=600, owner=o) for o in owners for _ in range(2))
    )
    held = [permit for permit in found if permit]
    assert len({permit["owner"] for permit in held}) == 1
    assert {permit["token"] for permit in held} == {held[0]["token"]}
    again = await queen.locks.acquire(lock, ttl_seconds=600, owner=held[0]["owner"])
    assert (again["token"], again["slot"], again["already"]) == (held[0]["token"], held[0]["slot"], True)
    assert (await queen.locks.release(lock, token=again["token"]))["released"]


async def test_an_owner_has_one_permit_of_a_semaphore_however_often_it_asks(queen: Any, name: Name) -> None:
    lock = name("semaphore")
    found = await asyncio.gather(
        *(queen.locks.acquire(lock, ttl_seconds=600, owner="me", limit=8) for _ in range(8))
    )
    state = await queen.locks.get(lock)
    assert len(state["holders"]) == 1
    assert {permit["token"] for permit in found if permit} == {state["holders"][0]["token"]}


async def test_a_lock_and_a_timer_stand_once_in_a_call(queen: Any, name: Name) -> None:
    acquire = {"op": "acquire", "name": name("lock"), "ttlSeconds": 60}
    with pytest.raises(Exception, match="stands twice"):
        await queen.locks.batch([acquire, {**acquire, "owner": "other"}])
    assert not await queen.locks.get(name("lock"))
    timer = {"op": "schedule", "queue": name("q"), "timerKey": "k", "payload": "MQ==", "delayMs": 0}
    with pytest.raises(Exception, match="stands twice"):
        await queen.timers.batch([timer, {"op": "cancel", "queue": name("q"), "timerKey": "k"}])
    assert await queen.queue(name("q")).batch(10).wait(False).pop() == []


async def test_a_timer_arrives_as_a_message_of_its_transaction(queen: Any, name: Name) -> None:
    made = await queen.timers.schedule(name("q"), "k", {"n": 1}, delay_ms=1, partition="p", txn="t")
    (message,) = await pop_all(lambda: queen.queue(name("q")).partition("p").batch(1), 1)
    assert (message["data"], message["transactionId"], message["partition"]) == ({"n": 1}, made["txn"], "p")
    assert (await queen.timers.cancel(name("q"), "k"))["status"] == "absent"


async def test_who_says_no_number_of_partitions_leaves_it_to_the_server(queen: Any, name: Name) -> None:
    queue = name("q")
    for n in range(8):
        await queen.queue(queue).partition(f"p{n}").push([{"data": n}])
    result = await queen.queue(queue).wait(False).pop_result()
    assert sorted(datas(result.messages)) == list(range(8))
    assert result.autopilot.partitions >= 8
    assert result.autopilot.batch >= 8
    alone = await queen.queue(queue).group("g").partitions(1).wait(False).pop()
    assert len(alone) == 1
    by_itself = await queen.queue(queue).group("h").autopilot(False).batch(10).wait(False).pop()
    assert len(by_itself) == 1


async def test_a_consumer_gets_nothing_while_pops_are_paused_and_goes_on_after_it(
    queen: Any, server: ForebayServer, name: Name
) -> None:
    switch, came, done = "/api/v1/system/maintenance/pop", list[Any](), asyncio.Event()
    admin = Client(server)

    async def handle(message: Any) -> None:
        came.append(message["data"])
        done.set()

    async def consume() -> None:
        await queen.queue(name("q")).each().limit(1).consume(handle)

    await queen.queue(name("q")).create()
    paused = await asyncio.to_thread(admin.ask, "POST", switch, {"enabled": True})
    assert paused.json()["popMaintenanceMode"] is True
    try:
        consuming = asyncio.create_task(consume())
        await queen.queue(name("q")).push([{"data": 1}])
        assert await queen.queue(name("q")).batch(1).wait(False).pop() == []
        assert came == []
    finally:
        resumed = await asyncio.to_thread(admin.ask, "POST", switch, {"enabled": False})
    assert resumed.json()["popMaintenanceMode"] is False
    async with asyncio.timeout(60):
        await done.wait()
        await consuming
    assert came == [1]


async def test_queues_are_listed_as_soon_as_they_are_there(queen: Any, name: Name) -> None:
    before = (await queen.admin.list_queues())["total"]
    for n in range(3):
        await queen.queue(name(f"q{n}")).namespace(name("ns")).create()
        listed = await queen.admin.list_queues(search=name("").strip("-"))
        assert sorted(row["name"] for row in listed["queues"]) == [name(f"q{k}") for k in range(n + 1)]
    page = await queen.admin.list_queues(limit=1, offset=1, namespace=name("ns"))
    assert (len(page["queues"]), page["total"]) == (1, 3)
    assert (await queen.admin.list_queues())["total"] == before + 3
    await queen.queue(name("q0")).delete()
    assert (await queen.admin.list_queues())["total"] == before + 2
