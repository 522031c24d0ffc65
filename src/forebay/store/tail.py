"""Blocks that were just put, so that a worker who waits gets them without their being read back.

Invariants: a tail has no gap; it stays within its bound, and all of them together within theirs. What goes to
make room is read back, if it is wanted.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from forebay.model import Block

MESSAGE_BYTES: Final = 64
"""What a message takes beside its payload, about; so that messages without one are bounded, too."""


class Tail:
    """The newest blocks of a queue, without a gap, up to so many bytes."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._next = 0
        self._blocks: OrderedDict[int, tuple[Block, int]] = OrderedDict()
        self.bytes = 0
        """What the blocks take, about."""

    @property
    def known(self) -> int | None:
        """The first message id from which on the blocks are here; None when none is."""
        return next(iter(self._blocks), None)

    def add(self, first: int, block: Block) -> None:
        """Remember a block that was appended at message id `first`."""
        if first < self._next:
            return
        if first != self._next:
            self.clear()
        size = sum(map(len, block.payloads)) + MESSAGE_BYTES * len(block)
        self._blocks[first] = (block, size)
        self.bytes += size
        self._next = first + len(block)
        while self.bytes > self._bytes_max:
            self.bytes -= self._blocks.popitem(last=False)[1][1]

    def get(self, first: int) -> Block | None:
        """The block at message id `first`."""
        found = self._blocks.get(first)
        return None if found is None else found[0]

    def end_after(self, first: int) -> int:
        """The message id behind the blocks that are here from `first` on: `first`, if there are none."""
        known = self.known
        return self._next if known is not None and known <= first < self._next else first

    def clear(self) -> None:
        """Forget everything."""
        self._blocks.clear()
        self.bytes = 0


class Tails:
    """The tails of queues that somebody takes from, by number; the one longest unused goes first."""

    def __init__(self, bytes_max: int, bytes_total: int) -> None:
        self._bytes_max = bytes_max
        self._bytes_total = bytes_total
        self._tails: dict[int, Tail] = {}
        self._filled: OrderedDict[int, Tail] = OrderedDict()
        """Those with blocks, the longest unused first."""
        self._bytes = 0

    def of(self, queue: int) -> Tail:
        """The tail of a queue, from now on."""
        return self._tails.setdefault(queue, Tail(self._bytes_max))

    def add(self, queue: int, first: int, block: Block) -> None:
        """Remember a block, if anybody takes from its queue."""
        tail = self._tails.get(queue)
        if tail is None:
            return
        self._bytes -= tail.bytes
        tail.add(first, block)
        self._bytes += tail.bytes
        self._filled[queue] = tail
        self._filled.move_to_end(queue)
        while self._bytes > self._bytes_total:
            self._empty(next(iter(self._filled)))

    def drop(self, queue: int) -> None:
        """Forget a queue."""
        if queue in self._filled:
            self._empty(queue)
        self._tails.pop(queue, None)

    def _empty(self, queue: int) -> None:
        tail = self._filled.pop(queue)
        self._bytes -= tail.bytes
        tail.clear()
