"""Partitions of which something went back to the log: what is on the shelf of them may have to wait for it.

The log refuses to have such messages handed out. This is for when it is away, and can't.

Invariant: while the log is away nothing is handed out of a partition of which something went back, unless the
log has let out something since that comes after all of it. The memory it takes is bounded: of very many
partitions, all wait.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from forebay.log.seam import Unchecked
from forebay.warm.values import Lease, Leased

PARTITIONS_MAX: Final = 10_000


class Returned:
    """See the module; for the ordered queue of one group."""

    def __init__(self) -> None:
        self._last: dict[str, int] = {}
        """The last message that went back, by partition."""

    def add(self, leases: Iterable[Lease]) -> None:
        """Messages of these leases go back."""
        for lease in leases:
            partition, last = lease.partition or "", lease.first + lease.count - 1
            if partition in self._last or len(self._last) <= PARTITIONS_MAX:
                self._last[partition] = max(last, self._last.get(partition, 0))

    def clear(self) -> None:
        """The shelf is empty: what comes to it comes from the log, in order."""
        self._last.clear()

    def check(self, leased: Sequence[Leased], late: Sequence[int]) -> Sequence[int]:
        """Which of these messages must wait: those that the log refuses, or would if it were there."""
        if isinstance(late, Unchecked):
            late = [i for i, piece in enumerate(leased) if self._waits(piece.lease)]
        elif self._last:
            self._let_out([piece.lease for i, piece in enumerate(leased) if i not in late])
        self.add(leased[i].lease for i in late)
        return late

    def _waits(self, lease: Lease) -> bool:
        return len(self._last) > PARTITIONS_MAX or (lease.partition or "") in self._last

    def _let_out(self, leases: Iterable[Lease]) -> None:
        """The log let these out: nothing that is before them is left."""
        for lease in leases:
            partition = lease.partition or ""
            if lease.first > self._last.get(partition, lease.first):
                del self._last[partition]
