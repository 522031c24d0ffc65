"""Dead letters: entries that can't be delivered for good, with the reason, in a queue of their own.

Invariants: never more letters or bytes than the limits; the oldest go first, and are counted. A letter that
can't be read is never chosen, so it stays.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

import msgspec

from forebay.deliver.entry_store import Backing
from forebay.fastqueue.record import Record
from forebay.model import ForebayError

__all__ = [
    "DEAD_BYTES", "DEAD_SIZE", "DeadLetter", "DeadLetters", "KeptLetter", "LetterChoice", "letters_of",
]  # fmt: skip

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
    id: str = ""
    """The id of the request in all its attempts; nothing in letters of early versions."""


_DECODER: Final = msgspec.msgpack.Decoder(DeadLetter)


class KeptLetter(NamedTuple):
    """A letter, and where it is kept."""

    sequence: int
    letter: DeadLetter

    @property
    def id(self) -> str:
        """Its id; one without gets the place where it is kept."""
        return self.letter.id or f"dead-{self.sequence}"


class LetterChoice(msgspec.Struct, frozen=True, kw_only=True):
    """Which letters are meant: all of them, unless something is said."""

    ids: frozenset[str] | None = None
    reason: str = ""
    """A part of the reason."""

    def has(self, kept: KeptLetter) -> bool:
        """Tell if a letter is meant."""
        return (self.ids is None or kept.id in self.ids) and self.reason in kept.letter.reason


class DeadLetters:
    """The letters of one destination; any thread may call it."""

    def __init__(self, backing: Backing, size_max: int = DEAD_SIZE, bytes_max: int = DEAD_BYTES) -> None:
        self._backing = backing
        self._size_max = size_max
        self._bytes_max = bytes_max
        self._oldest: list[Record] = []
        self._lock = threading.Lock()
        self.dropped = 0
        """Letters that made room for newer ones."""
        self.count = backing.entry_count

    def add(self, letters: Sequence[bytes]) -> None:
        """Keep letters; the oldest make room for them."""
        with self._lock:
            self._backing.push(letters)
            while self._backing.entry_count > self._size_max or self._backing.total_bytes > self._bytes_max:
                if not self._oldest and not self._read_if_possible():
                    break
                self._backing.ack([self._oldest.pop(0).sequence])
                self.dropped += 1
            self._backing.tick()
            self.count = self._backing.entry_count

    def page(self, first: int) -> tuple[list[KeptLetter], int | None]:
        """Some letters from sequence number `first` on, and where to go on; None where these are the last.

        `first` is 0, or what the page before said.
        """
        with self._lock:
            self._backing.unread(first)
            try:
                records = self._backing.read(_PAGE, _PAGE_BYTES)
            finally:
                self._oldest = []
                self._backing.unread(0)
        return list(_kept(records)), records[-1].sequence + 1 if records else None

    def remove(self, sequences: Iterable[int]) -> None:
        """Forget letters for good; they are gone after a crash, too, when it returns."""
        with self._lock:
            self._backing.ack(sequences)
            self._backing.sync()
            self.count = self._backing.entry_count

    def close(self) -> None:
        """Let go of the folder."""
        self._backing.close()

    def _read_if_possible(self) -> bool:
        try:
            return self._read()
        except ForebayError:  # a letter that is kept is not refused because an older one can't be read
            return False

    def _read(self) -> bool:
        self._oldest = list(self._backing.read(_PAGE, _PAGE_BYTES))
        return bool(self._oldest)


def letters_of(backing: Backing) -> Iterator[KeptLetter]:
    """Every letter that can be read, the oldest first."""
    while records := backing.read(_PAGE, _PAGE_BYTES):
        yield from _kept(records)


def _kept(records: Iterable[Record]) -> Iterator[KeptLetter]:
    for record in records:
        try:
            yield KeptLetter(record.sequence, _DECODER.decode(record.data))
        except msgspec.MsgspecError:
            continue
