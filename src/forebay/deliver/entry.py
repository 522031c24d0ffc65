"""An entry of a send queue while it is in memory: its bytes, and how far its delivery is."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

from forebay.deliver.values import Request

__all__ = ["Entry", "EntryState", "Part"]


class EntryState(IntEnum):
    """Where an entry is."""

    READY = 0
    DELAYED = 1
    """Waits for the time of its next attempt."""
    LEASED = 2
    """A worker has it."""
    WRITING = 3
    """It was in memory only, and is on its way to the disk."""
    GONE = 4
    """Settled, or dropped."""


class Part(NamedTuple):
    """A part of a request that had to be split; `path` says which half of which half it is, as `01`."""

    path: str
    request: Request


class Entry:
    """One request that is on its way.

    The sequence number is its id and its place in line, in all attempts; so is the time at which it came.
    """

    __slots__ = (
        "attempts", "data", "enqueued_at_us", "is_ordered", "is_volatile", "parts", "sequence", "size",
        "state",
    )  # fmt: skip

    def __init__(
        self,
        sequence: int,
        enqueued_at_us: int,
        data: bytes,
        *,
        is_volatile: bool = False,
        is_ordered: bool = False,
    ) -> None:
        self.sequence = sequence
        self.enqueued_at_us = enqueued_at_us
        self.data = data
        self.size = len(data)
        self.attempts = 0
        self.state = EntryState.READY
        self.parts: list[Part] | None = None
        """The parts left of a request that had to be split; None while it is whole."""
        self.is_volatile = is_volatile
        """Only in memory: the disk wouldn't take it."""
        self.is_ordered = is_ordered
        """No other ordered entry is sent before it is settled."""

    def __lt__(self, other: Entry) -> bool:
        return self.sequence < other.sequence
