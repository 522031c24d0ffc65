"""What many clients do at the same time, and what is deleted while somebody waits for it."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.integration.queen.calling import Caller, until
from tests.queen.wire import Client, datas
from tests.servers import ForebayServer

Name = Callable[[str], str]


def test_a_queue_takes_no_more_than_its_size_from_many_at_once(server: ForebayServer, name: Name) -> None:
    queue, client = name("room"), Client(server)
    client.configure(queue, maxSize=10)
    with ThreadPoolExecutor(40) as pool:
        answers = list(pool.map(lambda number: client.push(queue, number), range(40)))
    statuses = [answer[0]["status"] for answer in answers]
    assert sorted(statuses) == ["failed"] * 30 + ["queued"] * 10


def test_room_that_was_made_can_be_used_at_once(server: ForebayServer, name: Name) -> None:
    queue, client = name("room"), Client(server)
    client.configure(queue, maxSize=2)
    for number in range(6):
        assert client.push(queue, number)[0]["status"] == "queued"
        if number % 2:
            client.pop(queue, batch=2, autoAck="true")


@pytest.mark.parametrize("named", [{}, {"consumerGroup": "group"}], ids=["queue mode", "group"])
def test_who_waits_gets_what_comes_after_the_queue_was_made_anew(
    server: ForebayServer, name: Name, named: dict[str, str]
) -> None:
    queue, client, caller = name("anew"), Client(server), Caller(server)
    client.push(queue, "before")
    client.ack(*client.pop(queue, **named)["messages"], group=named.get("consumerGroup"))
    waits = caller.waiting()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(client.pop, queue, wait="true", timeout=20_000, **named)
        until(lambda: caller.waiting() > waits, "somebody waits")
        assert caller.ask("DELETE", f"/api/v1/resources/queues/{queue}")["existed"]
        client.configure(queue)
        client.push(queue, "after")
        assert datas(waiting.result()) == ["after"]


def test_what_is_too_old_is_buried_many_at_once_and_the_rest_keeps_its_order(
    server: ForebayServer, name: Name
) -> None:
    queue, client, caller = name("old"), Client(server), Caller(server)
    client.configure(queue, ttl=3)
    client.push(queue, *range(300), partition="p")
    old = time.monotonic() + 3.1
    until(lambda: time.monotonic() > old, "what was pushed is too old")
    client.push(queue, *"abcdef", partition="p")
    popped = client.pop(queue, batch=2)
    assert datas(popped) == ["a", "b"]
    assert client.pop(queue)["messages"] == []
    client.configure(queue, ttl=3_600)
    assert caller.get(f"/api/v1/dlq?queue={queue}&limit=1")["total"] == 300
    client.ack(*popped["messages"])
    assert datas(client.pop(queue, batch=10)) == ["c", "d", "e", "f"]
