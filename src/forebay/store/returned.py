"""Partitions of which something went back to the log: what is on the shelf of them may have to wait for it.

The log refuses to have such messages handed out. This is for when it is away, and can't.

Invariant: while the log is away nothing is handed out of a partition of which something went back, unless the
log has let something out of it since. The memory it takes is bounded: of very many partitions, all wait.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from forebay.log.seam import Unchecked
from forebay.warm.values import Leased

PARTITIONS_MAX: Final = 10_000


class Returned:
    """See the module; for the ordered queue of one group."""

    def __init__(self) -> None:
        self._partitions: set[str] = set()

    def add(self, partitions: Iterable[str]) -> None:
        """Something of these went back."""
        if len(self._partitions) <= PARTITIONS_MAX:
            self._partitions.update(partitions)

    def clear(self) -> None:
        """The shelf is empty: what comes to it comes from the log, in order."""
        self._partitions.clear()

    def check(self, leased: Sequence[Leased], late: Sequence[int]) -> Sequence[int]:
        """Which of these messages must wait: those that the log refuses, or would if it were there."""
        if isinstance(late, Unchecked):
            late = [i for i, piece in enumerate(leased) if self._waits(piece.lease.partition or "")]
        elif self._partitions:
            refused = {leased[i].lease.partition for i in late}
            marked = {piece.lease.partition or "" for piece in leased if piece.lease.partition not in refused}
            self._partitions -= marked
        self.add(leased[i].lease.partition or "" for i in late)
        return late

    def _waits(self, partition: str) -> bool:
        return len(self._partitions) > PARTITIONS_MAX or partition in self._partitions
