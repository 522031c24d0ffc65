"""What code stands on that was generated from a contract: typed bindings, and queues to put tasks in.

Invariants: a task that is put has the headers by which any worker can tell its codec and its version; nothing
is put unless all of it is what the contract says.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from operator import attrgetter
from time import monotonic
from typing import Any, Final, Protocol, TypeVar

from forebay.contract import Format, WorkSettings
from forebay.log.values import Queue
from forebay.model import Forbidden, Message, Misconfigured, Unavailable, UnknownQueue, to_datetime
from forebay.store.seam import Store
from forebay.store.values import Task
from forebay.work.binding import Binding
from forebay.work.context import Context
from forebay.work.settings import Backoff, BindingSettings
from forebay.work.storage import Storage
from forebay.work.values import HandlerStats

__all__ = ["Putter", "bind", "binding_settings", "previous_start"]


_PREPARE_SECONDS: Final = 2.0
"""How long the first task waits for its queue to be looked at."""
_AGAIN_SECONDS: Final = 30.0
"""When it is looked at again, where that was in vain."""


class HasTaskId(Protocol):
    """Any generated task."""

    @property
    def task_id(self) -> int:
        """The id of the message."""
        ...


T = TypeVar("T", bound=HasTaskId)


def bind(
    format: Format,  # noqa: A002 - the word of the contract
    decode: Callable[[Task], T],
    handle: Callable[[Context, Storage, Sequence[T]], Awaitable[HandlerStats]],
    settings: BindingSettings | None = None,
) -> Binding[T]:
    """A binding whose queue, number and settings are those of the contract; `settings` come before them."""
    queue = format.queue
    return Binding(
        queue=queue.name,
        number=queue.id,
        decode=decode,
        handle=handle,
        task_id=attrgetter("task_id"),
        settings=binding_settings(queue.settings) if settings is None else settings,
    )


def binding_settings(said: WorkSettings) -> BindingSettings:
    """What a contract says of a queue, and the defaults for what it doesn't."""
    names = (
        "batch_size", "max_processors", "visibility_seconds", "handle_seconds_max", "ordered", "retries_max",
    )  # fmt: skip
    pauses = {
        "initial": said.backoff.initial_seconds,
        "factor": said.backoff.factor,
        "max": said.backoff.max_seconds,
        "jitter": said.backoff.jitter,
    }
    backoff = Backoff(**{name: value for name, value in pauses.items() if value is not None})
    given = {name: value for name in names if (value := getattr(said, name)) is not None}
    return BindingSettings(**given, backoff=backoff)


def previous_start(task: Task) -> datetime | None:
    """When a task became available the time before; None the first time."""
    return None if task.prev_start_time is None else to_datetime(task.prev_start_time)


class Putter:
    """Puts tasks in one queue, which is made with the first of them if it isn't there."""

    def __init__(self, store: Store, format: Format) -> None:  # noqa: A002 - the word of the contract
        self._store = store
        self._format = format
        self._headers = dict(format.headers)
        self._is_known = False
        self._again_at = 0.0
        self._preparing = asyncio.Lock()

    async def create(self) -> Queue:
        """Make the queue, unless it is there; Misconfigured if it isn't the one of the contract."""
        ours = self._format.queue
        try:
            found = await self._store.queue(ours.name)
        except UnknownQueue:
            settings: dict[str, Any] = {"ordered": ours.settings.ordered}
            for name in ("visibility_seconds", "retries_max"):
                if (value := getattr(ours.settings, name)) is not None:
                    settings[name] = value
            found = await self._store.create_queue(ours.name, settings, number=ours.id)
        if found.number != ours.id:
            text = f"queue {ours.name!r} is number {found.number} in the store, and {ours.id} in the contract"
            raise Misconfigured(text, hint="correct the contract, or use another queue")
        if ours.settings.ordered and not found.settings.ordered:
            text = f"queue {ours.name!r} is to be ordered, and the one in the store isn't"
            raise Misconfigured(text, hint="that is fixed when a queue is made: use another queue")
        return found

    async def _prepare(self) -> None:
        """Have the queue made before its first task: a server would make it by itself, with another number.

        What can be put while a log is away, or by a key that may only push, is put all the same.
        """
        async with self._preparing:
            if self._is_known or monotonic() < self._again_at:
                return
            try:
                async with asyncio.timeout(_PREPARE_SECONDS):
                    await self.create()
                self._is_known = True
            except (Unavailable, Forbidden, TimeoutError):
                self._again_at = monotonic() + _AGAIN_SECONDS

    async def put(
        self,
        values: Sequence[Any],
        *,
        delay: float | timedelta | None = None,
        start_time: int | datetime | None = None,
        partition: str = "",
        headers: Mapping[str, str] | None = None,
        transaction_id: str | None = None,
    ) -> int:
        """Put a task whose fields have these values, in their order; its id, or 0 while it is in a spool.

        One whose transaction id is known already isn't put again: it is the id of the first.
        """
        data = self._format.encode(values)
        task: bytes | Message = data
        if transaction_id is not None:
            task = Message(data, partition, transaction_id, self._with(headers))
        ids = await self._put([task], delay, start_time, partition, headers)
        return ids[0] if ids else 0

    async def put_many(
        self,
        tasks: Iterable[Any],
        *,
        delay: float | timedelta | None = None,
        start_time: int | datetime | None = None,
        partition: str = "",
        headers: Mapping[str, str] | None = None,
    ) -> list[int]:
        """Put tasks, or their fields by name, all or none; their ids, in order, or none while in a spool."""
        data = [self._format.serialize(task) for task in tasks]
        return await self._put(data, delay, start_time, partition, headers) if data else []

    async def _put(
        self,
        tasks: Sequence[bytes | Message],
        delay: float | timedelta | None,
        start_time: int | datetime | None,
        partition: str,
        headers: Mapping[str, str] | None,
    ) -> list[int]:
        async def put() -> list[int]:
            return await self._store.put_task(
                self._format.queue.name,
                *tasks,
                partition=partition,
                headers=self._with(headers),
                start_time=start_time,
                delay=delay,
            )

        if not self._is_known:
            await self._prepare()
        try:
            return await put()
        except UnknownQueue:  # it was deleted meanwhile
            await self.create()
            return await put()

    def _with(self, headers: Mapping[str, str] | None) -> dict[str, str]:
        return {**headers, **self._headers} if headers else self._headers
