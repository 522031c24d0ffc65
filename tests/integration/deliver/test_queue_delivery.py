"""Messages of a queue reach a destination, whatever it does, and the store knows what became of each."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from time import monotonic
from typing import Any

import msgspec
import pytest

import forebay
from forebay.deliver.breaker import BreakerState
from forebay.deliver.http.destination import HttpDestination
from forebay.deliver.queue_delivery import QueueDelivery
from forebay.deliver.settings import DestinationSettings, QueueDeliverySettings
from forebay.model import ManualClock, Message
from forebay.store.seam import Store
from tests.integration.work.steps import until
from tests.servers.destination import DestinationServer, Received, answer, answers
from tests.unit.deliver.test_signature import verifier

LONG_SECONDS = 60.0
"""Longer than anything takes that doesn't hang."""


@asynccontextmanager
async def delivering(
    store: Store, server: DestinationServer, *, to: dict[str, Any] | None = None, **settings: Any
) -> AsyncIterator[QueueDelivery]:
    """Deliver `jobs` to a server until the end of the block, then stop in order."""
    destination = DestinationSettings(url=server.url, **({"allow_private": True} | (to or {})))
    given = {"retry_seconds": 0.01, "retry_seconds_max": 0.01, "breaker_seconds": 0.05, "ramp_seconds": 0.0}
    found = QueueDeliverySettings(queue="jobs", destination=destination, **(given | settings))
    delivery = QueueDelivery(store, HttpDestination(destination), found, name="test", worker="test")
    running = asyncio.create_task(delivery.run())
    try:
        yield delivery
    finally:
        delivery.stop(LONG_SECONDS)
        await asyncio.wait_for(running, LONG_SECONDS)


@asynccontextmanager
async def opened(ordered: bool = False) -> AsyncIterator[Store]:  # noqa: FBT001, FBT002 - a test says so
    async with forebay.open("memory://") as store:
        await store.create_queue("jobs", {"ordered": ordered})
        yield store


async def until_empty(store: Store) -> None:
    """Wait until every message is done or dead, turn by turn of the loop."""
    number, end = (await store.queue("jobs")).number, monotonic() + LONG_SECONDS
    while (stat := await store.get_stat()).queue_stats[number].total_tasks:
        assert monotonic() < end, f"waited in vain: {stat}"
        await asyncio.sleep(0)


async def test_every_message_arrives_and_is_done() -> None:
    async with opened() as store, DestinationServer() as server:
        await store.put_task("jobs", *(b"%d" % number for number in range(200)))
        async with delivering(store, server) as delivery:
            await until_empty(store)
            assert delivery.counts.delivered == 200
        assert sorted(map(int, server.bodies)) == list(range(200))
        assert server.connections <= 16
        assert await store.dead_letters("jobs") == []


async def test_a_request_says_what_its_message_is() -> None:
    async with opened() as store, DestinationServer() as server:
        headers = {"Content-Type": "text/x-mine", "traceparent": "00-abc", "x-inner": "kept inside"}
        (id,) = await store.put_task("jobs", Message(b"{}", headers=headers))
        async with delivering(store, server, to={"signing_secrets": (f"whsec_{'A' * 32}",)}):
            await until_empty(store)
        (got,) = server.received
        assert (got.method, got.target, got.body) == ("POST", "/hook", b"{}")
        assert got.headers["content-type"] == "text/x-mine"
        assert got.headers["traceparent"] == "00-abc"
        assert got.headers["webhook-id"] == f"msg_{id}"
        assert "x-inner" not in got.headers


async def test_the_package_of_the_standard_verifies_requests_as_they_arrive() -> None:
    secret = f"whsec_{'A' * 32}"
    async with opened() as store, DestinationServer(answers(answer(503), answer(200))) as server:
        await store.put_task("jobs", *(b'{"n":"%d \xc3\xa9"}' % number for number in range(5)))
        to = {"signing_secrets": (secret,), "body": "json", "batch_messages_max": 3}
        async with delivering(store, server, to=to):
            await until_empty(store)
        webhook = verifier(secret)
        for got in server.received:
            assert webhook.verify(got.body, got.headers) == msgspec.json.decode(got.body)
            with pytest.raises(Exception, match="signature"):
                webhook.verify(got.body + b" ", got.headers)


async def test_a_message_that_fails_comes_back_and_keeps_its_id() -> None:
    async with opened() as store:
        behaviour = answers(answer(500), answer(503), answer(200))
        async with DestinationServer(behaviour) as server:
            (id,) = await store.put_task("jobs", b"x")
            secrets = {"signing_secrets": (f"whsec_{'A' * 32}",)}
            async with delivering(store, server, to=secrets) as delivery:
                await until_empty(store)
                assert dict(delivery.counts.failures) == {"server_error": 2}
                assert delivery.counts.retries_delivered == 1
            assert len({got.headers["webhook-id"] for got in server.received}) == 1
            assert len(server.received) == 3
        (place,) = (await store.where(id)).groups
        assert [(one.outcome, one.code, one.reason) for one in place.history] == [
            ("retried", 500, "the destination answered 500 Internal Server Error"),
            ("retried", 503, "the destination answered 503 Service Unavailable"),
            ("done", 200, None),
        ]


async def test_a_refused_message_is_a_dead_letter_with_status_and_start_of_the_answer() -> None:
    refusal = answer(404, b"no such\x00 hook " + b"y" * 5_000)
    async with opened() as store, DestinationServer(answers(refusal)) as server:
        await store.put_task("jobs", b"x")
        async with delivering(store, server):
            await until_empty(store)
        (letter,) = await store.dead_letters("jobs")
        assert "404 Not Found: no such hook yyy" in letter.reason
        assert len(server.received) == 1


async def test_after_its_last_retry_a_message_is_a_dead_letter() -> None:
    async with opened() as store, DestinationServer(answers(answer(502, b"bad gateway"))) as server:
        await store.put_task("jobs", b"x")
        async with delivering(store, server, retries_max=2, breaker_threshold=100):
            await until_empty(store)
        (letter,) = await store.dead_letters("jobs")
        assert letter.reason == "failed 3 times: the destination answered 502 Bad Gateway: bad gateway"
        assert len(server.received) == 3


@pytest.mark.parametrize("body", ["json", "ndjson"])
async def test_messages_are_sent_together(body: str) -> None:
    async with opened() as store, DestinationServer() as server:
        await store.put_task("jobs", *(b'{"n":\n %d}' % number for number in range(100)))
        to = {"body": body, "batch_messages_max": 30, "concurrency": 1}
        async with delivering(store, server, to=to):
            await until_empty(store)
    if body == "json":
        found = [json.loads(got) for got in server.bodies]
    else:
        found = [[json.loads(line) for line in got.splitlines()] for got in server.bodies]
    assert [item["n"] for batch in found for item in batch] == list(range(100))
    assert max(map(len, found)) <= 30
    assert len(found) < 20


async def test_one_bad_message_of_a_batch_is_found_and_the_others_are_delivered() -> None:
    async def dislike(got: Received, writer: asyncio.StreamWriter) -> None:
        writer.write(answer(422, b"seven!") if 7 in json.loads(got.body) else answer())

    async with opened() as store, DestinationServer(dislike) as server:
        await store.put_task("jobs", *(b"%d" % number for number in range(32)), b"not json")
        async with delivering(store, server, to={"body": "json"}):
            await until_empty(store)
        letters = await store.dead_letters("jobs")
        assert sorted(letter.message().payload for letter in letters) == [b"7", b"not json"]
        reasons = {letter.message().payload: letter.reason for letter in letters}
        assert "422 Unprocessable" in reasons[b"7"]
        assert "isn't JSON" in reasons[b"not json"]


async def test_a_batch_that_is_too_large_is_halved() -> None:
    async def small_only(got: Received, writer: asyncio.StreamWriter) -> None:
        writer.write(answer(413 if len(got.body) > 60 else 200))

    async with opened() as store, DestinationServer(small_only) as server:
        await store.put_task("jobs", *(b'"%020d"' % number for number in range(20)), b'"%0100d"' % 7)
        async with delivering(store, server, to={"body": "ndjson"}):
            await until_empty(store)
        (letter,) = await store.dead_letters("jobs")
        assert "413" in letter.reason
        assert len(letter.message().payload) == 102


async def test_a_message_that_is_too_large_is_sent_in_parts_where_it_can_be_split() -> None:
    async def small_only(got: Received, writer: asyncio.StreamWriter) -> None:
        writer.write(answer(413 if len(got.body) > 12 else 200))

    async with opened() as store, DestinationServer(small_only) as server:
        lines = Message(b"1111\n2222\n3333\n4444\n", headers={"content-type": "application/x-ndjson"})
        await store.put_task("jobs", lines, b"x" * 100)
        async with delivering(store, server, to={"concurrency": 1}):
            await until_empty(store)
        assert [body for body in server.bodies if len(body) <= 12] == [b"1111\n2222\n", b"3333\n4444\n"]
        (letter,) = await store.dead_letters("jobs")
        assert letter.message().payload == b"x" * 100
        assert "can't be split" in letter.reason


async def test_while_a_destination_is_down_messages_wait_and_then_all_arrive() -> None:
    async with opened() as store, DestinationServer() as server:
        await server.stop()
        await store.put_task("jobs", *(b"%d" % number for number in range(100)))
        async with delivering(store, server, to={"concurrency": 4}, breaker_threshold=3) as delivery:
            await until(lambda: delivery.admission.breaker.opened >= 3, "the breaker has opened")
            # Only the probe of each opening is tried: nothing else burns an attempt.
            tried, opened_times = delivery.counts.attempts, delivery.admission.breaker.opened
            assert tried <= 3 + 4 + opened_times + 1
            assert delivery.in_hand <= 8
            await server.start()
            await until_empty(store)
            assert delivery.admission.breaker.state is BreakerState.CLOSED
        assert sorted(set(map(int, server.bodies))) == list(range(100))
        assert await store.dead_letters("jobs") == []


async def test_in_an_ordered_queue_a_partition_keeps_its_order_whatever_fails() -> None:
    async def flaky(_: Received, writer: asyncio.StreamWriter) -> None:
        writer.write(answer(500 if len(server.received) % 3 == 0 else 200))

    async with opened(ordered=True) as store, DestinationServer(flaky) as server:
        for number in range(30):
            await store.put_task("jobs", b"%d" % number, partition=f"p{number % 3}")
        async with delivering(store, server, to={"concurrency": 8}, breaker_threshold=1_000):
            await until_empty(store)
    delivered: list[int] = []
    for number in map(int, server.bodies):
        if number in delivered:
            delivered.remove(number)
        delivered.append(number)
    for partition in range(3):
        mine = [number for number in delivered if number % 3 == partition]
        assert mine == sorted(mine)
    assert sorted(delivered) == list(range(30))


async def test_in_an_ordered_queue_only_the_first_of_a_batch_that_fails_has_an_attempt_more() -> None:
    async with opened(ordered=True) as store, DestinationServer(answers(answer(503))) as server:
        await store.put_task("jobs", b"1", b"2", b"3", partition="p")
        async with delivering(store, server, to={"body": "json"}, retries_max=1, breaker_threshold=1_000):
            await until_empty(store)
        # The first is given up after its second attempt, then the second, then the third.
        assert server.bodies == [b"[1,2,3]", b"[1,2,3]", b"[2,3]", b"[3]"]
        assert len(await store.dead_letters("jobs")) == 3


async def test_what_waits_for_its_turn_when_the_breaker_opens_goes_back() -> None:
    async with opened() as store, DestinationServer(answers(answer(500))) as server:
        await store.put_task("jobs", *[b"x"] * 4)
        to = {"requests_per_second": 0.01}
        async with delivering(store, server, to=to, breaker_threshold=1, breaker_seconds=600.0) as delivery:
            await until(lambda: delivery.admission.breaker.state is BreakerState.OPEN, "it is open")
            await until(lambda: delivery.in_hand == 0, "nothing is in hand")
        assert len(server.received) == 1
        left = await store.get_task("jobs", 10)
        assert [task.attempts for task in left if task.attempts == 0] == [0, 0, 0]


async def test_stopping_lets_a_request_end_and_gives_the_rest_back_untried() -> None:
    gate = asyncio.Event()

    async def slow(_: Received, writer: asyncio.StreamWriter) -> None:
        await gate.wait()
        writer.write(answer())

    async with opened() as store, DestinationServer(slow) as server:
        await store.put_task("jobs", b"one", b"two", b"three")
        async with delivering(store, server, to={"concurrency": 1}) as delivery:
            await server.arrived.wait()
            delivery.stop(LONG_SECONDS)
            gate.set()
        assert delivery.in_hand == 0
        left = await store.get_task("jobs", 10)
        assert [(task.data, task.attempts) for task in left] == [(b"two", 0), (b"three", 0)]


async def test_a_request_that_does_not_end_in_time_is_cut_off_and_its_message_given_back() -> None:
    gate = asyncio.Event()

    async def hang(_: Received, __: asyncio.StreamWriter) -> None:
        await gate.wait()

    async with opened() as store, DestinationServer(hang) as server:
        await store.put_task("jobs", b"one")
        async with delivering(store, server) as delivery:
            await server.arrived.wait()
            delivery.stop(0.0)
        gate.set()
        (task,) = await store.get_task("jobs", 10)
        assert (task.data, task.attempts) == (b"one", 0)


async def test_a_paused_destination_gets_nothing_until_it_is_resumed() -> None:
    async with opened() as store, DestinationServer() as server:
        async with delivering(store, server) as delivery:
            delivery.pause("maintenance")
            await store.put_task("jobs", b"x")
            for _ in range(50):
                await asyncio.sleep(0)
            assert server.received == []
            delivery.resume()
            await until_empty(store)
        assert server.bodies == [b"x"]


async def test_a_destination_that_fails_for_too_long_disables_itself_and_loses_nothing() -> None:
    async with opened() as store, DestinationServer(answers(answer(500))) as server:
        await store.put_task("jobs", b"x")
        told: list[str] = []
        async with delivering(store, server, to={"disable_after_seconds": 1.0}) as delivery:
            delivery.on_disabled = told.append
            await until(lambda: delivery.paused_because is not None, "it is disabled")
            assert told == [delivery.paused_because]
            assert "failed for" in told[0]
            server.behaviour = answers(answer())
            delivery.resume()
            await until_empty(store)


async def test_leases_are_kept_while_a_destination_takes_its_time() -> None:
    clock, gate = ManualClock(1_000_000_000), asyncio.Event()

    async def slow(_: Received, writer: asyncio.StreamWriter) -> None:
        await gate.wait()
        writer.write(answer())

    async with forebay.open("memory://", clock=clock) as store, DestinationServer(slow) as server:
        await store.create_queue("jobs")
        extend, extended = store.extend, 0

        async def almost_late(*arguments: Any, **named: Any) -> None:
            nonlocal extended
            clock.advance(seconds=0.9)
            await extend(*arguments, **named)
            extended += 1
            if extended == 4:
                gate.set()

        store.extend = almost_late  # type: ignore[method-assign]
        await store.put_task("jobs", b"x")
        async with delivering(store, server, visibility_seconds=1.0):
            await until_empty(store)
        assert server.bodies == [b"x"]


async def test_a_message_whose_lease_was_lost_is_not_sent_after_that() -> None:
    gate = asyncio.Event()

    async def slow(_: Received, writer: asyncio.StreamWriter) -> None:
        await gate.wait()
        writer.write(answer())

    async with opened() as store, DestinationServer(slow) as server:
        await store.put_task("jobs", b"one", b"two")
        async with delivering(store, server, to={"concurrency": 1}) as delivery:
            await server.arrived.wait()
            await store.purge_queue("jobs")
            gate.set()
            await until(lambda: delivery.in_hand == 0, "nothing is in hand")
        assert delivery.counts.delivered >= 1


@pytest.mark.parametrize("status", [401, 403])
async def test_messages_wait_until_a_refused_credential_is_corrected(status: int) -> None:
    async with opened() as store, DestinationServer(answers(answer(status, b"who are you"))) as server:
        bodies = [b"%d" % number for number in range(50)]
        await store.put_task("jobs", *bodies)
        async with delivering(store, server) as delivery:
            await until(lambda: delivery.admission.breaker.opened > 0, "the breaker opens")
            assert delivery.last_failure.endswith("who are you")
            server.behaviour = answers(answer(200))
            await until_empty(store)
        assert {*server.bodies} == {*bodies}
        assert await store.dead_letters("jobs") == []
        assert not delivery.counts.buried


async def test_a_refused_credential_makes_dead_letters_where_that_is_asked_for() -> None:
    async with opened() as store, DestinationServer(answers(answer(403, b"no"))) as server:
        await store.put_task("jobs", b"a", b"b")
        async with delivering(store, server, to={"retry_auth": False}) as delivery:
            await until_empty(store)
        letters = await store.dead_letters("jobs")
        assert [letter.reason for letter in letters] == ["the destination answered 403 Forbidden: no"] * 2
        assert delivery.counts.buried == {"auth": 2}
        assert delivery.admission.breaker.opened == 0


async def test_a_page_that_isnt_there_makes_dead_letters_at_once() -> None:
    async with opened() as store, DestinationServer(answers(answer(404))) as server:
        await store.put_task("jobs", b"a")
        async with delivering(store, server):
            await until_empty(store)
        assert len(await store.dead_letters("jobs")) == 1
        assert len(server.received) == 1


async def test_messages_in_hand_are_bounded_while_no_outcome_can_be_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with opened() as store, DestinationServer() as server:
        await store.put_task("jobs", *(b"%d" % number for number in range(500)))
        gate, settle = asyncio.Event(), store.settle

        async def held(**outcomes: Any) -> Any:
            await gate.wait()
            return await settle(**outcomes)

        monkeypatch.setattr(store, "settle", held)
        async with delivering(store, server, to={"concurrency": 4}) as delivery:
            try:
                await until(lambda: len(server.received) >= 16, "four times four are sent")
                for _ in range(1_000):
                    await asyncio.sleep(0)
                assert (len(server.received), delivery.in_hand) == (16, 16)
            finally:
                gate.set()
            await until_empty(store)
        assert len(server.received) == 500
