"""What the log of the server says of a spool, and how fast it is replayed.

Invariants: a line is said now and then, never for each push or page, with the numbers of all that came since.
The words are those of the system that this follows: people search for them.
"""

from __future__ import annotations

import logging
from collections import deque
from typing import Final

from forebay.failover.replaying import Replayed
from forebay.spool.names import FileName

logger: Final = logging.getLogger("forebay.failover")
SAID_SECONDS: Final = 5.0
"""How often it is said what was spooled, and how far a long replay is."""
SPAN_SECONDS: Final = 10.0
"""Over how long it is measured."""
STEP_SECONDS: Final = 0.25
"""Pages that are replayed sooner after one another are counted together."""


class Pace:
    """See the module. Times are those of a clock that only goes forward, in seconds."""

    def __init__(self) -> None:
        self._steps: deque[list[float]] = deque()
        """When a step began, and how many events it brought."""

    def add(self, events: int, now: float) -> None:
        """Count events that have come to the log."""
        self._forget(now)
        if self._steps and now - self._steps[-1][0] < STEP_SECONDS:
            self._steps[-1][1] += events
        else:
            self._steps.append([now, float(events)])

    def rate(self, now: float) -> float:
        """Events in a second, over the last seconds in which there were any."""
        self._forget(now)
        if not self._steps:
            return 0.0
        return sum(events for _, events in self._steps) / max(STEP_SECONDS, now - self._steps[0][0])

    def seconds_left(self, events: int, now: float) -> float | None:
        """How long so many more take; None where nothing is being replayed."""
        rate = self.rate(now)
        return events / rate if rate > 0 else None

    def _forget(self, now: float) -> None:
        while self._steps and self._steps[0][0] < now - SPAN_SECONDS:
            self._steps.popleft()


class Report:
    """What is said. Times are those of a clock that only goes forward, in seconds."""

    def __init__(self) -> None:
        self.pace = Pace()
        self._spooled = self._total = 0
        self._say_spooled_at = self._say_progress_at = 0.0

    def begin(self, now: float) -> None:
        """The log is back, and what was spooled is replayed."""
        self._total = 0
        self._say_progress_at = now + SAID_SECONDS

    def add_spooled(self, events: int) -> None:
        """Messages were spooled."""
        self._spooled += events

    def say_spooled(self, file: str | None, now: float) -> None:
        """Say what was spooled, and where the newest of it is."""
        if self._spooled and now >= self._say_spooled_at:
            self._say_spooled_at = now + SAID_SECONDS
            logger.info("Buffered %d events to %s", self._spooled, file)
            self._spooled = 0

    def add_replayed(self, events: int, now: float) -> None:
        """Messages have come to the log."""
        self._total += events
        self.pace.add(events, now)

    def say_progress(self, pending: int, now: float) -> None:
        """Say how far a long replay is."""
        if now < self._say_progress_at or not pending:
            return
        self._say_progress_at = now + SAID_SECONDS
        done, total = self._total, self._total + pending
        text = "Failover: Progress %d/%d events (%.1f%%), %.0f events/s, %.0f seconds left"
        left = self.pace.seconds_left(pending, now) or 0.0
        logger.info(text, done, total, 100 * done / total, self.pace.rate(now), left)

    def say_failed(self, pending: int, reason: str) -> None:
        """Say that a replay broke off."""
        if pending:
            text = "Failed to flush: %d events stay in the spool, and are tried again: %s"
            logger.warning(text, pending, reason)

    def say_complete(self, name: FileName, replayed: Replayed) -> None:
        """Say that a file is through."""
        logger.info("Failover replay complete, deleted file %s: %d events", name, replayed.events)
        if replayed.refused:
            text = "Failed to flush %d events of %s: refused, set aside with their reasons, and tried again"
            logger.error(text, replayed.refused, name)
