"""Room in a queue: entries and bytes that are reserved, never more than there may be.

Used by one event loop. A reservation is made before anything is written and given back when the entry is
settled, dropped or refused, so the limits hold however many push at once.
"""

from __future__ import annotations

import asyncio
from collections import deque

from forebay.model import TooLarge, format_bytes

__all__ = ["Room"]


class Room:
    """Counts what a queue holds against its limits."""

    def __init__(self, size_max: int, bytes_max: int, *, size: int = 0, bytes_held: int = 0) -> None:
        self.size_max = size_max
        self.bytes_max = bytes_max
        self.size = size
        self.bytes_held = bytes_held
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    @property
    def utilization(self) -> float:
        """How full it is, by the fuller of entries and bytes; over 1 where the limits were lowered."""
        return max(self.size / self.size_max, self.bytes_held / self.bytes_max)

    def utilization_with(self, size: int) -> float:
        """How full it is with one more entry of `size` bytes."""
        return max((self.size + 1) / self.size_max, (self.bytes_held + size) / self.bytes_max)

    def check(self, size: int) -> None:
        """Refuse an entry that would not even fit into an empty queue."""
        if size > self.bytes_max:
            raise TooLarge(
                f"the entry has {format_bytes(size)}, the queue holds {format_bytes(self.bytes_max)}",
                hint="send less at once, or raise max_bytes",
            )

    def fits(self, size: int) -> bool:
        """Whether an entry of `size` bytes fits now."""
        return self.size < self.size_max and self.bytes_held + size <= self.bytes_max

    def reserve(self, size: int) -> bool:
        """Take room for an entry, unless there is none or others wait for it already."""
        if self._waiting or not self.fits(size):
            return False
        self._take(size)
        return True

    async def wait(self, size: int, seconds: float) -> bool:
        """Take room as soon as there is some, in the order of asking; tell whether it came in time."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiter = (size, future)
        self._waiting.append(waiter)
        try:
            async with asyncio.timeout(seconds):
                await future
        except BaseException as error:
            if future.done() and not future.cancelled():
                if isinstance(error, TimeoutError):
                    return True
                self.release(size)
            else:
                self._waiting.remove(waiter)
                self._admit()
            if isinstance(error, TimeoutError):
                return False
            raise
        return True

    def release(self, size: int) -> None:
        """Give the room of one entry back."""
        self.forget(1, size)

    def forget(self, count: int, size: int) -> None:
        """Give the room of some entries back, which have `size` bytes together."""
        self.size -= count
        self.bytes_held -= size
        self._admit()

    def _take(self, size: int) -> None:
        self.size += 1
        self.bytes_held += size

    def _admit(self) -> None:
        while self._waiting and self.fits(self._waiting[0][0]):
            size, future = self._waiting.popleft()
            if not future.done():
                self._take(size)
                future.set_result(None)
