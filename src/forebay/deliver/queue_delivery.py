"""QueueDelivery: takes messages of a queue, sends them to a destination, and settles them by what came of it.

The queue itself is the buffer: what waits, waits there. Attempts, pauses and dead letters are the store's.

====================================  =======================================================================
outcome                               the messages of the request
====================================  =======================================================================
delivered                             are done
retried (5xx, 408, 425, 429, none,    come back after a pause, an attempt more; after `retries_max` dead
401, 403 and 407 with `retry_auth`)
413, 400, 422 for several             are sent again as two halves, so that the one at fault is found
413 for one                           is sent as two halves of its body, where it can be split; else dead
other                                 are dead letters: the status and the start of the answer are the reason
====================================  =======================================================================

Invariants: while the breaker is open, or the destination is paused, nothing is taken, and what was taken goes
back without an attempt. Breaker, pace and pauses go by a clock that never jumps: a message that the store
hands out before its pause is over, as the machine's clock was set ahead, goes back for the rest. In an
ordered queue the messages of a partition are sent one request after the other, and none past one that comes
back. Leases are extended while a message is in hand. No more messages are in hand than four times those of
all requests that may be under way: a kill repeats no more than that.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Iterable, Sequence
from typing import Final

import msgspec

from forebay.deliver.admission import Admission
from forebay.deliver.backoff import BackoffRule, pause_seconds
from forebay.deliver.breaker import BreakerRule, BreakerState, Permit
from forebay.deliver.delivery_counts import DeliveryCounts
from forebay.deliver.gate import Gate
from forebay.deliver.message_body import batches_of, make_request, request_id
from forebay.deliver.outcome_writer import OutcomeWriter
from forebay.deliver.retry_times import RetryTimes
from forebay.deliver.seam import Destination
from forebay.deliver.settings import DestinationSettings, QueueDeliverySettings
from forebay.deliver.slow_start import RampRule
from forebay.deliver.split import Unsplittable, split
from forebay.deliver.values import ErrorClass, Outcome, Request
from forebay.model import ForebayError, LeaseLost, Rejected, UnknownGroup, cancel
from forebay.store.seam import Store
from forebay.store.values import Task

__all__ = ["QueueDelivery"]

logger: Final = logging.getLogger("forebay.deliver")

_AT_FAULT: Final = frozenset((400, 413, 422))
"""Statuses that speak of what was sent: one message of a batch may be at fault."""
_SPLITS_MAX: Final = 10
_WAIT_SECONDS: Final = 30.0
_AWAY_SECONDS: Final = 0.2
_AWAY_SECONDS_MAX: Final = 5.0
_TAKEN_MAX: Final = 10_000
_IN_HAND_MAX: Final = 4
"""Messages that are taken and not settled, as a multiple of those that may be under way."""
_LAST_WRITE_SECONDS: Final = 2.0
_LEASE_PART: Final = 3
_REASON_KEPT: Final = 500


class QueueDelivery:
    """The way from one group of a queue to one destination. `run` until `stop`."""

    def __init__(
        self,
        store: Store,
        destination: Destination,
        settings: QueueDeliverySettings,
        *,
        name: str,
        worker: str,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self.name = name
        """The name of the destination."""
        self.settings = settings
        self.counts = DeliveryCounts()
        self._store = store
        self._destination = destination
        self._worker = worker
        self._chance = chance
        self._loop = asyncio.get_running_loop()
        self._gate = Gate(lambda changed: _admission(settings, changed, self.name))
        self._backoff = BackoffRule(
            base_seconds=settings.retry_seconds, max_seconds=settings.retry_seconds_max
        )
        self._held: set[int] = set()
        """Messages of which nothing was said yet."""
        self._leased: dict[int, Task] = {}
        """Those, and the ones whose outcome is being written."""
        self._retry_times = RetryTimes()
        self._lines: set[asyncio.Task[None]] = set()
        self._writer = OutcomeWriter(store, self._settled)
        self._stopping = asyncio.Event()
        self._stop_by = 0.0
        self._resumed = asyncio.Event()
        self._resumed.set()
        self.last_failure = ""
        """Why the last attempt failed that did."""
        self.paused_because: str | None = None
        """Why nothing is sent; None when it is."""
        self.on_disabled: Callable[[str], None] = lambda _: None
        """Called with the reason when it pauses by itself."""

    @property
    def admission(self) -> Admission:
        """The breaker and the pace, to look at."""
        return self._gate.admission

    @property
    def in_hand(self) -> int:
        """Messages that are taken and not settled."""
        return len(self._leased)

    def pause(self, reason: str) -> None:
        """Take nothing more until `resume`; requests that are out come to their end."""
        self.paused_because = reason
        self._resumed.clear()

    def resume(self) -> None:
        """Go on, as with a destination that never failed."""
        self.paused_because = None
        self.admission.forget()
        self._resumed.set()

    async def run(self) -> None:
        """Deliver until `stop` is called, or this is cancelled."""
        keeping = asyncio.create_task(self._keep_leases(), name="forebay-leases")
        taking = asyncio.create_task(self._take_all(), name="forebay-take")
        stopping = asyncio.create_task(self._stopping.wait())
        try:
            await asyncio.wait([taking, stopping], return_when=asyncio.FIRST_COMPLETED)
            if taking.done():
                taking.result()
        finally:
            self._stopping.set()
            await cancel(taking, stopping)
            await self._end_lines()
            await self._writer.close(max(_LAST_WRITE_SECONDS, self._left_seconds()))
            await cancel(keeping)
            await self._destination.close()

    def stop(self, seconds: float = 30.0) -> None:
        """Take nothing more; requests that are out may take so long, then they are cancelled.

        Called again it can only be sooner.
        """
        stop_by = self._loop.time() + seconds
        self._stop_by = min(self._stop_by, stop_by) if self._stopping.is_set() else stop_by
        self._stopping.set()

    def _left_seconds(self) -> float:
        return max(0.0, self._stop_by - self._loop.time())

    # Taking

    async def _take_all(self) -> None:
        pause = _AWAY_SECONDS
        while True:
            await self._may_take()
            try:
                tasks = await self._take()
            except ForebayError as error:
                if isinstance(error, UnknownGroup) and await self._has_made_group():
                    continue
                logger.warning("nothing can be taken from %s: %s", self.settings.queue, error)
                await asyncio.sleep(pause)
                pause = min(2 * pause, _AWAY_SECONDS_MAX)
                continue
            pause = _AWAY_SECONDS
            self._held.update(task.id for task in tasks)
            self._leased.update((task.id, task) for task in tasks)
            tasks = self._without_early(tasks)
            for line in _lines(tasks, self.settings.destination):
                running = asyncio.create_task(self._deliver_line(line), name="forebay-deliver")
                self._lines.add(running)
                running.add_done_callback(self._line_ended)

    def _without_early(self, tasks: Sequence[Task]) -> list[Task]:
        """The tasks that may be sent now.

        The others go back uncounted: the clock was set ahead, and they came before their pause is over.
        """
        now, found, behind = self._loop.time(), list[Task](), set[str]()
        for task in tasks:
            partition, left = task.lease.partition, self._retry_times.left_seconds(task.id, now)
            if partition in behind:
                self._release([task])
            elif left:
                self._let_go([task])
                self._writer.put_off(task, left)
                if partition is not None:
                    behind.add(partition)
            else:
                found.append(task)
        return found

    async def _has_made_group(self) -> bool:
        """Make the group of a destination that is new; it begins with the oldest message."""
        try:
            await self._store.create_group(self.settings.queue, self.settings.group)
        except ForebayError:
            return False
        return True

    async def _may_take(self) -> None:
        """Wait until the destination can be sent something."""
        while True:
            await self._resumed.wait()
            wait = self.admission.wait_seconds(self._loop.time())
            is_free = len(self._lines) < self._limit() and self._room() > 0
            if wait <= 0 and self._resumed.is_set() and is_free:
                return
            await self._gate.wait(wait if wait > 0 else _WAIT_SECONDS)

    async def _take(self) -> list[Task]:
        free = self._each() * max(1, self._limit() - len(self._lines))
        return await self._store.get_task(
            self.settings.queue,
            max(1, min(_TAKEN_MAX, free, self._room())),
            group=self.settings.group,
            worker=self._worker,
            wait_seconds=_WAIT_SECONDS,
            visibility_seconds=self.settings.visibility_seconds,
        )

    def _each(self) -> int:
        """Messages in a request at most."""
        to = self.settings.destination
        return 1 if to.body == "message" else to.batch_messages_max

    def _room(self) -> int:
        """Messages that may be taken yet: while outcomes can't be written, what a kill repeats is bounded."""
        return _IN_HAND_MAX * self._each() * self.settings.destination.concurrency - len(self._leased)

    def _limit(self) -> int:
        """Requests that may be under way: one while a breaker isn't closed, since that is the probe."""
        if self.admission.breaker.state is not BreakerState.CLOSED:
            return 1
        return self.admission.limit(self._loop.time())

    def _line_ended(self, line: asyncio.Task[None]) -> None:
        self._lines.discard(line)
        self._gate.wake()
        if not line.cancelled() and line.exception() is not None:
            logger.error("a delivery failed; its messages come back", exc_info=line.exception())

    async def _end_lines(self) -> None:
        """Let requests that are out come to their end, in time."""
        if self._lines:
            await asyncio.wait(list(self._lines), timeout=self._left_seconds())
        for line in list(self._lines):
            line.cancel()
        await asyncio.gather(*self._lines, return_exceptions=True)

    # Sending

    async def _deliver_line(self, tasks: Sequence[Task]) -> None:
        """Send tasks in their order; what isn't reached, or comes too late, goes back."""
        try:
            for batch in batches_of(tasks, self.settings.destination):
                if not await self._deliver(batch):
                    break
        finally:
            self._release(tasks)

    async def _deliver(self, tasks: Sequence[Task]) -> bool:
        """Send some tasks in one request, or in more if it is too large; whether all are settled for good."""
        tasks = [task for task in tasks if task.id in self._held]
        if not tasks:
            return True
        try:
            request = make_request(tasks, self.settings.destination)
            outcome = await self._attempt(request, request_id(tasks), tasks[0].attempts)
        except Rejected as error:
            if len(tasks) > 1:
                return await self._deliver_halves(tasks)
            self._bury(tasks, str(error), "")
            return True
        if outcome is None:
            return False
        if not outcome.is_delivered and outcome.status in _AT_FAULT and len(tasks) > 1:
            return await self._deliver_halves(tasks)
        return self._conclude(tasks, outcome)

    async def _deliver_halves(self, tasks: Sequence[Task]) -> bool:
        middle = len(tasks) // 2
        return await self._deliver(tasks[:middle]) and await self._deliver(tasks[middle:])

    async def _attempt(self, request: Request, id: str, attempts: int, depth: int = 0) -> Outcome | None:
        """Send a request, its halves if it is too large; None when it may not be sent now."""
        prepared = self._destination.prepare(request, id=id)
        permit = await self._permit()
        if permit is None:
            return None
        began = self._loop.time()
        try:
            outcome = await self._destination.send(prepared)
        except BaseException:
            self.admission.give_back(permit)
            raise
        now = self._loop.time()
        self.counts.attempt(outcome, now - began, attempts_before=attempts)
        if not outcome.is_delivered:
            self.last_failure = _reason(outcome)[:_REASON_KEPT]
        self.admission.report(permit, outcome, now)
        self._disable_if_due(now)
        if outcome.error_class is not ErrorClass.TOO_LARGE or self.settings.destination.body != "message":
            return outcome
        halves = await asyncio.to_thread(split, request)
        if isinstance(halves, Unsplittable) or depth >= _SPLITS_MAX:
            why = halves.reason if isinstance(halves, Unsplittable) else "it was halved too often"
            return msgspec.structs.replace(outcome, reason=f"{outcome.reason}, and it can't be split: {why}")
        self.counts.splits += 1
        for number, half in enumerate(halves):
            part = await self._attempt(half, f"{id}-{number}", attempts, depth + 1)
            if part is None or not part.is_delivered:
                return part
        return msgspec.structs.replace(outcome, error_class=None, reason="")

    async def _permit(self) -> Permit | None:
        """A permit; None where it takes long, and the messages had better go back."""
        while True:
            if self._stopping.is_set() or not self._resumed.is_set():
                return None
            found = self._gate.ask()
            if isinstance(found, Permit):
                return found
            if self.admission.breaker.state is not BreakerState.CLOSED:
                return None
            await self._gate.wait(found)

    def _disable_if_due(self, now: float) -> None:
        since, limit = self.admission.failing_since, self.settings.destination.disable_after_seconds
        if limit is None or since is None or now - since < limit or not self._resumed.is_set():
            return
        reason = f"it failed for {now - since:.0f} s"
        self.pause(reason)
        logger.error("destination %s is disabled: %s", self.name, reason)
        self.on_disabled(reason)

    # Settling

    def _conclude(self, tasks: Sequence[Task], outcome: Outcome) -> bool:
        """Settle tasks; whether for good."""
        if outcome.is_delivered:
            done = self._let_go(tasks)
            self.counts.messages += len(done)
            self._writer.done(done, outcome.status or 0)
            return True
        if not outcome.is_retried:
            self._bury(tasks, _reason(outcome), str(outcome.error_class), outcome.status)
            return True
        limit = self.settings.retries_max
        for task in tasks:
            if limit is not None and task.attempts >= limit:
                times = "once" if not task.attempts else f"{task.attempts + 1} times"
                reason = f"failed {times}: {_reason(outcome)}"
                self._bury([task], reason, str(outcome.error_class), outcome.status)
        left = [task for task in tasks if task.id in self._held]
        if left:
            self._retry(left, outcome)
        return not left

    def _retry(self, tasks: Sequence[Task], outcome: Outcome) -> None:
        pause = pause_seconds(
            self._backoff,
            max(task.attempts for task in tasks) + 1,
            self._chance(),
            outcome.retry_after_seconds,
        )
        self.counts.backoff_seconds = pause
        # In an ordered queue the first one holds up the others, which go back along, uncounted.
        is_ordered = tasks[0].lease.partition is not None
        failed = tasks[:1] if is_ordered else tasks
        told = self._let_go(failed)
        self._retry_times.note((task.id for task in told), self._loop.time() + pause)
        self._writer.retry(told, pause, _reason(outcome), outcome.status or 0)
        self._release(tasks)

    def _bury(self, tasks: Iterable[Task], reason: str, kind: str, status: int | None = None) -> None:
        for task in self._let_go(tasks):
            self.counts.buried[kind] += 1
            self._writer.bury(task, reason, status or 0)

    def _release(self, tasks: Iterable[Task]) -> None:
        if left := self._let_go(tasks):
            self._writer.release(left)

    def _let_go(self, tasks: Iterable[Task]) -> list[Task]:
        """Take tasks out of those of which nothing was said: of each, one thing is said."""
        found = [task for task in tasks if task.id in self._held]
        self._held.difference_update(task.id for task in found)
        return found

    def _settled(self, ids: Iterable[int]) -> None:
        for id in ids:
            self._leased.pop(id, None)
        self._gate.wake()

    async def _keep_leases(self) -> None:
        seconds = self.settings.visibility_seconds
        while True:
            await asyncio.sleep(seconds / _LEASE_PART)
            if not self._leased:
                continue
            try:
                await self._store.extend(list(self._leased.values()), seconds)
            except LeaseLost as error:
                self._held.difference_update(error.ids)
                self._settled(error.ids)
                logger.warning("%d leases of %s were lost", len(error.ids), self.settings.queue)
            except ForebayError as error:
                logger.warning("leases of %s can't be extended: %s", self.settings.queue, error)


def _lines(tasks: Sequence[Task], settings: DestinationSettings) -> list[list[Task]]:
    """Tasks that are sent one request after the other: those of a partition, in an ordered queue."""
    lines: dict[str, list[Task]] = {}
    free: list[Task] = []
    for task in tasks:
        if task.lease.partition is None:
            free.append(task)
        else:
            lines.setdefault(task.lease.partition, []).append(task)
    return [*lines.values(), *batches_of(free, settings)]


def _reason(outcome: Outcome) -> str:
    """Why it failed, with the start of the answer."""
    answer = outcome.answer.decode("utf-8", "replace").strip()
    return f"{outcome.reason}: {answer}" if answer else outcome.reason


def _admission(settings: QueueDeliverySettings, changed: Callable[[], None], name: str) -> Admission:
    return Admission(
        in_flight_max=settings.destination.concurrency,
        breaker=BreakerRule(threshold=settings.breaker_threshold, reset_seconds=settings.breaker_seconds),
        ramp=RampRule(ramp_seconds=settings.ramp_seconds),
        rate=settings.destination.rate_rule,
        changed=changed,
        name=name,
    )
