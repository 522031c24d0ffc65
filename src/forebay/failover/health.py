"""Whether the log is there: what everybody who needs it goes by.

Invariants: nobody waits for a log that is known to be away, also who began to before it was known; it is
said to be back by whoever has written to it, and by nobody else; each change is logged once. A log that is
slow is not away: where a call takes long, something that takes no time is asked beside it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final, TypeVar

from forebay.log.seam import LogAway
from forebay.model import Clock, ForebayError, SystemClock, Unavailable, cancel

T = TypeVar("T")
PATIENCE: Final = 10
"""How much longer than usual an answer of a log that is only slow is waited for."""
logger: Final = logging.getLogger("forebay.failover")


class LogSlow(Unavailable):
    """The log is there, and takes too long for this: nobody knows whether it was written."""


class UnansweredError(Exception):
    """A call has no answer in time, and what is asked beside it has none either."""


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
        self.probe: Callable[[], Awaitable[object]] | None = None
        """Something that takes a log that is there no time."""
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
        again: bool = False,
    ) -> T:
        """Call the log. LogAway if it is away, or silent for so many seconds; LogSlow if only this call is.

        With a `ping` a call that fails proves nothing: a lone connection may have been cut. The log is away
        if it doesn't answer the ping, either. If it does, a call that may be made `again` is; the second
        failure counts.
        """
        change = self.changes
        try:
            return await self._bounded(verb, seconds)
        except (LogAway, LogSlow):
            raise
        except Unavailable as error:
            if ping is None or not await is_answered(partial(self._bounded, ping)):
                self.fail(error.message, since=change)
                raise self.away() from error
            if not again:
                raise
        return await self.call(verb, seconds)

    async def _bounded(self, verb: Callable[[], Awaitable[T]], seconds: float | None = None) -> T:
        """Call the log; LogAway if it is away, becomes so meanwhile, or is silent for so many seconds."""
        if not self.is_healthy:
            raise self.away()
        timeout, change = asyncio.timeout(None), self.changes
        try:
            async with timeout:
                self._calls.add(timeout)
                try:
                    return await (verb() if seconds is None else self.wait(verb(), seconds))
                finally:
                    self._calls.discard(timeout)
        except TimeoutError:
            if not timeout.expired():
                raise
            raise self.away() from None
        except UnansweredError as error:
            self.fail(str(error), since=change)
            raise self.away() from None

    async def wait(self, call: Awaitable[T], seconds: float) -> T:
        """What a call answers. UnansweredError if the log is silent for so long; LogSlow if the call is."""
        loop = asyncio.get_running_loop()
        work, until = asyncio.ensure_future(call), loop.time() + PATIENCE * seconds
        try:
            while True:
                await asyncio.wait({work}, timeout=seconds / 2)
                if work.done() or await self._answers_before(work, seconds / 2):
                    return await work
                if loop.time() >= until:
                    text = f"the log is slow: no answer within {PATIENCE * seconds:g} seconds"
                    raise LogSlow(text, hint="try again with the same id", retry_after_seconds=1.0)
        except UnansweredError:
            raise UnansweredError(f"no answer within {seconds:g} seconds") from None
        finally:
            await cancel(work)
            if not work.cancelled():
                work.exception()  # it may fail at the moment at which nobody waits for it any more

    async def _answers_before(self, work: asyncio.Future[T], seconds: float) -> bool:
        """Whether a call has an answer; UnansweredError if it has none and the probe hasn't either."""
        asked = asyncio.ensure_future(is_answered(self.probe)) if self.probe is not None else None
        try:
            waiting: set[asyncio.Future[Any]] = {work} if asked is None else {work, asked}
            await asyncio.wait(waiting, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            if work.done():
                return True
            if asked is None or not asked.done() or not asked.result():
                raise UnansweredError
            return False
        finally:
            await cancel(asked)

    async def answers(self, seconds: float) -> bool:
        """Whether the log answers at all, within so many seconds; not where nothing can be asked."""
        try:
            async with asyncio.timeout(seconds):
                return self.probe is not None and await is_answered(self.probe)
        except TimeoutError:
            return False

    def fail(self, reason: str, *, since: int | None = None) -> None:
        """The log is away: whoever waits for it is told so at once.

        `since` is what `changes` was when the call began that failed. If the log came or went after that, the
        failure says nothing about the log as it is now.
        """
        if not self.is_healthy or since not in {None, self.changes}:
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


async def is_answered(ping: Callable[[], Awaitable[object]]) -> bool:
    """Whether a ping is answered."""
    try:
        await ping()
    except (ForebayError, TimeoutError):
        return False
    return True
