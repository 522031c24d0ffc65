"""Keeping leases while a handler runs: extended every third of the visibility timeout, but not for ever.

Invariants: nothing is extended once `close` has returned, or the time is over that a handler may take: then
`on_overdue` is called, once, also when there is nothing left to keep. A lease that is lost is noted in the
context of its handler; a store that is away is asked again soon, for as long as there is something left.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from time import monotonic
from typing import Final

from forebay.model import ForebayError, LeaseLost, cancel
from forebay.store.seam import Store
from forebay.work.batch import Batch
from forebay.work.context import Context

__all__ = ["Keeper"]

logger: Final = logging.getLogger("forebay.work")
_PART: Final = 3
_AGAIN_PART: Final = 10
"""A tenth of the visibility timeout passes before a store is asked again that was away."""


class Keeper:
    """Keeps the leases of one batch, for so many seconds each time, and up to `seconds_max` in all.

    Begins with `start`; costs two timers until the first third is over.
    """

    def __init__(
        self, store: Store, batch: Batch, context: Context, seconds: float, seconds_max: float
    ) -> None:
        self._store = store
        self._batch = batch
        self._context = context
        self._seconds = seconds
        self._seconds_max = seconds_max
        self._timer: asyncio.TimerHandle | None = None
        self._limit: asyncio.TimerHandle | None = None
        self._extending: asyncio.Task[None] | None = None
        self.on_overdue: Callable[[], None] | None = None
        """Called when the time is over."""

    def start(self, seconds: float) -> None:
        """Keep them from now on; they hold for so many seconds."""
        self._later(seconds / _PART)
        self._limit = asyncio.get_running_loop().call_later(self._seconds_max, self._over)

    async def close(self) -> None:
        """Keep them no longer."""
        self._end()
        if self._extending is not None:
            await cancel(self._extending)

    def _end(self) -> None:
        for timer in (self._timer, self._limit):
            if timer is not None:
                timer.cancel()

    def _over(self) -> None:
        self._end()
        if self._extending is not None:
            self._extending.cancel()
        if self.on_overdue is not None:
            self.on_overdue()

    def _later(self, seconds: float) -> None:
        self._timer = asyncio.get_running_loop().call_later(seconds, self._begin)

    def _begin(self) -> None:
        self._extending = asyncio.get_running_loop().create_task(self._extend())

    async def _extend(self) -> None:
        began, tasks = monotonic(), self._batch.left
        if not tasks:
            return
        try:
            await self._store.extend(tasks, self._seconds)
        except LeaseLost as error:
            self._lost(error)
        except ForebayError as error:
            logger.warning("leases of %s can't be extended: %s", self._context.queue, error)
            self._later(self._seconds / _AGAIN_PART)
            return
        self._context.deadline = began + self._seconds
        self._later(self._seconds / _PART)

    def _lost(self, error: LeaseLost) -> None:
        """Some were lost, the others extended. What a call of the handler settled meanwhile isn't lost."""
        lost = set(error.ids) & {task.id for task in self._batch.left}
        if lost:
            self._batch.lose(lost)
            text = "%d leases of %s were lost while their handler was at work"
            logger.warning(text, len(lost), self._context.queue)
