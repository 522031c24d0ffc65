"""Maintenance: pushes are held back on disk and pops bring nothing, until somebody says that it is over."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from forebay.log.values import Appended
from forebay.model import Block, Rejected

if TYPE_CHECKING:
    from forebay.api.context import Context


class Maintenance:
    """Whether pushes and pops are held back."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self.push = False
        self.pop = False
        self._resumed = asyncio.Event()

    async def hold(self, queue: str, block: Block) -> Appended:
        """Keep a block on disk until maintenance is over."""
        raise Rejected(f"pushes to {queue!r} are held back: {block!r}", hint="try again later")

    async def popping_again(self, seconds: float) -> None:
        """Wait until messages may be taken again."""
        try:
            async with asyncio.timeout(max(0.0, seconds)):
                await self._resumed.wait()
        except TimeoutError:
            return
