"""MemoryQueue: a bounded safety net for entries that the disk doesn't take.

Invariants: never more entries or bytes than the limits; the oldest goes first.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Final

from forebay.deliver.disk_round import Done
from forebay.deliver.entry import Entry, EntryState
from forebay.model import ForebayError

__all__ = ["DRAIN_COUNT", "DRAIN_SECONDS", "MEMORY_QUEUE_BYTES", "MEMORY_QUEUE_SIZE", "MemoryQueue"]

MEMORY_QUEUE_SIZE: Final = 1000
MEMORY_QUEUE_BYTES: Final = 256_000_000
DRAIN_SECONDS: Final = 5.0
"""How often the disk is tried again."""
DRAIN_COUNT: Final = 10
"""Entries that one try takes; while the disk takes them, the next try follows at once."""
_IDLE: Final = (EntryState.READY, EntryState.DELAYED)


class MemoryQueue:
    """Entries in the order in which they came."""

    def __init__(self, size_max: int = MEMORY_QUEUE_SIZE, bytes_max: int = MEMORY_QUEUE_BYTES) -> None:
        self._size_max = size_max
        self._bytes_max = bytes_max
        self._entries: dict[int, Entry] = {}
        self._waiting: dict[int, Done] = {}
        self.bytes_held = 0

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[Entry]:
        return iter(list(self._entries.values()))

    def add(self, entry: Entry, done: Done) -> list[Entry]:
        """Take in an entry; return those that have to make room for it, itself where it is too large.

        The caller removes them.
        """
        self._entries[entry.sequence] = entry
        self._waiting[entry.sequence] = done
        self.bytes_held += entry.size
        evicted: list[Entry] = []
        size, held = len(self._entries), self.bytes_held
        idle = (one for one in self._entries.values() if one.state in _IDLE and one is not entry)
        while size > self._size_max or held > self._bytes_max:
            evicted.append(next(idle, entry))
            size, held = size - 1, held - evicted[-1].size
        return evicted

    def remove(self, entry: Entry, error: ForebayError | None = None) -> None:
        """Forget an entry, and tell its pusher what became of it."""
        del self._entries[entry.sequence]
        self.bytes_held -= entry.size
        self._waiting.pop(entry.sequence)(error)

    def idle(self, count: int) -> list[Entry]:
        """The oldest entries that nobody sends or writes, up to `count`."""
        return list(islice((entry for entry in self._entries.values() if entry.state in _IDLE), count))
