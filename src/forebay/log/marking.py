"""Marks on claims: concurrent ones share a transaction, without waiting for company.

While one batch is written the next one fills. What a batch says of one claim becomes a single mark, in
the order in which it was said, so that a log can note a batch all at once. Each caller gets its own answer.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Final

from forebay.log.claiming import check_mark
from forebay.log.values import Mark
from forebay.model import Unavailable, bitmap

BATCH_MARKS_MAX: Final = 5_000
"""How many marks callers may bring before the rest of them wait for the next batch."""

Write = Callable[[Sequence[Mark]], Awaitable[Collection[int]]]
"""Note marks, no two of them alike in group, token and count, in one transaction.

Returns the indexes of those whose claim is not held.
"""
_Waiting = tuple[Sequence[Mark], asyncio.Future[list[int]]]
_Key = tuple[int, int, int]


class Marking:
    """Collects marks and hands them to `write`, one batch at a time."""

    def __init__(self, write: Write) -> None:
        self._write = write
        self._waiting: deque[_Waiting] = deque()
        self._flusher: asyncio.Task[None] | None = None

    async def mark(self, marks: Sequence[Mark]) -> list[int]:
        """Note marks; the indexes of those whose claim is not held. Raises what the log raises."""
        for mark in marks:
            check_mark(mark)
        if not marks:
            return []
        future: asyncio.Future[list[int]] = asyncio.get_running_loop().create_future()
        self._waiting.append((marks, future))
        if self._flusher is None:
            self._flusher = asyncio.create_task(self._flush_waiting(), name="forebay-marks")
        return await future

    async def close(self) -> None:
        """Finish what is waiting."""
        while self._flusher is not None:
            await asyncio.wait([self._flusher])

    async def _flush_waiting(self) -> None:
        try:
            while self._waiting:
                await self._flush(self._next_batch())
        finally:
            # Here, not in a callback: a mark that comes between the two would find no flusher.
            self._flusher = None

    def _next_batch(self) -> list[_Waiting]:
        batch: list[_Waiting] = []
        count = 0
        while self._waiting and count < BATCH_MARKS_MAX:
            marks, future = self._waiting.popleft()
            if not future.cancelled():
                batch.append((marks, future))
                count += len(marks)
        return batch

    async def _flush(self, batch: list[_Waiting]) -> None:
        if not batch:
            return
        joined: dict[_Key, Mark] = {}
        for marks, _ in batch:
            for mark in marks:
                before = joined.get(key := _key(mark))
                joined[key] = mark if before is None else join(before, mark)
        try:
            late = await self._write_twice(list(joined.values()))
        except Exception as error:  # noqa: BLE001 - handed to the callers, whose marks it concerns
            if len(batch) == 1 or isinstance(error, Unavailable):
                _fail(batch, error)
            else:
                for single in batch:
                    await self._flush([single])
        else:
            keys = list(joined)
            _answer(batch, {keys[i] for i in late})

    async def _write_twice(self, marks: Sequence[Mark]) -> Collection[int]:
        """Write once more if a connection may have been cut: what is noted twice is noted once."""
        try:
            return await self._write(marks)
        except Unavailable:
            return await self._write(marks)


def join(first: Mark, second: Mark) -> Mark:
    """The mark that changes a claim like `first` and then `second`."""
    return Mark(
        first.group,
        first.token,
        first.count,
        bitmap.union(bitmap.minus(first.handed, first.returned), second.handed),
        bitmap.union(bitmap.minus(first.returned, second.handed), second.returned),
    )


def _answer(batch: list[_Waiting], unheld: set[_Key]) -> None:
    for marks, future in batch:
        if not future.done():
            late = [i for i, mark in enumerate(marks) if _key(mark) in unheld] if unheld else []
            future.set_result(late)


def _fail(batch: list[_Waiting], error: Exception) -> None:
    for _, future in batch:
        if not future.done():
            future.set_exception(error)


def _key(mark: Mark) -> _Key:
    return mark.group, mark.token, mark.count
