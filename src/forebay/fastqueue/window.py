"""Records that were read: their sizes and acknowledgements, from the cursor on.

Invariants: the cursor is the lowest sequence number that isn't acknowledged; a record is acknowledged
once.
"""

from array import array
from collections.abc import Iterable, Sequence
from itertools import compress, islice

_COMPACT: int = 4096


class Window:
    """Records from the cursor up to the highest one that was read, or acknowledged in an earlier run."""

    def __init__(self, cursor: int, acked: Iterable[tuple[int, int]] = ()) -> None:
        self.cursor = cursor
        self._done = bytearray()
        self._sizes = array("Q")
        self._start = 0
        """The cursor's place in `_sizes`: to cut an array at its front at each step would cost its length."""
        for first, last in acked:
            if last >= cursor:
                self._reach(last + 1)
                low = max(first, cursor) - cursor
                self._done[low : last + 1 - cursor] = b"\1" * (last + 1 - cursor - low)
        self.advance()

    @property
    def end(self) -> int:
        """The sequence number after the highest that is known."""
        return self.cursor + len(self._done)

    def is_open(self, sequence: int) -> bool:
        """Whether a record is still to be acknowledged."""
        if sequence >= self.end:
            return True
        return sequence >= self.cursor and not self._done[sequence - self.cursor]

    def has_done(self, first: int) -> bool:
        """Whether any record from `first` on is acknowledged."""
        return self._done.find(1, max(0, first - self.cursor)) >= 0

    def note(self, first: int, sizes: Sequence[int]) -> None:
        """Records from `first` on were read."""
        if first == self.end:
            self._sizes.extend(sizes)
            self._done += bytes(len(sizes))
            return
        self._reach(first + len(sizes))
        at = self._start + first - self.cursor
        self._sizes[at : at + len(sizes)] = array("Q", sizes)

    def ack(self, sequences: Iterable[int]) -> tuple[int, int]:
        """Acknowledge records that were read; how many of them are new, and their bytes."""
        if isinstance(sequences, range) and sequences.step == 1:
            return self._ack_range(max(sequences.start, self.cursor), max(sequences.stop, self.cursor))
        count = size = 0
        done, sizes, cursor, start = self._done, self._sizes, self.cursor, self._start
        for sequence in sequences:
            at = sequence - cursor
            if at >= 0 and not done[at]:
                done[at] = 1
                count += 1
                size += sizes[start + at]
        return count, size

    def _ack_range(self, first: int, end: int) -> tuple[int, int]:
        low, high = first - self.cursor, end - self.cursor
        sizes = self._sizes[self._start + low : self._start + high]
        done = self._done[low:high]
        self._done[low:high] = b"\1" * len(done)
        if 1 not in done:
            return len(done), sum(sizes)
        new = [not flag for flag in done]
        return sum(new), sum(compress(sizes, new))

    def advance(self) -> bool:
        """Move the cursor over what is acknowledged; whether it moved."""
        count = self._done.find(0)
        if count < 0:
            count = len(self._done)
        if count:
            self.cursor += count
            del self._done[:count]
            self._start += count
            if self._start > _COMPACT and self._start * 2 > len(self._sizes):
                del self._sizes[: self._start]
                self._start = 0
        return count > 0

    def acked_ranges(self, count_max: int) -> tuple[list[tuple[int, int]], int, tuple[int, int]]:
        """What is acknowledged beyond the cursor: the lowest `count_max` stretches, by first and last.

        Then the bytes of those, and the count and bytes of what is acknowledged beyond them.
        """
        ranges = list(islice(self._ranges(), count_max))
        end = ranges[-1][1] + 1 - self.cursor if ranges else 0
        kept = sum(compress(self._sizes[self._start : self._start + end], self._done[:end]))
        rest = self._done[end:]
        return ranges, kept, (rest.count(1), sum(compress(self._sizes[self._start + end :], rest)))

    def _ranges(self) -> Iterable[tuple[int, int]]:
        at = self._done.find(1)
        while at >= 0:
            after = self._done.find(0, at)
            if after < 0:
                after = len(self._done)
            yield self.cursor + at, self.cursor + after - 1
            at = self._done.find(1, after)

    def _reach(self, end: int) -> None:
        missing = end - self.end
        if missing > 0:
            self._done += bytes(missing)
            self._sizes.extend([0] * missing)
