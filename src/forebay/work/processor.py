"""JobProcessor: takes a batch, has it handled, says what became of it, and goes on.

Invariants: nothing that a handler does ends its processor. When a handler has ended, nothing of its batch is
left in hand: what it has not settled comes back, after a pause and an attempt more if it failed or forgot, at
once and uncounted if the worker stops. A task whose handler hasn't ended is never given back: where it won't
end when its time is over, the lease ends by itself.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from random import random
from time import monotonic
from typing import Any, Final

from forebay.contract import UnknownFormat
from forebay.model import ForebayError
from forebay.store.values import Task
from forebay.work.batch import Batch
from forebay.work.calls import Call, Calls
from forebay.work.context import Context
from forebay.work.keeping import Keeper
from forebay.work.outcomes import SECOND, Outcomes, Rule, named, text_of
from forebay.work.served import Served
from forebay.work.settings import BindingSettings
from forebay.work.taking import Taken
from forebay.work.values import HandlerStats

__all__ = ["HandlerExitError", "HandlerOverdueError", "JobProcessor"]

logger: Final = logging.getLogger("forebay.work")
_PAUSE_SECONDS: Final = 0.1
_PAUSE_SECONDS_MAX: Final = 5.0


class HandlerExitError(Exception):
    """A handler wanted to end the process."""


class HandlerOverdueError(Exception):
    """A handler took longer than it may."""


@dataclass(frozen=True, slots=True)
class _Job:
    """One batch of one queue, for one call of its handler."""

    served: Served
    context: Context
    batch: Batch
    rule: Rule
    keeper: Keeper

    @property
    def settings(self) -> BindingSettings:
        """As they were when it began."""
        return self.rule.settings


class JobProcessor:
    """See the module."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls
        self._taker = calls.taker
        self.is_surplus = False
        """Whether it is to end after its batch."""

    async def run(self) -> None:
        """Work until the worker stops."""
        failures = 0
        while not (self._calls.stopping.is_set() or self.is_surplus):
            try:
                taken = await self._taker.take()
            except ForebayError as error:
                self._calls.note(error)
                await self._taker.pause(min(_PAUSE_SECONDS_MAX, _PAUSE_SECONDS * 2.0 ** min(failures, 10)))
                failures += 1
                continue
            failures = 0
            self._calls.note(None)
            if taken is not None:
                await self._serve_safely(taken)

    async def _serve_safely(self, taken: Taken) -> None:
        try:
            await self._serve(taken)
        except Exception:
            logger.exception("a batch of %s is left until its leases end", taken.served.binding.queue)

    async def _serve(self, taken: Taken) -> None:
        """One batch."""
        served, count = taken.served, len(taken.tasks)
        context = Context(
            served.binding.queue,
            self._calls.name,
            stopping=self._calls.stopping,
            deadline=taken.began + taken.seconds,
            threads=self._calls.threads,
            attempts=max(task.attempts for task in taken.tasks),
        )
        settings = served.settings
        rule = Rule(settings, self._calls.clock.now, random)
        batch = Batch(self._calls.store, context, taken.tasks, rule)
        keeper = Keeper(
            self._calls.store, batch, context, settings.visibility_seconds, settings.handle_seconds_max
        )
        served.add(in_progress=count)
        keeper.start(taken.seconds)
        straggler: asyncio.Task[Any] | None = None
        try:
            straggler = await self._work(_Job(served, context, batch, rule, keeper), taken.tasks)
        finally:
            await keeper.close()
            served.add(in_progress=-count)
            served.cycle(monotonic() - taken.began, count)
            if straggler is None:
                self._taker.end(taken.turn, is_overdue=context.is_overdue)
            else:
                self._calls.stragglers.add(served, taken.turn, straggler)

    async def _work(self, job: _Job, tasks: Sequence[Task]) -> asyncio.Task[Any] | None:
        """Have them handled, and say what became of them; the call of a handler that would not end."""
        served, context, batch = job.served, job.context, job.batch
        straggler: asyncio.Task[Any] | None = None
        if self._calls.stopping.is_set():
            outcomes, typed = Outcomes(released=[task.id for task in tasks]), list[Any]()
        else:
            outcomes, typed = self._decoded(job, tasks)
        if typed:
            work = asyncio.get_running_loop().create_task(
                _guarded(served.binding.handle, context, batch, typed)
            )
            has_ended = await self._run(job, work)
            batch.close()
            if has_ended:
                self._judge(job, work, outcomes)
            else:
                straggler = work
                context.leave()
                self._count_failure(job, len(batch.left), retried=batch.retried)
        try:
            await batch.settle(outcomes, is_last=True)
        except ForebayError as error:
            text = "%d tasks of %s come back when their leases end, since the store isn't told: %s"
            logger.warning(text, len(batch), context.queue, error)
        served.add(lost=batch.lost, buried=batch.buried)
        return straggler

    async def _run(self, job: _Job, work: asyncio.Task[Any]) -> bool:
        """Wait for a handler's end, or until its time is over; whether it has ended."""
        call = Call(job.context, work, self._calls.settings.hurry_seconds)

        def overdue() -> None:
            if job.context.is_cancelled:  # the worker stops
                return
            job.served.add(overdue=1)
            text = (
                "the handler of %s took longer than %g s, its handle_seconds_max, and is cancelled: "
                "%d tasks that it has not settled have failed; find out what it waits for, "
                "or raise handle_seconds_max if it may take so long"
            )
            logger.warning(text, job.context.queue, job.settings.handle_seconds_max, len(job.batch.left))
            call.overdue()

        job.keeper.on_overdue = overdue
        try:
            return await self._calls.run(call)
        finally:
            job.keeper.on_overdue = None

    def _decoded(self, job: _Job, tasks: Sequence[Task]) -> tuple[Outcomes, list[Any]]:
        """Tasks as their handler knows them, and what becomes of those that it isn't given."""
        binding, rule, outcomes, typed = job.served.binding, job.rule, Outcomes(), list[Any]()
        decode = binding.decode
        if not any(map(rule.is_spent, tasks)):
            with suppress(Exception):  # which of them it is about is found out below
                return outcomes, [decode(task) for task in tasks]
        parked: set[str | None] = set()
        for task in tasks:
            if task.lease.partition is not None and task.lease.partition in parked:
                outcomes.released.append(task.id)  # in an ordered queue it waits for what is before it
                continue
            try:
                value = decode(task)
            except UnknownFormat as error:
                self._park(job.served, outcomes, task, str(error))
                parked.add(task.lease.partition)
            except Exception as error:  # noqa: BLE001 - whatever it is, it is about this task alone
                reason = text_of(error) or type(error).__name__
                outcomes.bury(task.id, f"can't be decoded: {reason}")
                logger.warning("task %d of %s can't be decoded: %s", task.id, binding.queue, reason)
            else:
                if rule.is_spent(task):
                    rule.give_up(outcomes, task)
                    text = "task %d of %s is given up: it came back %d times"
                    logger.warning(text, task.id, binding.queue, task.attempts)
                else:
                    typed.append(value)
        return outcomes, typed

    def _park(self, served: Served, outcomes: Outcomes, task: Task, reason: str) -> None:
        seconds = self._calls.settings.parked_seconds
        outcomes.parked[task.id] = self._calls.clock.now() + round(seconds * SECOND)
        served.add(parked=1)
        text = "task %d of %s is left for a worker that knows it, for %g s: %s"
        logger.warning(text, task.id, served.binding.queue, seconds, reason)

    def _judge(self, job: _Job, call: asyncio.Task[HandlerStats | None], outcomes: Outcomes) -> None:
        """What becomes of what a handler left, and what is counted of what it did."""
        served, context, batch, rule = job.served, job.context, job.batch, job.rule
        strange = set(outcomes.ids())
        left = [task for task in batch.left if task.id not in strange]
        ids = [task.id for task in left]
        if context.is_overdue:
            text = f"it took longer than {job.settings.handle_seconds_max:g} s"
            rule.fail(outcomes, left, HandlerOverdueError(text))
            self._count_failure(job, len(left), retried=batch.retried + len(outcomes.retried))
            if not call.cancelled() and call.exception() is not None:
                text = "the handler of %s failed when it was cancelled"
                logger.error(text, context.queue, exc_info=call.exception())
        elif call.cancelled() and context.is_cancelled:
            outcomes.released += ids
            served.add(processed=batch.done, retried=batch.retried)
        elif call.cancelled() or call.exception() is not None:
            error = asyncio.CancelledError() if call.cancelled() else call.exception()
            rule.fail(outcomes, left, error)
            self._count_failure(job, len(left), retried=batch.retried + len(outcomes.retried))
            logger.error("the handler of %s failed", context.queue, exc_info=error)
        else:
            self._take_stats(served, batch, call.result())
            if ids and self._calls.stopping.is_set():
                outcomes.released += ids
            elif ids:
                rule.fail(outcomes, left, None)
                served.add(retried=len(outcomes.retried))
                logger.warning("the handler of %s said nothing of %d tasks", context.queue, len(ids))

    def _count_failure(self, job: _Job, left: int, *, retried: int) -> None:
        job.served.add(handler_errors=1, processed=job.batch.done, retried=retried, errors=left)

    def _take_stats(self, served: Served, batch: Batch, said: HandlerStats | None) -> None:
        stats = said or HandlerStats(processed=batch.done, retried=batch.retried)
        processed = max(0, stats.processed - batch.lost)
        retried = min(stats.retried, batch.retried)  # the others are lost, or were given up
        served.add(processed=processed, errors=stats.errors, retried=retried)
        if stats.last_error is not None:
            text = "the handler of %s failed on %d tasks, the last time with: %s"
            logger.warning(text, served.binding.queue, stats.errors, named(stats.last_error))


async def _guarded(
    handle: Callable[..., Any], context: Context, batch: Batch, typed: Sequence[Any]
) -> HandlerStats | None:
    """Call a handler; what it returns is what it should, and what it raises ends nothing but itself."""
    try:
        stats = await handle(context, batch, typed)
    except (SystemExit, KeyboardInterrupt) as error:  # asyncio would end the loop
        raise HandlerExitError(f"the handler raised {error!r}") from error
    if stats is None:
        return None
    if not isinstance(stats, HandlerStats):
        raise TypeError(f"the handler returned {type(stats).__name__}, not HandlerStats")
    for count in (stats.processed, stats.errors, stats.retried):
        if type(count) is not int or count < 0:
            raise TypeError(f"the handler counted {count!r} tasks")
    return stats
