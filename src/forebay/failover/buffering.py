"""Pushes with QoS 0: gathered in memory for a moment, answered before they are on disk, then spooled.

Invariants: what was buffered is on disk within `seconds`, unless the disk fails or is full: then it is tried
again, and nothing more is taken than `bytes_max`; messages of a queue are spooled in the order in which they
came.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Sequence
from typing import Final

from forebay.model import Block, Clock, Full, Message, Unavailable
from forebay.spool.lines import SpooledBlock
from forebay.spool.spool import Spool

logger: Final = logging.getLogger("forebay.failover")
BLOCK_MESSAGES: Final = 1_000
BLOCK_BYTES: Final = 1 << 20
_MESSAGE_BYTES: Final = 200
"""What a message takes beside its payload, roughly."""


class Buffer:
    """See the module."""

    def __init__(self, spool: Spool, clock: Clock, *, seconds: float, bytes_max: int) -> None:
        self._spool = spool
        self._clock = clock
        self._seconds = seconds
        self._bytes_max = bytes_max
        self._waiting: dict[str, list[Message]] = {}
        self._bytes = 0
        self._timer: asyncio.TimerHandle | None = None
        self._flushing: asyncio.Task[None] | None = None
        self._unspooled: list[SpooledBlock] = []
        self.events = 0
        """Messages that are only in memory."""
        self.spooled: Counter[str] = Counter()
        """Messages that came from here to the spool, by queue; who replays them takes them off."""

    def add(self, queue: str, messages: Sequence[Message]) -> None:
        """Take messages; Full where too much waits for the disk."""
        size = sum(len(message.payload) + _MESSAGE_BYTES for message in messages)
        if self._bytes and self._bytes + size > self._bytes_max:
            text = f"{self._bytes} bytes of pushes with QoS 0 wait for the disk already"
            raise Full(text, hint="push without qos=0, or slow down", retry_after_seconds=1.0)
        self._waiting.setdefault(queue, []).extend(messages)
        self._bytes += size
        self.events += len(messages)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._seconds, self._flush_soon)

    async def close(self) -> None:
        """Spool what waits."""
        if self._flushing is not None:
            await self._flushing
        if self._timer is not None:
            self._timer.cancel()
        await self._flush()

    def _flush_soon(self) -> None:
        self._flushing = asyncio.create_task(self._flush_and_go_on(), name="forebay-qos0")

    async def _flush_and_go_on(self) -> None:
        await self._flush()
        loop = asyncio.get_running_loop()
        waits = self._waiting or self._unspooled
        self._timer = loop.call_later(self._seconds, self._flush_soon) if waits else None

    async def _flush(self) -> None:
        """Spool what has gathered; what the disk doesn't take goes on waiting, under the same ids."""
        gathered, self._waiting = self._waiting, {}
        now = self._clock.now()
        self._unspooled += [
            SpooledBlock(queue, Block.of(part, created_at=now))
            for queue, messages in gathered.items()
            for part in _parts(messages)
        ]
        blocks, size = self._unspooled, self._bytes
        if not blocks:
            return
        try:
            await self._spool.append(blocks, prefix="qos0")
        except Unavailable as error:
            logger.warning("messages with QoS 0 can't be spooled, and wait: %s", error)
            return
        self._unspooled = []
        self._bytes -= size
        self.events -= sum(map(len, blocks))
        for block in blocks:
            self.spooled[block.queue] += len(block)


def _parts(messages: Sequence[Message]) -> list[Sequence[Message]]:
    """Messages as blocks of a handy size."""
    parts: list[Sequence[Message]] = []
    begin = size = 0
    for place, message in enumerate(messages):
        if place > begin and (place - begin >= BLOCK_MESSAGES or size + len(message.payload) > BLOCK_BYTES):
            parts.append(messages[begin:place])
            begin, size = place, 0
        size += len(message.payload)
    return [*parts, messages[begin:]] if messages else parts
