"""When a queue is warm or cold, and when it is refilled: pure functions of what the shelf holds.

Warm: what is put goes on to the shelf. Cold: it stays in the log, at no cost, until there is room.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

WARM_AGAIN: Final = 0.8
"""A cold queue is warm again at this part of its limit, once nothing cold is left."""
REFILL_BELOW: Final = 0.9
"""A cold queue is refilled below this part of its limit."""


class Mode(StrEnum):
    """Where new messages go."""

    WARM = "warm"
    COLD = "cold"


def next_mode(mode: Mode, held: int, limit: int, *, drained: bool) -> Mode:
    """The mode after the shelf came to hold so many messages; `drained` says that nothing cold is left."""
    if held >= limit:
        return Mode.COLD
    if mode is Mode.COLD and drained and held <= WARM_AGAIN * limit:
        return Mode.WARM
    return mode


def may_refill(mode: Mode, held: int, limit: int) -> bool:
    """Whether messages may be brought from the log now."""
    return held < (limit if mode is Mode.WARM else REFILL_BELOW * limit)
