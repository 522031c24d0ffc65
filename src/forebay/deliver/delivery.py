"""Delivery: takes entries of a queue, sends them, and settles them by what came of it.

::

    workers           take ─▶ permit ─▶ prepare ─▶ send ─▶ settle
    pipeline_split    take ─▶ prepare ─▶ channel ─▶ permit ─▶ send ─▶ settle

An entry stays on disk until it is settled, so wherever it is when the process ends, it is sent again.
Invariants: no more requests are under way than `workers` (or `sender_count` times `max_concurrent_sends`) to
one destination, and `global_send_limit` to all; while the breaker is open entries stay where they are.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import msgspec

from forebay.deliver.admission import Admission, RateRule
from forebay.deliver.backoff import BackoffRule, pause_seconds
from forebay.deliver.breaker import BreakerRule, BreakerState, Permit
from forebay.deliver.dead_letters import DeadLetter
from forebay.deliver.delivery_counts import DeliveryCounts
from forebay.deliver.entry import Entry, Part
from forebay.deliver.entry_data import decode_request, encode_request, id_of
from forebay.deliver.gate import Gate
from forebay.deliver.queue_settings import SendQueueSettings
from forebay.deliver.scale import Load, Scale, ScaleRule, next_scale
from forebay.deliver.seam import Destination
from forebay.deliver.send_queue import SendQueue
from forebay.deliver.sparse_log import SparseLog
from forebay.deliver.split import Unsplittable, split
from forebay.deliver.values import ErrorClass, Outcome, Prepared, Request
from forebay.deliver.worker_pool import Worker, WorkerPool
from forebay.model import Rejected, Unavailable

__all__ = ["Delivery"]

logger: Final = logging.getLogger("forebay.deliver")
_SCALE_SECONDS: Final = 1.0
_PARTS_MAX: Final = 1024
"""Parts that one request may be split into."""


class Delivery:
    """The way from one queue to its destination. `settings` are resolved."""

    def __init__(
        self,
        queue: SendQueue,
        destination: Destination,
        settings: SendQueueSettings,
        *,
        sends: asyncio.Semaphore,
        clock: Callable[[], int],
        rate: RateRule | None = None,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self.queue = queue
        self.destination = destination
        self.settings = settings
        self.counts = DeliveryCounts()
        self._sends = sends
        self._clock = clock
        self._chance = chance
        self._loop = asyncio.get_running_loop()
        self._backoff = _backoff_rule(settings)
        self._gate = Gate(lambda changed: _admission(settings, changed, destination.name, rate))
        self._burials = SparseLog(logger)
        self._pipeline = settings.pipeline_split
        self._each = settings.max_concurrent_sends if self._pipeline.enabled else 1
        work = self._send_prepared if self._pipeline.enabled else self._work
        self.senders = WorkerPool(work, "forebay-sender")
        self.preparers = WorkerPool(self._prepare, "forebay-preparer")
        self._channel: asyncio.Queue[tuple[Entry, Prepared]] = asyncio.Queue(self._pipeline.channel_size)
        self._threads = ThreadPoolExecutor(self._pipeline.preparer_count or 1, "forebay-prepare")
        self._scaling: asyncio.Task[None] | None = None
        self.in_flight = 0

    @property
    def admission(self) -> Admission:
        """The breaker and the pace, to look at."""
        return self._gate.admission

    def start(self) -> None:
        """Begin to send."""
        adaptive = self.settings.adaptive_workers
        count = self._pipeline.sender_count if self._pipeline.enabled else self.settings.workers
        if adaptive.enabled:
            count = max(adaptive.min_workers, min(count, adaptive.max_workers))
            self._scaling = asyncio.create_task(self._scale(count), name="forebay-scale")
        self._resize(count)
        if self._pipeline.enabled:
            self.preparers.resize(self._pipeline.preparer_count)

    async def stop(self, deadline: float) -> None:
        """End: what is answered by the deadline (of the loop's clock) is settled, the rest stays queued."""
        if self._scaling is not None:
            self._scaling.cancel()
        await self.preparers.stop(deadline)
        while not self._channel.empty():
            entry, _ = self._channel.get_nowait()
            self.queue.release(entry)
        await self.senders.stop(deadline)
        self._threads.shutdown(wait=False, cancel_futures=True)
        await self.destination.close()

    def _resize(self, count: int) -> None:
        self.senders.resize(count * self._each)
        self.admission.in_flight_max = count * self._each

    # Workers

    async def _work(self, worker: Worker) -> None:
        while not worker.is_leaving:
            entry = self.queue.take_now() or await self.queue.take()
            permit = self._gate.ask()
            if isinstance(permit, float):
                self.queue.release(entry)
                await self._gate.wait(permit)
                continue
            worker.is_busy = True
            try:
                prepared = self._prepared(entry)
                if prepared is None:
                    self.admission.give_back(permit)
                else:
                    await self._send(entry, prepared, permit)
            finally:
                worker.is_busy = False

    # The pipeline

    async def _prepare(self, worker: Worker) -> None:
        while not worker.is_leaving:
            entry = self.queue.take_now() or await self.queue.take()
            worker.is_busy = True
            try:
                prepared = await self._loop.run_in_executor(self._threads, self._prepared_or_error, entry)
                if isinstance(prepared, Rejected):
                    self._bury_unprepared(entry, prepared)
                    continue
                worker.is_busy = False  # from here on it may be cancelled: the entry is released
                await self._channel.put((entry, prepared))
            except BaseException:
                self.queue.release(entry)
                raise
            finally:
                worker.is_busy = False

    async def _send_prepared(self, worker: Worker) -> None:
        """One of the `max_concurrent_sends` of a sender."""
        while not worker.is_leaving:
            entry, prepared = await self._channel.get()
            try:
                permit = await self._gate.permit()
            except asyncio.CancelledError:
                self.queue.release(entry)
                raise
            worker.is_busy = True
            try:
                await self._send(entry, prepared, permit)
            finally:
                worker.is_busy = False

    # One attempt

    async def send_now(self, request: Request) -> bool:
        """Send a request that isn't queued; tell whether it was delivered. Nothing overtakes the queue."""
        if self.queue.size:
            return False
        try:
            return (await self.send_once(request)).is_delivered
        except (Rejected, Unavailable):
            return False

    async def send_once(self, request: Request) -> Outcome:
        """Send a request that isn't queued, once; Unavailable while the destination is left alone."""
        permit = await self._permit_now()
        try:
            prepared = self.destination.prepare(request, id=f"now-{self._clock()}")
        except BaseException:
            self.admission.give_back(permit)
            raise
        return await self._exchange(prepared, permit, attempts=0)

    async def _permit_now(self) -> Permit:
        """A permit for a client that waits: soon, or not at all while the breaker is open."""
        try:
            async with asyncio.timeout(self.settings.block_timeout):
                while isinstance(permit := self._gate.ask(), float):
                    if self.admission.breaker.state is not BreakerState.CLOSED:
                        raise self._left_alone(permit)
                    await self._gate.wait(permit)
        except TimeoutError:
            raise self._left_alone(1.0) from None
        return permit

    def _left_alone(self, seconds: float) -> Unavailable:
        text = f"{self.destination.name} gets no more requests for now"
        return Unavailable(text, hint="try again, or switch the queue on", retry_after_seconds=seconds)

    def _prepared(self, entry: Entry) -> Prepared | None:
        """The next request of an entry; one that can never be sent is buried."""
        prepared = self._prepared_or_error(entry)
        if isinstance(prepared, Rejected):
            self._bury_unprepared(entry, prepared)
            return None
        return prepared

    def _prepared_or_error(self, entry: Entry) -> Prepared | Rejected:
        try:
            if entry.parts:
                return self.destination.prepare(entry.parts[0].request, id=_id_of(entry))
            return self.destination.prepare(decode_request(entry.data), id=_id_of(entry))
        except msgspec.MsgspecError as error:
            return Rejected(f"the entry isn't a request: {error}")
        except Rejected as error:
            return error
        except Exception as error:  # noqa: BLE001 - a defect may not take the entry with it
            return Rejected(f"the request can't be prepared: {error!r}")

    async def _send(self, entry: Entry, prepared: Prepared, permit: Permit) -> None:
        try:
            outcome = await self._exchange(prepared, permit, attempts=entry.attempts)
        except BaseException:  # cancelled, or a defect: the entry stays in the queue
            self.queue.release(entry)
            raise
        if outcome.error_class is ErrorClass.TOO_LARGE:
            await self._divide(entry, prepared.request, outcome)
        else:
            self._conclude(entry, prepared.request, outcome)

    async def _exchange(self, prepared: Prepared, permit: Permit, *, attempts: int) -> Outcome:
        """Send a request, count and report what came of it."""
        sends = self._sends
        try:
            await sends.acquire()
            self.in_flight += 1
            try:
                began = self._loop.time()
                outcome = await self.destination.send(prepared)
            finally:
                self.in_flight -= 1
                sends.release()
        except BaseException:
            self.admission.give_back(permit)
            raise
        now = self._loop.time()
        self.counts.attempt(outcome, now - began, attempts_before=attempts)
        self.admission.report(permit, outcome, now)
        return outcome

    def _conclude(self, entry: Entry, request: Request, outcome: Outcome) -> None:
        if outcome.is_delivered:
            if entry.parts and len(entry.parts) > 1:
                del entry.parts[0]
                self.queue.release(entry)
            else:
                self.queue.done(entry)
        elif outcome.is_retried:
            asked = outcome.retry_after_seconds
            pause = pause_seconds(self._backoff, entry.attempts + 1, self._chance(), asked)
            if entry.is_ordered and self.settings.circuit_breaker.enabled:
                # Others wait behind it, and none can find out that the destination is back.
                pause = min(pause, max(self.settings.circuit_breaker.reset_timeout, asked or 0.0))
            self.counts.backoff_seconds = pause
            self.queue.retry(entry, pause)
        else:
            self._bury(entry, request, outcome)

    async def _divide(self, entry: Entry, request: Request, outcome: Outcome) -> None:
        """Send an entry that is too large in parts, or bury it."""
        parts = entry.parts or [Part("", request)]
        try:
            smaller = await self._loop.run_in_executor(self._threads, split, request)
        except BaseException:
            self.queue.release(entry)
            raise
        if isinstance(smaller, Unsplittable) or len(parts) >= _PARTS_MAX:
            why = (
                smaller.reason if isinstance(smaller, Unsplittable) else f"it has {len(parts)} parts already"
            )
            reason = f"{outcome.reason}, and the request can't be split: {why}"
            self._bury(entry, request, msgspec.structs.replace(outcome, reason=reason))
            return
        halves = [Part(f"{parts[0].path}{number}", half) for number, half in enumerate(smaller)]
        entry.parts = [*halves, *parts[1:]]
        self.counts.splits += 1
        self.queue.release(entry)

    def _bury_unprepared(self, entry: Entry, error: Rejected) -> None:
        outcome = Outcome(error_class=ErrorClass.CLIENT_ERROR, reason=str(error))
        self._bury(entry, None, outcome)

    def _bury(self, entry: Entry, request: Request | None, outcome: Outcome) -> None:
        kind = outcome.error_class.value if outcome.error_class is not None else ""
        self.counts.buried[kind] += 1
        self._burials.warning("a request is a dead letter of %s: %s", self.destination.name, outcome.reason)
        is_last = entry.parts is None or len(entry.parts) <= 1
        letter = DeadLetter(
            buried_at_us=self._clock(),
            enqueued_at_us=entry.enqueued_at_us,
            attempts=entry.attempts + 1,
            error_class=kind,
            status=outcome.status,
            reason=outcome.reason,
            answer=outcome.answer,
            data=entry.data if request is None or entry.parts is None else encode_request(request),
            id=_id_of(entry),
        )
        if entry.parts:
            del entry.parts[0]
        self.queue.bury(entry, msgspec.msgpack.encode(letter), is_last=is_last)

    # As many workers as it takes

    async def _scale(self, count: int) -> None:
        adaptive = self.settings.adaptive_workers
        rule = ScaleRule(min_workers=adaptive.min_workers, max_workers=adaptive.max_workers)
        scale = Scale(count)
        before = self._totals()
        while True:
            await asyncio.sleep(_SCALE_SECONDS)
            now = self._totals()
            sent, failed, seconds = (new - old for new, old in zip(now, before, strict=True))
            before = now
            scale = next_scale(scale, self._load(int(sent), int(failed), seconds), rule)
            if scale.workers != self.workers:
                self._resize(scale.workers)

    def _load(self, sent: int, failed: int, seconds: float) -> Load:
        return Load(
            waiting=self.queue.waiting + self._channel.qsize(),
            busy=self.busy_workers,
            sent=sent,
            failed=failed,
            latency_seconds=seconds / sent if sent else None,
            is_open=self.admission.breaker.state is not BreakerState.CLOSED,
        )

    def _totals(self) -> tuple[int, int, float]:
        return self.counts.attempts, self.counts.troubled, self.counts.latency_sum

    @property
    def workers(self) -> int:
        """Workers, or senders, that there are to be."""
        return -(-self.senders.wanted // self._each)

    @property
    def busy_workers(self) -> int:
        """Workers, or senders, that have a request under way."""
        return -(-self.senders.busy // self._each)


def _id_of(entry: Entry) -> str:
    """The id of the next request of an entry: its own, or that of its first part."""
    own = id_of(entry.sequence, entry.data)
    return f"{own}-{entry.parts[0].path}" if entry.parts else own


def _backoff_rule(settings: SendQueueSettings) -> BackoffRule:
    return BackoffRule(
        enabled=settings.backoff.enabled,
        base_seconds=settings.retry_interval,
        multiplier=settings.backoff.multiplier,
        max_seconds=settings.max_retry_delay,
        retry_after_seconds_max=settings.max_retry_delay,
    )


def _admission(
    settings: SendQueueSettings, changed: Callable[[], None], name: str, rate: RateRule | None
) -> Admission:
    breaker = settings.circuit_breaker
    rule = BreakerRule(
        enabled=breaker.enabled, threshold=breaker.threshold, reset_seconds=breaker.reset_timeout
    )
    return Admission(
        in_flight_max=1,
        breaker=rule,
        rate=rate,
        pause_seconds_max=settings.max_retry_delay,
        changed=changed,
        name=name,
    )
