"""The chunk files of a queue in memory: which sequence numbers each holds, and where some of them are.

Invariants: chunks are in the order of their numbers; a chunk's records have the sequence numbers from `first`
up to, not including, `end`, one after the other, and its bytes end at `stop`. Marks are exact.
"""

from array import array
from bisect import bisect_right
from typing import Final

from forebay.fastqueue.chunk_file import Holes
from forebay.fastqueue.record import Place

_MARK_BYTES: Final = 64 << 10
"""How far marks are apart: so much is read over to find a record, and so few marks are kept."""


class Chunk:
    """One chunk file."""

    __slots__ = (
        "_offsets", "_sequences", "end", "first", "holes", "is_kept", "name", "number", "start", "stop",
    )  # fmt: skip

    def __init__(self, number: int, name: str, *, first: int, start: int, end: int, stop: int) -> None:
        self.number = number
        self.name = name
        self.first = first
        self.start = start
        """The offset of the first record: what is before it is the chunk's head."""
        self.end = end
        self.stop = stop
        self.is_kept = False
        """It holds damage that could not be copied out: it is set aside whole, never deleted."""
        self.holes = Holes()
        self._sequences = array("Q")
        self._offsets = array("Q")

    def mark(self, sequence: int, offset: int) -> None:
        """Remember where a record begins, unless a place shortly before it is known."""
        at = bisect_right(self._sequences, sequence)
        # Damage before a record may have the same number: the first place stands, so that it is met.
        known = at and (self._sequences[at - 1] == sequence or offset - self._offsets[at - 1] < _MARK_BYTES)
        if not known:
            self._sequences.insert(at, sequence)
            self._offsets.insert(at, offset)

    def nearest(self, sequence: int) -> Place:
        """The last known place at or before a record."""
        at = bisect_right(self._sequences, sequence)
        if not at or self._sequences[at - 1] < self.first:  # a mark from before its head was found damaged
            return Place(self.number, self.start, self.first)
        return Place(self.number, self._offsets[at - 1], self._sequences[at - 1])

    def cut(self, end: int, stop: int) -> None:
        """Forget what was written beyond a place."""
        self.end, self.stop = end, stop
        at = bisect_right(self._sequences, end)
        del self._sequences[at:], self._offsets[at:]


class Chunks:
    """All chunk files of a queue, oldest first."""

    def __init__(self, chunks: list[Chunk] | None = None) -> None:
        self.all = chunks or []

    @property
    def bytes(self) -> int:
        """Bytes of the files on disk."""
        return sum(chunk.stop for chunk in self.all)

    def holding(self, sequence: int) -> Chunk | None:
        """The chunk with a record, or the first one after it that has any."""
        return next((chunk for chunk in self.all if chunk.end > sequence and chunk.end > chunk.first), None)

    def behind(self, cursor: int) -> list[Chunk]:
        """The oldest ones that hold nothing from `cursor` on; never the last, which is written to."""
        done: list[Chunk] = []
        for chunk in self.all[:-1]:
            if chunk.end > cursor:
                break
            done.append(chunk)
        return done
