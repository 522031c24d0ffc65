"""Appending to the spool from many tasks at once, which share one sync.

While a group is being synced the next one gathers; a lone append is written at once. The disk is waited for
on a thread of its own.

Invariants: an append that returns is safe; appends are written in the order in which they were called; what
waits is bounded; a file is finished when it is full, when it is old, and by `flush`.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from forebay.model import Unavailable
from forebay.spool.appending import Appender, Write
from forebay.spool.lines import Spooled
from forebay.spool.names import FileName
from forebay.spool.settings import SpoolSettings

T = TypeVar("T")
_Waiting = tuple[Write | None, asyncio.Future[None]]


class Writer:
    """The async face of an `Appender`, for one event loop."""

    def __init__(self, appender: Appender, settings: SpoolSettings) -> None:
        self._appender = appender
        self._settings = settings
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="forebay-spool")
        self._waiting: deque[_Waiting] = deque()
        self._waiting_bytes = 0
        self._flusher: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._timed: FileName | None = None
        self._closed = False
        self.newest: str | None = None
        """The file that was written to last."""

    async def append(self, entries: Sequence[Spooled]) -> None:
        """Return when all is safe; each block is kept whole or not at all.

        Raises `Full` where there is no space and `Unavailable` where the disk fails: then nothing was
        acknowledged, and the same append may be tried again. Whoever is cancelled doesn't know.
        """
        if not entries:
            return
        write = Write.of(entries)
        if self._waiting_bytes + len(write.data) > self._settings.waiting_bytes_max and self._waiting_bytes:
            text = f"{self._waiting_bytes} bytes are waiting to be spooled already"
            raise Unavailable(text, hint="slow down", retry_after_seconds=0.1)
        await self._submit(write)

    async def flush(self) -> None:
        """Finish the file once all that was called before is written, so that it can be read."""
        await self._submit(None)

    async def close(self) -> None:
        """Write what waits, finish the file, and take nothing more; twice is fine."""
        if self._closed:
            return
        self._closed = True
        try:
            await self._wait_in_line(None)
        finally:
            if self._timer is not None:
                self._timer.cancel()
            self._executor.shutdown(wait=False)

    async def _submit(self, write: Write | None) -> None:
        if self._closed:
            raise Unavailable("the spool is closed", hint="open it again")
        await self._wait_in_line(write)

    def _wait_in_line(self, write: Write | None) -> asyncio.Future[None]:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((write, future))
        self._waiting_bytes += 0 if write is None else len(write.data)
        self._start_flusher()
        return future

    def _start_flusher(self) -> None:
        if self._flusher is None:
            self._flusher = asyncio.create_task(self._flush_waiting(), name="forebay-spool")

    async def _flush_waiting(self) -> None:
        try:
            while self._waiting:
                if self._waiting[0][0] is None:
                    await self._finish()
                else:
                    await self._write(self._next_group())
                self._watch_age()
        finally:
            self._flusher = None

    async def _finish(self) -> None:
        _, future = self._waiting.popleft()
        try:
            await self._call(self._appender.finish)
        except Exception as error:  # noqa: BLE001 - handed to the caller, whose flush it concerns
            _answer(future, error)
        else:
            _answer(future, None)

    def _next_group(self) -> list[tuple[Write, asyncio.Future[None]]]:
        group: list[tuple[Write, asyncio.Future[None]]] = []
        size = events = 0
        while self._waiting:
            write, future = self._waiting[0]
            if write is None:
                break
            size += len(write.data)
            events += write.events
            much = size > self._settings.flush_bytes_max or events > self._settings.events_per_file
            if group and much:
                break
            self._waiting.popleft()
            self._waiting_bytes -= len(write.data)
            if not future.cancelled():
                group.append((write, future))
        return group

    async def _write(self, group: list[tuple[Write, asyncio.Future[None]]]) -> None:
        if not group:
            return
        writes = [write for write, _ in group]
        try:
            results = await self._call(lambda: self._appender.write(writes))
        except Exception as error:  # noqa: BLE001 - handed to the callers, whose appends it concerns
            results = [error] * len(group)
        if (current := self._appender.current) is not None:
            self.newest = str(current)
        for (_, future), result in zip(group, results, strict=True):
            _answer(future, result)

    def _watch_age(self) -> None:
        """See to it that a new file doesn't stay open for too long."""
        current = self._appender.current
        if current == self._timed:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timed, self._timer = current, None
        if current is not None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(self._settings.file_seconds_max, self._finish_aged)

    def _finish_aged(self) -> None:
        """Finish the file before anything else is written."""
        self._waiting.appendleft((None, asyncio.get_running_loop().create_future()))
        self._start_flusher()

    async def _call(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._executor, work)


def _answer(future: asyncio.Future[None], error: Exception | None) -> None:
    """Tell a caller who may have been cancelled."""
    if future.done():
        return
    if error is None:
        future.set_result(None)
    else:
        future.set_exception(error)
