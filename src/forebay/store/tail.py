"""Blocks that were just put, so that a worker who waits gets them without their being read back."""

from __future__ import annotations

from collections import OrderedDict

from forebay.model import Block


class Tail:
    """The newest blocks of a queue, without a gap, up to so many bytes of payload."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._bytes = 0
        self._next = 0
        self._blocks: OrderedDict[int, tuple[Block, int]] = OrderedDict()

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
        size = sum(map(len, block.payloads))
        self._blocks[first] = (block, size)
        self._bytes += size
        self._next = first + len(block)
        while self._bytes > self._bytes_max:
            self._bytes -= self._blocks.popitem(last=False)[1][1]

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
        self._bytes = 0
