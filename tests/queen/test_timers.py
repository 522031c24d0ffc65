"""Timers of the client that has them: scheduled, changed and cancelled, alone and in transactions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from time import monotonic
from typing import Any

import pytest

from tests.queen.packages import package
from tests.queen.steps import datas, pop_all
from tests.servers import ForebayServer

Name = Callable[[str], str]
_LONG = timedelta(hours=1)


@pytest.fixture
async def queen(server: ForebayServer) -> AsyncIterator[Any]:
    """Give a client that has timers."""
    async with package("2.6.0").Queen(server.url) as client:
        yield client


async def _nothing(queen: Any, queue: str) -> bool:
    messages: list[Any] = await queen.queue(queue).batch(10).wait(False).pop()
    return messages == []


async def _drain(queen: Any, queue: str, count: int) -> list[Any]:
    """What comes, acknowledged at once, until so many messages have come."""
    found: list[Any] = []
    while len(found) < count:
        messages = await pop_all(lambda: queen.queue(queue).batch(1000), 1)
        await queen.ack(messages, True)
        found += datas(messages)
    return found


async def _cancelled(queen: Any, queue: str, key: str, delay_ms: int) -> None:
    """Schedule a timer and cancel it in time; where it was due before, which happens, once more."""
    while True:
        await queen.timers.schedule(queue, key, "never", delay_ms=delay_ms)
        answer = await queen.timers.cancel(queue, key)
        assert answer["status"] == ("cancelled" if answer["ok"] else "absent")
        if answer["ok"]:
            return
        await _drain(queen, queue, 1)


async def test_a_timer_becomes_a_message_when_it_is_due(queen: Any, name: Name) -> None:
    queue, began = name("q"), monotonic()
    made = await queen.timers.schedule(queue, "order/1", {"n": 1}, delay_ms=300, partition="p1", txn="t-1")
    assert made["ok"] and made["status"] == "scheduled" and made["txn"] == "t-1"  # noqa: PT018 - one answer
    early = await queen.queue(queue).batch(5).wait(False).pop()
    (message,) = early or await pop_all(lambda: queen.queue(queue).batch(5), 1)
    assert monotonic() - began > 0.29
    assert (message["data"], message["partition"], message["transactionId"]) == ({"n": 1}, "p1", "t-1")
    assert message["createdAt"] >= made["deliverAt"]
    assert (await queen.timers.peek(queue, "order/1"))["found"] is False
    assert (await queen.timers.cancel(queue, "order/1", txn="t-1"))["status"] == "absent"


async def test_a_timer_in_the_past_fires_at_once_and_bare_texts_are_json(queen: Any, name: Name) -> None:
    queue = name("q")
    await queen.timers.schedule(queue, "k", "text", delay_ms=-1000)
    assert datas(await pop_all(lambda: queen.queue(queue).batch(5), 1)) == ["text"]


async def test_a_timer_that_was_cancelled_never_fires(queen: Any, name: Name) -> None:
    queue = name("q")
    await _cancelled(queen, queue, "gone", 200)
    await queen.timers.schedule(queue, "kept", 2, delay_ms=400)
    assert datas(await pop_all(lambda: queen.queue(queue).batch(5), 1)) == [2]
    assert await _nothing(queen, queue)


async def test_rescheduling_replaces_payload_and_time(queen: Any, name: Name) -> None:
    queue = name("q")
    first = await queen.timer(queue).key("k").payload(1).after(_LONG).schedule()
    again = await queen.timer(queue).key("k").payload(2).after_ms(1).reschedule()
    assert again["status"] == "rescheduled"
    assert again["deliverAt"] < first["deliverAt"]
    assert datas(await pop_all(lambda: queen.queue(queue).batch(5), 1)) == [2]
    assert (await queen.timers.list(queue))["rows"] == []


async def test_timers_are_listed_by_key_page_by_page_and_shown(queen: Any, name: Name) -> None:
    queue = name("q u/e%")
    await queen.timers.batch(
        [queen.timers.op.schedule(queue, f"k/{n}", {"n": n}, delay=_LONG) for n in range(5)]
    )
    await queen.timers.schedule(name("other"), "k/9", 1, delay=_LONG)
    page = await queen.timers.list(queue, limit=2)
    assert [row["timerKey"] for row in page["rows"]] == ["k/0", "k/1"]
    assert page["truncated"] is True
    rows = await queen.timers.list_all(queue, limit=2)
    assert [row["timerKey"] for row in rows] == [f"k/{n}" for n in range(5)]
    shown = await queen.timers.peek(queue, "k/3")
    assert (shown["found"], shown["payload"], shown["encrypted"]) == (True, "eyJuIjogM30=", False)
    assert (await queen.timers.list(name("nowhere")))["rows"] == []


async def test_deleting_a_queue_deletes_its_timers(queen: Any, name: Name) -> None:
    queue = name("q")
    await queen.timers.schedule(queue, "k", 1, delay_ms=300)
    await queen.queue(queue).delete()
    await queen.timers.schedule(queue, "k2", 2, delay_ms=600)
    assert datas(await pop_all(lambda: queen.queue(queue).batch(5), 1)) == [2]
    assert await _nothing(queen, queue)


async def test_many_timers_fire_once_each_and_in_order(queen: Any, name: Name) -> None:
    queue, op = name("q"), queen.timers.op.schedule
    await queen.timers.batch([op(queue, f"k{n}", n, delay_ms=200 + n % 7) for n in range(700)])
    found = await _drain(queen, queue, 700)
    assert sorted(found) == list(range(700))
    assert [n % 7 for n in found] == sorted(n % 7 for n in range(700))
    assert await _nothing(queen, queue)


async def test_cancels_that_race_with_the_firing_are_exact(queen: Any, name: Name) -> None:
    queue, op = name("q"), queen.timers.op.schedule
    await queen.timers.batch([op(queue, f"k{n}", n, delay_ms=100 + n * 5) for n in range(60)])
    answers = await asyncio.gather(*(queen.timers.cancel(queue, f"k{n}") for n in range(59, -1, -1)))
    cancelled = {59 - place for place, answer in enumerate(answers) if answer["ok"]}
    rest = [n for n in range(60) if n not in cancelled]
    assert sorted(await _drain(queen, queue, len(rest))) == rest
    assert await _nothing(queen, queue)
    assert (await queen.timers.list(queue))["rows"] == []


async def test_a_transaction_takes_its_timers_along_or_not(queen: Any, name: Name) -> None:
    source, target = name("in"), name("out")
    await queen.queue(source).push([{"data": 1}, {"data": 2}])
    await queen.timers.schedule(target, "old", "old", delay=_LONG)
    messages = await queen.queue(source).batch(2).wait(False).pop()
    bundle = queen.transaction().ack(messages[0]).queue(target).push([{"data": "pushed"}])
    bundle = bundle.timer(target).key("new").payload("new").after_ms(50).schedule()
    done = await bundle.timer(target).key("old").cancel().commit()
    assert [one["index"] for one in done["results"]] == [0, 1, 2, 3]
    assert [one.get("status") for one in done["results"][2:]] == ["scheduled", "cancelled"]
    assert await _drain(queen, target, 2) == ["pushed", "new"]
    wrong = {**messages[1], "leaseId": "0192d4c0-0000-7000-8000-000000000000"}
    bundle = queen.transaction().ack(wrong).timer(target).key("never").payload(1).after_ms(1).schedule()
    with pytest.raises(Exception, match="lease"):
        await bundle.commit()
    assert (await queen.timers.peek(target, "never"))["found"] is False


async def test_a_transaction_may_be_of_timers_alone(queen: Any, name: Name) -> None:
    queue = name("q")
    await queen.transaction().timer(queue).key("k").payload(1).after_ms(1).schedule().commit()
    assert datas(await pop_all(lambda: queen.queue(queue).batch(5), 1)) == [1]
    done = await queen.transaction().timer(queue).key("k").cancel().commit()
    assert done["results"][0]["status"] == "absent"


async def test_what_can_not_be_scheduled_says_why_and_schedules_nothing(queen: Any, name: Name) -> None:
    queue, errors = name("q"), package("2.6.0").errors
    ops = [queen.timers.op.schedule(queue, "k", 1, delay_ms=1)]
    ops.append({**ops[0], "timerKey": "x" * 600})
    with pytest.raises(errors.TimerError, match="timerKey") as caught:
        await queen.timers.batch(ops)
    assert caught.value.status == 413
    assert (await queen.timers.list(queue))["rows"] == []
