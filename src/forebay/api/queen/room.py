"""How many messages a queue may hold: `maxSize`.

What waits is counted by the log's books once in a while, and by what is pushed here in between; so a queue
holds at most `maxSize` and what other servers push within that while. Invariant: what is under way counts
from before it is written until the books have it, however many push at the same time.
"""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from time import monotonic
from typing import Final
from weakref import WeakValueDictionary

from forebay.log.values import GroupStats, Queue, Stats
from forebay.model import Full

_OLD_SECONDS: Final = 0.5
_COUNTED_MAX: Final = 10_000
"""Queues whose counts are remembered."""


class Room:
    """See the module."""

    def __init__(self, ledger: Callable[[str], Awaitable[Stats]]) -> None:
        self._ledger = ledger
        self._counting: WeakValueDictionary[int, asyncio.Lock] = WeakValueDictionary()
        """Many who push to a queue at once count once."""
        self._counted: OrderedDict[int, tuple[float, int]] = OrderedDict()
        """When a queue was last counted, and what waited then; the one counted longest ago first."""
        self._under_way: Counter[int] = Counter()
        self._since: Counter[int] = Counter()
        """What was written since it was counted, and perhaps while it was."""

    @asynccontextmanager
    async def take(self, queue: Queue, limit: int, count: int) -> AsyncIterator[None]:
        """Have room for so many messages more while they are written; Full when there is none."""
        number, asked_at = queue.number, monotonic()
        if asked_at - self._counted_at(number) >= _OLD_SECONDS or self._held(number) + count > limit:
            lock = self._counting.setdefault(number, asyncio.Lock())
            async with lock:
                if self._counted_at(number) < asked_at:
                    await self._count(queue)
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
        waiting = self._counted[number][1] if number in self._counted else 0
        return waiting + self._under_way[number] + self._since[number]

    def _counted_at(self, number: int) -> float:
        return self._counted[number][0] if number in self._counted else -_OLD_SECONDS

    async def _count(self, queue: Queue) -> None:
        began_at, before = monotonic(), self._since[queue.number]
        stats = await self._ledger(queue.name)
        self._since[queue.number] -= before
        waiting = max((_waits(group) for found in stats.queues for group in found.groups), default=0)
        self._counted[queue.number] = began_at, waiting
        self._counted.move_to_end(queue.number)
        while len(self._counted) > _COUNTED_MAX:
            oldest, _ = self._counted.popitem(last=False)
            self._since.pop(oldest, None)


def _waits(group: GroupStats) -> int:
    """What a group has not finished."""
    return group.unclaimed + group.held + group.deferred
