"""The machine's clock is set while a queue is delivered: nothing is stuck, and nothing is sent early."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

import forebay
from forebay.deliver.http.destination import HttpDestination
from forebay.deliver.queue_delivery import QueueDelivery
from forebay.deliver.settings import DestinationSettings, QueueDeliverySettings
from forebay.store.store import LogStore
from tests.clock_jumps import Jumping
from tests.integration.work.steps import until
from tests.servers.destination import DestinationServer, Received, answer

HOUR = 3_600_000_000
LONG_SECONDS = 120.0


class Timed:
    """A receiver that answers with the first statuses that it was given, then with 200."""

    def __init__(self, *statuses: int) -> None:
        self.times: list[float] = []
        self._statuses = list(statuses)

    async def __call__(self, _: Received, writer: asyncio.StreamWriter) -> None:
        self.times.append(asyncio.get_running_loop().time())
        writer.write(answer(self._statuses.pop(0) if self._statuses else 200))
        await writer.drain()


@asynccontextmanager
async def delivering(
    server: DestinationServer, *, ordered: bool = False, to: dict[str, Any] | None = None, **settings: Any
) -> AsyncIterator[tuple[LogStore, QueueDelivery]]:
    """A queue and its delivery, whose pauses are not drawn."""
    destination = DestinationSettings(url=server.url, allow_private=True, **(to or {}))
    found = QueueDeliverySettings(queue="jobs", destination=destination, **settings)
    async with forebay.open("memory://") as store:
        assert isinstance(store, LogStore)
        await store.create_queue("jobs", {"ordered": ordered})
        delivery = QueueDelivery(
            store, HttpDestination(destination), found, name="test", worker="test", chance=lambda: 1.0
        )
        running = asyncio.create_task(delivery.run())
        try:
            yield store, delivery
        finally:
            delivery.stop(LONG_SECONDS)
            await asyncio.wait_for(running, LONG_SECONDS)


async def told(store: LogStore, delivery: QueueDelivery, count: int) -> None:
    """Wait until messages are delivered; what is due meanwhile is done without waiting for its period."""
    async with asyncio.timeout(LONG_SECONDS):
        while delivery.counts.messages < count:
            await store.tick()
            await asyncio.sleep(0)


@pytest.mark.parametrize("ordered", [False, True], ids=["free", "ordered"])
@pytest.mark.parametrize("jump", [HOUR, -HOUR], ids=["ahead", "back"])
async def test_a_pause_is_as_long_as_it_should_be(jumping: Jumping, jump: int, *, ordered: bool) -> None:
    receiver = Timed(503)
    async with (
        DestinationServer(receiver) as server,
        delivering(server, ordered=ordered, retry_seconds=1.0) as (store, delivery),
    ):
        first, second = await store.put_task("jobs", b"one", b"two", partition="p")
        await until(lambda: bool(delivery.counts.failures), "the first attempt has failed")
        await until(lambda: delivery.in_hand == 0, "its outcome is written")
        jumping.jump = jump
        await told(store, delivery, 2)
        attempts = [
            [one.outcome for one in place.history]
            for id in (first, second)
            for place in (await store.where(id)).groups
        ]
    assert [one for each in attempts for one in each if one != "released"].count("retried") == 1
    assert receiver.times[-1] - receiver.times[0] >= 0.85
    if ordered:
        assert server.bodies == [b"one", b"one", b"two"]


async def test_breaker_and_pace_go_by_a_steady_clock(jumping: Jumping) -> None:
    receiver = Timed(*[500] * 3)
    pace = {"requests_per_second": 50.0}
    async with (
        DestinationServer(receiver) as server,
        delivering(
            server, to=pace, retry_seconds=0.01, breaker_threshold=3, breaker_seconds=1.0, ramp_seconds=0.2
        ) as (store, delivery),
    ):
        await store.put_task("jobs", *(b"%d" % number for number in range(40)))
        await until(lambda: delivery.admission.breaker.opened > 0, "the breaker is open")
        tried = len(receiver.times)
        jumping.jump = HOUR
        await told(store, delivery, 10)
        jumping.jump = -HOUR
        await told(store, delivery, 40)
    assert receiver.times[tried] - receiver.times[2] >= 0.9, "the breaker stayed open"
    spans = [later - sooner for sooner, later in zip(receiver.times, receiver.times[21:], strict=False)]
    assert min(spans) >= 0.2, "no 22 requests in less than 20 of their paces' time allows"
    assert sorted(set(map(int, server.bodies))) == list(range(40))
