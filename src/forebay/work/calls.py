"""Calls of handlers: each is waited for until it ends, or, when its time is over, is given up.

Invariants: a call that is overdue is cancelled once; one that has not ended `hurry_seconds` later, as it is
in a thread or swallows what cancels it, is waited for no more. Who waits for a call is never cancelled by it.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Final

from forebay.model import Clock, ForebayError
from forebay.store.seam import Store
from forebay.work.context import Context
from forebay.work.settings import WorkerSettings
from forebay.work.stragglers import Stragglers
from forebay.work.taking import Taker
from forebay.work.threads import Threads

__all__ = ["Call", "Calls"]

logger: Final = logging.getLogger("forebay.work")


class Call:
    """One call of a handler."""

    def __init__(self, context: Context, work: asyncio.Task[Any], hurry_seconds: float) -> None:
        self.context = context
        self.work = work
        self._hurry_seconds = hurry_seconds
        self._loop = asyncio.get_running_loop()
        self._over = self._loop.create_future()
        self._timer: asyncio.TimerHandle | None = None
        work.add_done_callback(self._end)

    async def wait(self) -> bool:
        """Wait for its end, whatever that is; False if it hasn't ended, and is given up."""
        await self._over
        return self.work.done()

    def cancel(self) -> None:
        """Have it end, unless it was told to before: a second time it would leave its thread behind."""
        if not self.context.is_cancelled:
            self.context.is_cancelled = True
            self.work.cancel()

    def overdue(self) -> None:
        """Its time is over."""
        if self._over.done():
            return
        self.context.is_overdue = True
        self.cancel()
        self._timer = self._loop.call_later(self._hurry_seconds, self._end)

    def _end(self, *_: object) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if not self._over.done():
            self._over.set_result(None)


class Calls:
    """What the processors of a worker share: the handlers that run, and whether they are to end."""

    def __init__(
        self,
        store: Store,
        taker: Taker,
        *,
        settings: WorkerSettings,
        name: str,
        clock: Clock,
        threads: Threads,
    ) -> None:
        self.store = store
        self.taker = taker
        self.settings = settings
        self.name = name
        self.clock = clock
        self.threads = threads
        self.stragglers = Stragglers(taker)
        self.stopping = asyncio.Event()
        self.trouble: ForebayError | None = None
        """Why the store can't be asked, while it can't."""
        self._running: set[Call] = set()

    async def run(self, call: Call) -> bool:
        """Wait for a handler's end, whatever that is; False if it is given up."""
        self._running.add(call)
        try:
            return await call.wait()
        finally:
            self._running.remove(call)

    def cancel(self) -> None:
        """Cancel all handlers that run."""
        for call in self._running:
            call.cancel()

    def note(self, error: ForebayError | None) -> None:
        """The store can, or can't, be asked; said once."""
        if error is not None and self.trouble is None:
            logger.warning("no tasks can be taken, which is tried again: %s", error)
        elif error is None and self.trouble is not None:
            logger.info("tasks are taken again")
        self.trouble = error
