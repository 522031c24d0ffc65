"""The short way: a function that takes a task, or a batch, and says what became of it.

::

    @handler("emails")
    async def send(task: EmailsTask) -> Outcome | None: ...

Invariants: one task that fails doesn't concern the others of its batch; a function that blocks runs in a
thread; what became of tasks is told in one write at the end, and while it takes long now and then. A worker
that stops lets the task end that is at work; the others of its batch go back, uncounted. In an ordered queue
a task that comes back is the last of its partition in its batch; that is told at once.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Sequence
from random import random
from time import monotonic
from typing import Any, Final, TypeAlias

import msgspec

from forebay.model import Misconfigured, Rejected, SystemClock, to_datetime
from forebay.store.values import Task
from forebay.work.batch import Batch
from forebay.work.binding import Binding, BindingSettings
from forebay.work.context import Context
from forebay.work.outcomes import Outcomes, Rule
from forebay.work.reading import Shape, generated, reader, shape_of
from forebay.work.storage import Storage
from forebay.work.values import HandlerStats, Outcome, RetryInfo

__all__ = ["Item", "handler"]

TELL_SECONDS: Final = 0.5
"""What is known is told at least so often, between two tasks."""

Item: TypeAlias = tuple[Task, Any]
"""A task, and what its function takes for it."""
_Function: TypeAlias = Callable[..., Any]


def handler(
    queue: str,
    *,
    batch: bool = False,
    number: int | None = None,
    settings: BindingSettings | None = None,
    **options: Any,
) -> Callable[[_Function], Binding[Item]]:
    """Make a function the handler of a queue; what it takes is read off its annotation: see `reading`.

    It returns `Done`, `RetryAfter`, `Bury` or nothing, for a batch also a sequence with one of them for each
    task; what it raises sends the task back after a pause, and a batch as a whole. Its first argument may be
    a `Context`. `options` are those of `BindingSettings`; for a generated task they come before those of its
    contract, which `settings` replaces as a whole.
    """
    if not isinstance(queue, str):
        raise Misconfigured("a handler names no queue", hint='write @handler("queue")')

    def bind(function: _Function) -> Binding[Item]:
        shape = shape_of(function, batch=batch)
        made = generated(shape.kind, queue)
        read = reader(shape.kind) if made is None else made.decode
        chosen = _settings(settings, made, options)
        calling = _Calling(function, shape, chosen)
        return Binding(
            queue=queue,
            number=number if made is None else made.number,
            decode=lambda task: (task, read(task)),
            handle=calling.batch if batch else calling.singly,
            task_id=lambda item: item[0].id,
            settings=chosen,
        )

    return bind


def _settings(
    given: BindingSettings | None, made: Binding[Any] | None, options: dict[str, Any]
) -> BindingSettings:
    if given is not None and options:
        raise Misconfigured("settings are given twice", hint="give settings, or single ones by name")
    if given is not None:
        return given
    before = BindingSettings() if made is None else made.settings
    try:
        return msgspec.structs.replace(before, **options)
    except TypeError as error:
        known = ", ".join(BindingSettings.__struct_fields__)
        raise Misconfigured(f"a handler can't be told this: {error}", hint=f"it knows {known}") from None


class _Calling:
    """One function, called for the tasks of a queue."""

    def __init__(self, function: _Function, shape: Shape, settings: BindingSettings) -> None:
        self._function = function
        self._is_async = inspect.iscoroutinefunction(function)
        self._shape = shape
        self._rule = Rule(settings, SystemClock().now, random)

    async def singly(self, context: Context, storage: Storage, items: Sequence[Item]) -> HandlerStats:
        """Call it for each task, one after the other."""
        telling = _Telling(storage, self._rule)
        try:
            await (self._here if self._is_async else self._in_thread)(context, telling, items)
        except BaseException:
            await telling.finish()  # what was done until now is done
            raise
        await telling.finish()
        return telling.stats

    async def batch(self, context: Context, storage: Storage, items: Sequence[Item]) -> HandlerStats:
        """Call it for all tasks together."""
        telling = _Telling(storage, self._rule)
        values = [value for _, value in items]
        arguments = [context, values] if self._shape.takes_context else [values]
        if self._is_async:
            said = await self._function(*arguments)
        else:
            said = await context.in_thread(self._function, *arguments)
        outcomes = _of_each(said, len(items))
        for (task, _), outcome in zip(items, outcomes, strict=True):
            telling.add(task, outcome)
        await telling.finish()
        return telling.stats

    async def _here(self, context: Context, telling: _Telling, items: Sequence[Item]) -> None:
        """Call it in the loop."""
        for task, value in items:
            if context.stopping.is_set() or context.is_cancelled:
                return
            if task.id not in context.lost and not telling.is_held_up(task):
                telling.add(task, await self._call(context, value))
                await telling.now_and_then()

    async def _call(self, context: Context, value: Any) -> object:
        """What the function says, or raises: that is about its task alone, also where it would end us all."""
        try:
            said: Awaitable[Outcome | None] = self._function(*self._arguments(context, value))
            return await said
        except GeneratorExit:  # the loop is gone, and so are we
            raise
        except BaseException as error:
            if isinstance(error, asyncio.CancelledError) and _is_cancelled():
                raise
            return error

    async def _in_thread(self, context: Context, telling: _Telling, items: Sequence[Item]) -> None:
        """Call it in one thread for all tasks; what is known is told from here meanwhile."""
        loop = asyncio.get_running_loop()
        known: asyncio.Queue[tuple[Task, object] | None] = asyncio.Queue()

        def work() -> None:
            back: set[str | None] = set()
            for task, value in items:
                if context.stopping.is_set() or context.is_cancelled:
                    return
                if task.id not in context.lost and task.lease.partition not in back:
                    outcome = self._call_here(context, value)
                    loop.call_soon_threadsafe(known.put_nowait, (task, outcome))
                    if task.lease.partition is not None and self._rule.sends_back(task, outcome):
                        back.add(task.lease.partition)

        working = loop.create_task(context.in_thread(work))
        working.add_done_callback(lambda _: known.put_nowait(None))
        try:
            while (found := await known.get()) is not None:
                telling.add(*found)
                await telling.now_and_then()
            await working
        finally:
            # A thread can't be interrupted: what it has done counts, also when nobody waits for it. It may
            # take for ever, so that what is known by now is told before.
            working.cancel()
            _add_all(telling, known)
            try:
                await telling.finish()
            finally:
                await asyncio.wait([working])
                _add_all(telling, known)

    def _call_here(self, context: Context, value: Any) -> object:
        try:
            return self._function(*self._arguments(context, value))
        except BaseException as error:  # noqa: BLE001 - whatever it is, it is about this task alone
            return error

    def _arguments(self, context: Context, value: Any) -> tuple[Any, ...]:
        return (context, value) if self._shape.takes_context else (value,)


def _add_all(telling: _Telling, known: asyncio.Queue[tuple[Task, object] | None]) -> None:
    while not known.empty():
        if (found := known.get_nowait()) is not None:
            telling.add(*found)


def _is_cancelled() -> bool:
    """Whether the worker has cancelled the handler; if not, it is the function that says so."""
    current = asyncio.current_task()
    return current is not None and current.cancelling() > 0


class _Telling:
    """Gathers what became of tasks, and tells the storage."""

    def __init__(self, storage: Storage, rule: Rule) -> None:
        self.stats = HandlerStats()
        self._storage = storage
        self._rule = rule
        self._outcomes = Outcomes()
        self._held_up: set[str] = set()
        """Partitions of an ordered queue of which something comes back."""
        self._is_urgent = False
        self._began = self._told = monotonic()

    def is_held_up(self, task: Task) -> bool:
        """Whether something before a task comes back."""
        return task.lease.partition in self._held_up

    def add(self, task: Task, outcome: object) -> None:
        """Add what a function said of a task."""
        try:
            self._rule.apply(self._outcomes, task, outcome)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is about this task alone
            outcome = error
            self._rule.fail(self._outcomes, [task], error)
        if isinstance(outcome, BaseException):
            self.stats.errors += 1
            self.stats.last_error = outcome
        if task.lease.partition is not None and self._rule.sends_back(task, outcome):
            self._held_up.add(task.lease.partition)
            self._is_urgent = True  # others may go on with the partition

    async def now_and_then(self) -> None:
        """Tell what is known, unless that was done a moment ago, and can wait."""
        if self._is_urgent or monotonic() - self._told > TELL_SECONDS:
            await self.finish()

    async def finish(self) -> None:
        """Tell all that is known."""
        outcomes, self._outcomes, self._is_urgent = self._outcomes, Outcomes(), False
        if isinstance(self._storage, Batch):
            await self._storage.settle(outcomes)
        else:
            await _tell(self._storage, outcomes)
        self.stats.processed += len(outcomes.done)
        self.stats.retried += len(outcomes.retried)
        self._told = monotonic()
        self.stats.duration = self._told - self._began


async def _tell(storage: Storage, outcomes: Outcomes) -> None:
    """Tell a storage that isn't a worker's: one of a test, say."""
    if outcomes.done:
        await storage.done_task(outcomes.done)
    if outcomes.retried:
        await storage.retry_task(
            [RetryInfo(id, to_datetime(at), said) for id, (at, said) in outcomes.retried.items()]
        )
    for reason, ids in outcomes.buried.items():
        await storage.bury_task(ids, reason)


def _of_each(said: object, count: int) -> Sequence[object]:
    """What a function said of each task of a batch."""
    if not isinstance(said, Sequence):
        return [said] * count
    if len(said) != count:
        text = f"a handler returned {len(said)} outcomes for {count} tasks"
        raise Rejected(text, hint="return one for each, in their order, or one for all")
    return said
