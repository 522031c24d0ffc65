"""How many messages a queue may hold: `maxSize`.

What waits is counted by the log's books once in a while, and by what was pushed here in between; so a queue
holds at most `maxSize` and what other servers push within that while.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from time import monotonic
from typing import Final

from forebay.log.values import GroupStats, Queue, Stats
from forebay.model import Full

_OLD_SECONDS: Final = 0.5


class Room:
    """See the module."""

    def __init__(self, ledger: Callable[[], Awaitable[Stats]]) -> None:
        self._ledger = ledger
        self._waiting: dict[int, int] = {}
        self._counted_at = -_OLD_SECONDS

    async def take(self, queue: Queue, limit: int, count: int) -> None:
        """Make sure that so many messages more may come; Full when not."""
        if (
            monotonic() - self._counted_at >= _OLD_SECONDS
            or self._waiting.get(queue.number, 0) + count > limit
        ):
            await self._count()
        waiting = self._waiting.get(queue.number, 0)
        if waiting + count > limit:
            text = (
                f"the queue holds {waiting} messages of {limit} (maxSize), and {count} more would be too many"
            )
            raise Full(text, hint="take messages from it, or raise maxSize", retry_after_seconds=1.0)
        self._waiting[queue.number] = waiting + count

    async def _count(self) -> None:
        stats = await self._ledger()
        self._waiting = {
            found.queue.number: max(map(_waits, found.groups), default=0) for found in stats.queues
        }
        self._counted_at = monotonic()


def _waits(group: GroupStats) -> int:
    """What a group has not finished."""
    return group.ready + group.held + group.deferred
