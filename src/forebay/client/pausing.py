"""How long to wait before the next attempt. Pure functions."""

from __future__ import annotations

from typing import Final

FIRST_SECONDS: Final = 0.05
LONGEST_SECONDS: Final = 2.0
_DOUBLINGS_MAX: Final = 10


def pause_seconds(attempt: int, chance: float, asked_seconds: float | None = None) -> float:
    """The pause after the attempt of this number (from 0): twice as long each time, up to a limit.

    `chance` (0 to 1) spreads it, so that clients that were cut off together don't come back together. What
    the server asked for is kept, and spread beyond it.
    """
    longest = min(LONGEST_SECONDS, FIRST_SECONDS * 2.0 ** min(attempt, _DOUBLINGS_MAX))
    spread = longest * (0.5 + chance / 2)
    return spread if asked_seconds is None else max(0.0, asked_seconds) + spread * chance
