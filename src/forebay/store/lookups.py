"""Queues as the log has them: looked up where they are unknown, or were last read more than a moment ago.

Another server on the same log may have made, changed or deleted a queue at any time. Invariants: nobody is
told that a queue isn't there unless the log said so after he asked; those who ask for one name at the same
time share a reading, so that a flood of requests costs one reading after the other, not one for each.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from math import inf
from typing import Final

from forebay.log.seam import Log
from forebay.log.values import Queue

RECENT_SECONDS: Final = 0.2
"""So old what is known of a queue may be when tasks are taken from it."""
_NAMES_MAX: Final = 100_000


class QueueLookups:
    """See the module. `elapsed` is a clock in seconds that never jumps."""

    def __init__(self, log: Log, elapsed: Callable[[], float]) -> None:
        self._log = log
        self._elapsed = elapsed
        self._read_at: OrderedDict[str, float] = OrderedDict()
        self._running: dict[str, asyncio.Task[Queue]] = {}
        self._next: dict[str, asyncio.Task[Queue]] = {}

    def is_recent(self, name: str) -> bool:
        """Whether the queue was read, or changed here, a moment ago."""
        return self._elapsed() - self._read_at.get(name, -inf) < RECENT_SECONDS

    def note(self, name: str) -> None:
        """The queue is known as it is now: it was made or changed here."""
        self._read_at[name] = self._elapsed()
        self._read_at.move_to_end(name)
        if len(self._read_at) > _NAMES_MAX:
            self._read_at.popitem(last=False)

    def forget(self, name: str) -> None:
        """What is known of the queue isn't recent any more."""
        self._read_at.pop(name, None)

    async def read(self, name: str) -> tuple[Queue, bool]:
        """The queue as the log has it; whether nobody changed it here since, so that it is the newest."""
        began = self._elapsed()
        queue = await self._shared(name)
        is_newest = self._read_at.get(name, -inf) <= began
        if is_newest:
            self.note(name)
        return queue, is_newest

    async def _shared(self, name: str) -> Queue:
        """A reading that begins after the call: not the one that is under way, but the one after it."""
        reading = self._next.get(name)
        if reading is None:
            reading = asyncio.create_task(self._look(name, self._running.get(name)))
            reading.add_done_callback(_looked_at)
            self._next[name] = reading
        return await asyncio.shield(reading)

    async def _look(self, name: str, before: asyncio.Task[Queue] | None) -> Queue:
        if before is not None:
            await asyncio.wait([before])
        mine = self._running[name] = self._next.pop(name)
        try:
            return await self._log.queue(name)
        finally:
            if self._running.get(name) is mine:
                del self._running[name]


def _looked_at(reading: asyncio.Task[Queue]) -> None:
    """Nobody may be left to hear that it failed; those who are hear it from the task."""
    if not reading.cancelled():
        reading.exception()
