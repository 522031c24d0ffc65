"""Backing: the verbs of FastQueue that a send queue uses, and the same in memory for `type: memory`."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

import msgspec

from forebay.fastqueue.record import Record

__all__ = ["Backing", "BackingCounts", "MemoryBacking"]


class BackingCounts(msgspec.Struct, frozen=True, kw_only=True):
    """Counters of an entry store, for metrics."""

    memory_blocks: int = 0
    disk_bytes: int = 0
    meta_syncs: int = 0
    chunk_rotations: int = 0
    memory_flushes: int = 0
    corruptions: int = 0


class Backing(Protocol):
    """Where entries are until they are acked. Used by one thread at a time."""

    @property
    def entry_count(self) -> int:
        """Entries that aren't acked."""
        ...

    @property
    def total_bytes(self) -> int:
        """Their bytes."""
        ...

    def push(self, datas: Sequence[bytes]) -> range:
        """Keep entries; they are as safe as the settings say when it returns."""
        ...

    def read(self, count: int, bytes_max: int) -> list[Record]:
        """The next entries, in order."""
        ...

    def unread(self, sequence: int) -> None:
        """Have `read` go on from an entry that was read before; those that are acked don't come again."""
        ...

    def ack(self, sequences: Iterable[int]) -> object:
        """Forget entries, in any order."""
        ...

    def sync(self) -> None:
        """Make safe what was pushed and acked, whatever the settings say."""
        ...

    def tick(self) -> None:
        """Do what is due: sync, write positions."""
        ...

    def counts(self) -> BackingCounts:
        """The counts so far."""
        ...

    def close(self) -> None:
        """Write what isn't written; the next one to open it finds everything."""
        ...


class MemoryBacking:
    """Entries in memory only: what a process that ends leaves behind is nothing."""

    def __init__(self, clock: Callable[[], int]) -> None:
        self._clock = clock
        self._records: dict[int, Record] = {}
        self._next = 0
        self._reading = 0
        self.total_bytes = 0

    @property
    def entry_count(self) -> int:
        """Entries that aren't acked."""
        return len(self._records)

    def push(self, datas: Sequence[bytes]) -> range:
        """Keep entries."""
        first, now = self._next, self._clock()
        for data in datas:
            self._records[self._next] = Record(self._next, now, data)
            self._next += 1
            self.total_bytes += len(data)
        return range(first, self._next)

    def read(self, count: int, bytes_max: int) -> list[Record]:
        """The next entries, in order; one at least, however large it is."""
        found: list[Record] = []
        room = bytes_max
        while len(found) < count and self._reading < self._next:
            record = self._records.get(self._reading)
            if record is not None:
                room -= len(record.data)
                if found and room < 0:
                    break
                found.append(record)
            self._reading += 1
        return found

    def unread(self, sequence: int) -> None:
        """Have `read` go on from an entry that was read before."""
        self._reading = sequence

    def ack(self, sequences: Iterable[int]) -> None:
        """Forget entries."""
        for sequence in sequences:
            with contextlib.suppress(KeyError):
                self.total_bytes -= len(self._records.pop(sequence).data)

    def sync(self) -> None:
        """Nothing is ever safe."""

    def tick(self) -> None:
        """Nothing is ever due."""

    def counts(self) -> BackingCounts:
        """Only how many there are."""
        return BackingCounts(memory_blocks=len(self._records))

    def close(self) -> None:
        """Forget everything."""
        self._records.clear()
