"""How many messages a queue may hold: `maxSize`.

What waits is counted by the log's books once in a while, and by what is pushed here in between; so a queue
holds at most `maxSize` and what other servers push within that while. Invariant: what is under way counts
from before it is written until the books have it, however many push at the same time.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from time import monotonic
from typing import Final

from forebay.log.values import GroupStats, Queue, Stats
from forebay.model import Full

_OLD_SECONDS: Final = 0.5


class Room:
    """See the module."""

    def __init__(self, ledger: Callable[[], Awaitable[Stats]]) -> None:
        self._ledger = ledger
        self._counting = asyncio.Lock()
        """Many who push at once count once, since it costs by the queues."""
        self._counted_at = -_OLD_SECONDS
        self._waiting: dict[int, int] = {}
        self._under_way: Counter[int] = Counter()
        self._since: Counter[int] = Counter()
        """What was written since it was counted, and perhaps while it was."""

    @asynccontextmanager
    async def take(self, queue: Queue, limit: int, count: int) -> AsyncIterator[None]:
        """Have room for so many messages more while they are written; Full when there is none."""
        number, asked_at = queue.number, monotonic()
        if asked_at - self._counted_at >= _OLD_SECONDS or self._held(number) + count > limit:
            async with self._counting:
                if self._counted_at < asked_at:
                    await self._count()
        if (held := self._held(number)) + count > limit:
            text = f"the queue holds {held} messages of {limit} (maxSize), and {count} more would be too many"
            raise Full(text, hint="take messages from it, or raise maxSize", retry_after_seconds=1.0)
        self._under_way[number] += count
        try:
            yield
        finally:
            self._under_way[number] -= count
            if not self._under_way[number]:
                del self._under_way[number]
            self._since[number] += count

    def _held(self, number: int) -> int:
        return self._waiting.get(number, 0) + self._under_way[number] + self._since[number]

    async def _count(self) -> None:
        began_at, before = monotonic(), self._since.copy()
        stats = await self._ledger()
        self._since -= before
        self._waiting = {
            found.queue.number: max(map(_waits, found.groups), default=0) for found in stats.queues
        }
        self._counted_at = began_at


def _waits(group: GroupStats) -> int:
    """What a group has not finished."""
    return group.ready + group.held + group.deferred
