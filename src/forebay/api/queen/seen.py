"""Which names of traces were noted lately, so that they need not be noted with every trace."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Final

SEEN_SECONDS: Final = 10
"""How exactly it is known when a name was last seen."""
_SEEN_MAX: Final = 10_000
_SECOND: Final = 1_000_000


class Seen:
    """When names were last noted; bounded, the oldest are forgotten."""

    def __init__(self) -> None:
        self._at: OrderedDict[str, int] = OrderedDict()

    def stale(self, names: Sequence[str], now: int) -> list[str]:
        """Those that are to be noted again."""
        return [name for name in names if now - self._at.get(name, 0) > SEEN_SECONDS * _SECOND]

    def note(self, names: Sequence[str], now: int) -> None:
        """They were noted."""
        for name in names:
            self._at[name] = now
            self._at.move_to_end(name)
        while len(self._at) > _SEEN_MAX:
            self._at.popitem(last=False)
