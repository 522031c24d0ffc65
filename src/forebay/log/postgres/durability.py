"""Waiting for the disk, together.

Lazy commits release their locks before they are on disk. The write-ahead log is written in order, so a
commit that does wait for the disk, made after them, brings all of them along: everybody who has
committed lazily by then shares it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable


class Disk:
    """Shares `sync`, which returns when all that was committed before it began is on disk."""

    def __init__(self, sync: Callable[[], Awaitable[None]]) -> None:
        self._sync = sync
        self._one_at_a_time = asyncio.Lock()
        self._next: asyncio.Task[None] | None = None

    async def wait(self) -> None:
        """Return when what was committed before this call is on disk; raise what the sync raises."""
        if self._next is None:
            self._next = asyncio.create_task(self._sync_next(), name="forebay-sync")
        await asyncio.shield(self._next)

    async def _sync_next(self) -> None:
        async with self._one_at_a_time:
            self._next = None  # it begins: whoever comes now waits for the one after it
            await self._sync()
