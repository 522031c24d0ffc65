"""When messages that failed may be sent again, by a steady clock.

The store hands a message out when its time has come by the machine's clock, which may have been set ahead.
Bounded: of too many, those that were noted first are forgotten, and go by the store's word alone.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

__all__ = ["RetryTimes"]

_TIMES_MAX: Final = 50_000
_EARLY_SECONDS: Final = 0.1
"""Clocks that are slowed down and sped up differ by so much."""


class RetryTimes:
    """The times of one delivery."""

    def __init__(self) -> None:
        self._at: dict[int, float] = {}

    def note(self, ids: Iterable[int], at: float) -> None:
        """Messages may be sent again from a time on."""
        for id in ids:
            self._at.pop(id, None)
            self._at[id] = at
            if len(self._at) > _TIMES_MAX:
                del self._at[next(iter(self._at))]

    def left_seconds(self, id: int, now: float) -> float:
        """How long a message that was handed out has to wait yet; 0 when it may be sent."""
        left = self._at.get(id, now) - now
        if left > _EARLY_SECONDS:
            return left
        self._at.pop(id, None)
        return 0.0
