"""Delays: what came back at once or after a while comes in time although the machine's clock is set back.

The log keeps the time at which a message comes. A clock that is an hour ahead, and is then set right, makes
it come an hour late. So the store remembers by a steady clock when it should, and brings it forward.
Bounded, and forgotten with the process. Times that callers give themselves are times, and are left alone.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Final

from forebay.model import Clock, Rejected

__all__ = ["Delays"]

logger: Final = logging.getLogger("forebay.store")

DELAYS_MAX: Final = 50_000
"""Messages that are remembered; of others the first ones are forgotten."""
STEP_SECONDS: Final = 1.0
"""Less than that is no step: clocks are slowed down and sped up all the time."""
KEPT_SECONDS: Final = 60.0
"""How long a message is remembered after its time: it may wait for somebody to take it."""
_SECOND: Final = 1_000_000


class Delays:
    """The delays that this process was asked for. `elapsed` gives the seconds of a clock that never jumps."""

    def __init__(
        self, clock: Clock, elapsed: Callable[[], float], hasten: Callable[[int, str], Awaitable[bool]]
    ) -> None:
        self._clock = clock
        self._elapsed = elapsed
        self._hasten = hasten
        self._due: dict[tuple[int, str], tuple[float, int]] = {}
        """By message and group: when it should come, and up to which message of its partition."""
        self._late: set[tuple[int, str]] = set()
        """Those that the log lets wait longer."""
        self._offset = self._measured()

    def note(self, id: int, group: str, seconds: float, last: int | None = None) -> None:
        """A message of a group comes back after a while; with it those up to `last`, which were behind it."""
        self.forget(id, group)
        self._due[id, group] = self._elapsed() + seconds, id if last is None else last
        if len(self._due) > DELAYS_MAX:
            self.forget(*next(iter(self._due)))

    def forget(self, id: int, group: str) -> None:
        """A message of a group comes at a time that a caller gave."""
        self._due.pop((id, group), None)
        self._late.discard((id, group))

    async def tick(self) -> None:
        """Look at the clock, and bring forward what should be here by now. Called every few seconds."""
        offset = self._measured()
        back, self._offset = self._offset - offset, offset
        if back >= STEP_SECONDS and self._due:
            self._late.update(self._due)
            text = "the clock was set back by %.0f seconds; %d messages that came back are brought forward"
            logger.warning(text, back, len(self._due))
        now = self._elapsed()
        for key, (due, last) in list(self._due.items()):
            if due <= now and key in self._late:
                await self._bring(*key, last)  # where that fails it is tried again
            elif due + KEPT_SECONDS > now:
                continue
            if self._due.get(key) == (due, last):  # it may have come back anew meanwhile
                self.forget(*key)

    async def _bring(self, id: int, group: str, last: int) -> None:
        try:
            # The last one brings those before it along, unless it is finished itself.
            if not await self._hasten(last, group) and last != id:
                await self._hasten(id, group)
        except Rejected:  # its queue or group is gone
            logger.debug("message %d of group %s isn't there any more", id, group)

    def _measured(self) -> float:
        return self._clock.now() / _SECOND - self._elapsed()
