"""Whether the log is there: what everybody who needs it goes by.

Invariants: nobody waits for a log that is known to be away, also who began to before it was known; it is
said to be back by whoever has written to it, and by nobody else; each change is logged once.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from forebay.log.seam import LogAway
from forebay.model import Clock, ForebayError, SystemClock, Unavailable

T = TypeVar("T")
logger: Final = logging.getLogger("forebay.failover")


class Health:
    """What is known of the log, or of `what` it is. At first it is away: it has to be opened.

    `name` is what people call it, if that is known.
    """

    def __init__(self, *, clock: Clock | None = None, what: str = "database", name: str = "") -> None:
        self._what = what.capitalize()
        self._name = name or self._what
        self._clock = clock or SystemClock()
        self._calls: set[asyncio.Timeout] = set()
        self.is_healthy = False
        self.reason: str | None = "the log is being opened"
        self.since = self._clock.now()
        self.outages = 0
        self.changes = 0
        """How often it came or went: who found it there may look whether that still holds."""
        self.lost: list[Callable[[], None]] = []
        """Told of each loss."""
        self.found: list[Callable[[], None]] = []
        """Told each time that it is there again."""

    async def call(
        self,
        verb: Callable[[], Awaitable[T]],
        seconds: float | None = None,
        *,
        ping: Callable[[], Awaitable[object]] | None = None,
    ) -> T:
        """Call the log. LogAway if it is away, or doesn't answer within so many seconds.

        With a `ping` that the call itself fails is no proof: the log is away if it doesn't answer that.
        """
        if not self.is_healthy:
            raise self.away()
        timeout = asyncio.timeout(seconds)
        try:
            async with timeout:
                self._calls.add(timeout)
                try:
                    return await verb()
                finally:
                    self._calls.discard(timeout)
        except TimeoutError:
            if not timeout.expired():
                raise
            if self.is_healthy:
                self.fail(f"no answer within {seconds:g} seconds")
            raise self.away() from None
        except Unavailable as error:
            if ping is not None and await _is_answered(ping):
                raise
            self.fail(error.message)
            raise self.away() from error

    def fail(self, reason: str) -> None:
        """The log is away: whoever waits for it is told so at once."""
        if not self.is_healthy:
            return
        self._change(healthy=False, reason=reason)
        self.outages += 1
        logger.warning("%s connection failed, switching to file buffer (the spool): %s", self._what, reason)
        self._tell()

    def close(self) -> None:
        """The log is being closed: that it is away then is no outage."""
        self._change(healthy=False, reason="the log is not open")
        self._tell()

    def _change(self, *, healthy: bool, reason: str | None) -> None:
        self.is_healthy, self.reason, self.since = healthy, reason, self._clock.now()
        self.changes += 1

    def _tell(self) -> None:
        now = asyncio.get_running_loop().time()
        for timeout in self._calls:
            if not timeout.expired():  # it ends by itself, and can't be told twice
                timeout.reschedule(now)
        for told in self.lost:
            told()

    def recover(self) -> None:
        """The log is there: something was written to it."""
        if self.is_healthy:
            return
        seconds = (self._clock.now() - self.since) / 1_000_000
        self._change(healthy=True, reason=None)
        if self.outages:
            logger.info("%s recovery detected! It was away for %.1f seconds", self._name, seconds)
        else:
            logger.info("%s healthy, normal operation", self._what)
        for told in self.found:
            told()

    def away(self) -> LogAway:
        """What to raise while it is away."""
        text = f"the log is away: {self.reason}"
        return LogAway(text, hint="try again with the same id", retry_after_seconds=1.0)


async def _is_answered(ping: Callable[[], Awaitable[object]]) -> bool:
    try:
        await ping()
    except (ForebayError, TimeoutError):
        return False
    return True
