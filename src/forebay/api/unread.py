"""What answers hold in memory until their clients have read them: bounded for all clients, and for each key.

Invariants: once the limit is reached no more answers are made that may be large, but the one that reaches it
is sent, however large it is; so no more is held than the limit and one answer. A large answer that is refused
has changed nothing. Small answers aren't counted: a connection holds two of them at most.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from forebay.api.heap import HeapTrim
from forebay.api.keys import ANYONE, Key
from forebay.api.settings import ServerLimits
from forebay.model import Unavailable
from forebay.model.quantity import format_bytes

SMALL_BYTES: Final = 1 << 16
"""Answers up to this size are never refused: what is this small is handed to the connection whole."""
READS_AT_ONCE: Final = 4
"""Large reads that are loaded at a time; others wait, and find out then whether there is room for them."""


class UnreadAnswers:
    """The bytes of answers that are being sent, and whose they are."""

    def __init__(self, limits: ServerLimits) -> None:
        self._bytes_max = limits.unread_bytes_max
        self._key_bytes_max = limits.unread_bytes_of_a_key_max
        self._of_keys: Counter[str] = Counter()
        self._reads = asyncio.Semaphore(READS_AT_ONCE)
        self._heap = HeapTrim()
        self.bytes = 0
        """The total of all of them."""
        self.refused = 0
        """Answers that were not made, or not sent."""

    def check(self, key: Key, size: int = 0) -> None:
        """Raise Unavailable unless there is room for an answer to a key; then `size` was made for nothing."""
        if self.bytes >= self._bytes_max:
            text = f"answers of {format_bytes(self.bytes)} wait for their clients to read them"
        # Where there are no keys, everyone would share this limit.
        elif key is not ANYONE and self._of_keys[key.id] >= self._key_bytes_max:
            held = format_bytes(self._of_keys[key.id])
            text = f"answers of {held} to {key.title} wait for their clients to read them"
        else:
            return
        self.refused += 1
        self._heap.freed(size)
        raise Unavailable(text, hint="read the answers, or ask for less at once", retry_after_seconds=1.0)

    def hold(self, key: Key, size: int) -> None:
        """Count an answer, or more of it; to be given back."""
        self.bytes += size
        self._of_keys[key.id] += size

    def give_back(self, key: Key, size: int) -> None:
        """An answer was read, or nobody is there to read it."""
        self.bytes -= size
        self._of_keys[key.id] -= size
        if not self._of_keys[key.id]:
            del self._of_keys[key.id]
        self._heap.freed(size)

    @asynccontextmanager
    async def reading(self, key: Key) -> AsyncIterator[None]:
        """Load a large answer that changes nothing, when it is its turn and there is room."""
        self.check(key)
        async with self._reads:
            self.check(key)
            yield
