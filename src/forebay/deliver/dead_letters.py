"""Dead letters: entries that can't be delivered for good, with the reason, in a queue of their own.

Invariant: never more letters or bytes than the limits; the oldest go first, and are counted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from forebay.deliver.entry_store import Backing
from forebay.fastqueue.record import Record

__all__ = ["DEAD_BYTES", "DEAD_SIZE", "DeadLetter", "DeadLetters", "letters_of"]

DEAD_SIZE: Final = 10_000
DEAD_BYTES: Final = 256 << 20
_PAGE: Final = 256
_PAGE_BYTES: Final = 4 << 20


class DeadLetter(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    """One request that was given up."""

    buried_at_us: int
    enqueued_at_us: int
    attempts: int
    error_class: str
    status: int | None
    reason: str
    answer: bytes
    """The start of the destination's answer."""
    data: bytes
    """The request, as the queue held it."""


_DECODER: Final = msgspec.msgpack.Decoder(DeadLetter)


def _read_letter(data: bytes) -> DeadLetter:
    """The letter that an entry of a queue of dead letters holds."""
    return _DECODER.decode(data)


class DeadLetters:
    """The letters of one destination. Used by one thread at a time."""

    def __init__(self, backing: Backing, size_max: int = DEAD_SIZE, bytes_max: int = DEAD_BYTES) -> None:
        self._backing = backing
        self._size_max = size_max
        self._bytes_max = bytes_max
        self._oldest: list[Record] = []
        self.dropped = 0
        self.count = backing.entry_count

    def add(self, letters: Sequence[bytes]) -> None:
        """Keep letters; the oldest make room for them."""
        self._backing.push(letters)
        while self._backing.entry_count > self._size_max or self._backing.total_bytes > self._bytes_max:
            if not self._oldest and not self._read():
                break
            self._backing.ack([self._oldest.pop(0).sequence])
            self.dropped += 1
        self._backing.tick()
        self.count = self._backing.entry_count

    def close(self) -> None:
        """Let go of the folder."""
        self._backing.close()

    def _read(self) -> bool:
        self._oldest = list(self._backing.read(_PAGE, _PAGE_BYTES))
        return bool(self._oldest)


def letters_of(backing: Backing) -> Iterator[DeadLetter]:
    """Every letter, the oldest first."""
    while records := backing.read(_PAGE, _PAGE_BYTES):
        for record in records:
            yield _read_letter(record.data)
