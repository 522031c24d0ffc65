"""Deliveries of flows that end at a destination: kept running beside the flows, by the same rules.

A flow publishes its rows to a queue; its delivery takes them from there. All deliveries of a process share
one store, on an event loop in a thread of its own. Invariants: a delivery that ends by itself is an error,
unless its flow runs once; several processes may run the same one, since leases share the messages among them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from functools import partial
from typing import Any, Final

from forebay.app.commands.deliver import process_title
from forebay.app.opening import open_store
from forebay.client.running import LoopThread
from forebay.deliver.breaker import BreakerState
from forebay.deliver.deliveries import Deliveries
from forebay.deliver.queue_delivery import QueueDelivery
from forebay.deliver.settings import QueueDeliverySettings
from forebay.log.values import GroupStats
from forebay.model import Unavailable, cancel
from forebay.spark.flows.numbers import FlowNumbers
from forebay.spark.flows.pipeline import Unit
from forebay.spark.flows.values import FlowSpec, PipelineSpec
from forebay.store.seam import Store

__all__ = ["FlowDeliveries", "FlowDelivery"]

logger: Final = logging.getLogger("forebay.deliver")

STOP_SECONDS: Final = 5.0
"""How long requests may go on after a signal: less than flows have to end."""
IDLE_SECONDS: Final = 60.0
"""Where a flow runs once: how long its delivery waits for messages whose time is to come."""
_LOOK_SECONDS: Final = 0.2


class FlowDeliveries:
    """A store on a thread, which all deliveries of a process share. The first that is started opens it."""

    def __init__(self, url: str, key: str | None = None) -> None:
        self._url = url
        self._key = key
        self._thread: LoopThread | None = None
        self._store: Store | None = None
        self._started: dict[str, FlowDelivery] = {}
        self.running: list[QueueDelivery] = []
        """Those that run now, for their metrics."""

    def units(self, spec: PipelineSpec) -> list[Unit]:
        """A delivery for each flow that ends at a destination; that of a flow that runs once comes after it.

        Their numbers are for people: Prometheus is told of deliveries by their own metrics.
        """
        return [
            Unit(
                name=flow.delivery_name,
                type="DELIVERY",
                start=partial(self._start, flow, spec.deliveries[flow.name], numbers),
                numbers=numbers,
                after=(flow.name,) if flow.once else (),
                remark=partial(self._remark, flow.name),
            )
            for flow in spec.flows
            if flow.name in spec.deliveries
            for numbers in (FlowNumbers(),)
        ]

    def _start(self, flow: FlowSpec, settings: QueueDeliverySettings, numbers: FlowNumbers) -> FlowDelivery:
        thread, store = self._opened()
        started = FlowDelivery(thread, store, flow, settings, numbers=numbers, running=self.running)
        self._started[flow.name] = started
        return started

    def _opened(self) -> tuple[LoopThread, Store]:
        if self._thread is None or self._store is None:
            store = open_store(self._url, key=self._key)
            thread = LoopThread(store)
            thread.begin()
            self._thread, self._store = thread, store
        return self._thread, self._store

    def _remark(self, flow: str) -> str:
        started = self._started.get(flow)
        return "" if started is None else started.trouble

    def close(self) -> None:
        """Close the store, after all deliveries were stopped."""
        if self._thread is not None:
            self._thread.close()


class FlowDelivery:
    """One start of a delivery. It ends when it is stopped; where its flow runs once, when all is sent."""

    def __init__(
        self,
        thread: LoopThread,
        store: Store,
        flow: FlowSpec,
        settings: QueueDeliverySettings,
        *,
        numbers: FlowNumbers,
        running: list[QueueDelivery],
    ) -> None:
        self._thread = thread
        self._store = store
        self._flow = flow
        self._settings = settings
        self._numbers = numbers
        self._running = running
        self._delivery: QueueDelivery | None = None
        self._counted = (0, 0)
        self._stopping = asyncio.Event()
        self._task = thread.run(self._begun())

    def is_active(self) -> bool:
        """Tell if it goes on, and count what was sent since the last time."""
        is_active = not self._task.done()  # first: what it sent before it ended is counted then
        self._count()
        return is_active

    def error(self) -> BaseException | None:
        """Why it ended by itself; None when all is sent, or it was stopped."""
        return None if self._task.cancelled() else self._task.exception()

    def stop(self) -> None:
        """End it; requests that are out have some seconds, and what isn't sent waits in the queue."""
        self._thread.run(self._stopped())

    @property
    def trouble(self) -> str:
        """Why nothing is sent at the moment; empty where it is."""
        delivery = self._delivery
        if delivery is None or self._task.done():
            return ""
        if delivery.paused_because is not None:
            return f"the destination is paused: {delivery.paused_because}"
        return delivery.last_failure if delivery.admission.failing_since is not None else ""

    async def _begun(self) -> asyncio.Task[None]:
        await self._store.create_queue(self._settings.queue)
        return asyncio.create_task(self._deliver(), name=f"forebay-flow-delivery-{self._flow.name}")

    async def _stopped(self) -> None:
        self._stopping.set()
        await asyncio.wait([self._task])

    async def _deliver(self) -> None:
        settings = {self._flow.name: self._settings}
        process = process_title()
        async with Deliveries(
            self._store, settings, process=process, stop_seconds=STOP_SECONDS
        ) as deliveries:
            (delivery,) = deliveries.running
            self._delivery = delivery
            self._running.append(delivery)
            try:
                waits: list[Coroutine[Any, Any, object]] = [self._stopping.wait(), deliveries.ended()]
                await _first(*waits, *([self._emptied(delivery)] if self._flow.once else []))
            finally:
                self._running.remove(delivery)

    async def _emptied(self, delivery: QueueDelivery) -> None:
        """Wait until nothing is left to send; Unavailable where the destination doesn't take it."""
        loop = asyncio.get_running_loop()
        idle_since = loop.time()
        while True:
            books = await self._books()
            left = books.unclaimed + books.held + books.deferred + books.spooled
            if not left:
                return
            is_closed = delivery.admission.breaker.state is BreakerState.CLOSED
            if delivery.paused_because is not None or not is_closed:
                raise self._left(left, delivery)
            if books.ready + books.held + books.due + books.spooled:
                idle_since = loop.time()
            elif loop.time() - idle_since > IDLE_SECONDS:
                if delivery.last_failure:
                    raise self._left(left, delivery)
                logger.info("%d messages of queue %s wait for their time", left, self._settings.queue)
                return
            await asyncio.sleep(_LOOK_SECONDS)

    async def _books(self) -> GroupStats:
        ledger = await self._store.ledger(queue=self._settings.queue)
        groups = [group for queue in ledger.queues for group in queue.groups]
        found = [books for books in groups if books.group.name == self._settings.group]
        if not found:  # the delivery makes it when it first takes
            await self._store.create_group(self._settings.queue, self._settings.group)
            return await self._books()
        return found[0]

    def _left(self, left: int, delivery: QueueDelivery) -> Unavailable:
        why = delivery.paused_because or delivery.last_failure
        text = f"{left} messages wait in queue {self._settings.queue!r}: {why}"
        return Unavailable(text, hint="the next run sends them")

    def _count(self) -> None:
        if self._delivery is None:
            return
        counts = self._delivery.counts
        sent, dead = counts.messages, sum(counts.buried.values())
        before = self._counted
        if (sent, dead) != before:
            self._counted = (sent, dead)
            new, buried = sent - before[0], dead - before[1]
            self._numbers.batch(new + buried, new, buried, _LOOK_SECONDS)


async def _first(*waits: Coroutine[Any, Any, object]) -> None:
    """Wait for the first of several to end, and raise what it raised."""
    tasks = [asyncio.ensure_future(wait) for wait in waits]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        await cancel(*tasks)
