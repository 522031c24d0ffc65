"""Turns for those who write the same keys in this process."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import Final

_STRIPES: Final = 256


class Stripes:
    """Those who write the same keys here take turns; across servers the log decides."""

    def __init__(self) -> None:
        self._locks = [asyncio.Lock() for _ in range(_STRIPES)]

    async def hold(self, stack: AsyncExitStack, places: Sequence[str]) -> None:
        """Wait for the turn, until the stack ends; always in the same order."""
        for stripe in sorted({hash(place) % _STRIPES for place in places}):
            await stack.enter_async_context(self._locks[stripe])
