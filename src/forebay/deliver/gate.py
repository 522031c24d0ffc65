"""The gate of a destination: waits for a permit where `Admission` says to wait, instead of polling."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

from forebay.deliver.admission import Admission
from forebay.deliver.breaker import Permit

__all__ = ["Gate"]


class Gate:
    """Holds up senders while the breaker is open, a pause is asked for, or enough is in flight."""

    def __init__(self, make_admission: Callable[[Callable[[], None]], Admission]) -> None:
        self._loop = asyncio.get_running_loop()
        self._waiting: set[asyncio.Future[None]] = set()
        self.admission = make_admission(self.wake)

    def ask(self) -> Permit | float:
        """Get a permit, or the seconds to `wait`."""
        return self.admission.ask(self._loop.time())

    async def permit(self) -> Permit:
        """Get a permit as soon as there is one."""
        while isinstance(permit := self.ask(), float):
            await self.wait(permit)
        return permit

    async def wait(self, seconds: float) -> None:
        """Wait until something has changed, or the time is over."""
        future: asyncio.Future[None] = self._loop.create_future()
        self._waiting.add(future)
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await future
        finally:
            self._waiting.discard(future)

    def wake(self) -> None:
        """Let all that wait ask again."""
        if self._waiting:
            for future in self._waiting:
                if not future.done():
                    future.set_result(None)
            self._waiting = set()
