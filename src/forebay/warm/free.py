"""Partitions of a shelf in memory that may be handed out, found from both ends: the oldest and the newest.

Entries are put in whenever a partition may be handed out, and never taken out when it may not any more: who
asks says which are still true. Invariant: they are no more than twice the partitions, and some.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Final

Head = tuple[int, int]
"""What has waited for longest in a partition: since when, and its id."""

SPARE: Final = 1_000
"""So many entries may be out of date, beside as many as there are partitions."""


class Free:
    """See the module. `is_true` tells whether a partition may be handed out, with this head."""

    def __init__(self, is_true: Callable[[Head, str], bool]) -> None:
        self._is_true = is_true
        self._oldest: list[tuple[Head, str]] = []
        self._newest: list[tuple[Head, str]] = []

    def put(self, head: Head, partition: str, partitions: int) -> None:
        """A partition may be handed out; there are so many in all."""
        if len(self._oldest) + len(self._newest) > 4 * partitions + SPARE:
            self._tidy()
        heapq.heappush(self._oldest, (head, partition))
        heapq.heappush(self._newest, ((-head[0], -head[1]), partition))

    def pop_oldest(self) -> str | None:
        """The partition whose turn it is."""
        while self._oldest:
            head, partition = heapq.heappop(self._oldest)
            if self._is_true(head, partition):
                return partition
        return None

    def pop_newest(self) -> str | None:
        """The partition whose turn comes last."""
        while self._newest:
            (since, message_id), partition = heapq.heappop(self._newest)
            if self._is_true((-since, -message_id), partition):
                return partition
        return None

    def _tidy(self) -> None:
        # What is true is found from both ends: who pops hands out, or puts it in again.
        kept = {entry for entry in self._oldest if self._is_true(*entry)}
        self._oldest = sorted(kept)
        self._newest = sorted(((-head[0], -head[1]), partition) for head, partition in kept)
