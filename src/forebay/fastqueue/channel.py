"""The memory channel: the latest records, in order, for readers that are close behind.

Invariants: it holds records with consecutive sequence numbers, from `start` to the last one that was pushed.
"""

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate

from forebay.fastqueue.record import Record


class Channel:
    """Records from sequence number `start` on."""

    def __init__(self, start: int, *, blocks_max: int, bytes_max: int) -> None:
        self.start = start
        self.bytes = 0
        self._blocks_max = blocks_max
        self._bytes_max = bytes_max
        self._records: list[Record] = []

    def __len__(self) -> int:
        return len(self._records)

    @property
    def end(self) -> int:
        """The sequence number after the last record."""
        return self.start + len(self._records)

    @property
    def is_over(self) -> bool:
        """Whether it holds more than it should."""
        return len(self._records) > self._blocks_max or self.bytes > self._bytes_max

    def add(self, records: Sequence[Record], size: int) -> None:
        """Records were pushed; `size` is their bytes."""
        self._records += records
        self.bytes += size

    def slice(self, first: int, end: int) -> list[Record]:
        """The records from `first` up to `end`, not including it."""
        return self._records[first - self.start : end - self.start]

    def within(self, first: int, end: int, bytes_max: int, *, least: int) -> list[Record]:
        """The first of those records that have no more than so many bytes; at least `least`."""
        records = self.slice(first, end)
        sizes = [len(record.data) for record in records]
        if sum(sizes) <= bytes_max:
            return records
        return records[: max(least, bisect_right(list(accumulate(sizes)), bytes_max))]

    def drop_before(self, sequence: int) -> None:
        """Forget the records before a number; beyond the end, those that come begin there."""
        if sequence <= self.start:
            return
        gone = self._records[: sequence - self.start]
        self.bytes -= sum([len(record.data) for record in gone])
        del self._records[: len(gone)]
        self.start = sequence

    def drop_from(self, sequence: int) -> None:
        """Forget the records from a number on: their push failed."""
        at = sequence - self.start
        self.bytes -= sum([len(record.data) for record in self._records[at:]])
        del self._records[at:]
