"""Which files of which folders are replayed, in which order, and what goes together: pure functions.

Invariants: older files come before newer ones, whichever server wrote them, and what was refused of a file
comes before the rest of it; a group is files that follow each other in that order; a file is in one group.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from forebay.log.values import Queue
from forebay.spool.names import FAILED, FileName

GROUP_BYTES: Final = 8 << 20
"""What one task stages and one transaction publishes, unless a single file is larger."""
GROUP_FILES_MAX: Final = 500
_SLOW_BYTES_PER_SECOND: Final = 1 << 20
_SPARE_SECONDS: Final = 600.0


class Source(msgspec.Struct, frozen=True):
    """A file to be replayed."""

    folder: str
    name: FileName
    size: int
    failed: bool = False

    @property
    def path(self) -> str:
        """Within its folder."""
        return f"{FAILED}/{self.name}" if self.failed else str(self.name)

    @property
    def shown(self) -> str:
        """With its folder."""
        return f"{self.folder}/{self.path}"

    @property
    def key(self) -> str:
        """What the log remembers it by: its name, which has an id, wherever it was copied to."""
        return self.path


def in_order(sources: Iterable[Source]) -> list[Source]:
    """Oldest first."""
    return sorted(sources, key=lambda source: (source.name, not source.failed, source.folder))


def grouped(sources: Sequence[Source], *, bytes_max: int = GROUP_BYTES) -> list[list[Source]]:
    """Files that follow each other, as many as fit."""
    groups: list[list[Source]] = []
    room = 0
    for source in sources:
        if not groups or source.size > room or len(groups[-1]) >= GROUP_FILES_MAX:
            groups.append([])
            room = bytes_max
        groups[-1].append(source)
        room -= source.size
    return groups


class Deduping(msgspec.Struct, frozen=True):
    """Which queues find repeated transaction ids by themselves while all of this is replayed."""

    safe: frozenset[str]
    unsafe: frozenset[str]
    fresh_is_safe: bool
    """Whether a queue that isn't there yet will."""

    @property
    def is_needed(self) -> bool:
        """Whether anybody else has to look."""
        return bool(self.unsafe) or not self.fresh_is_safe

    def looks_at(self, queue: str) -> bool:
        """Whether messages of a queue have to be compared here."""
        return queue not in self.safe and (queue in self.unsafe or not self.fresh_is_safe)


def deduping(queues: Sequence[Queue], size: int, fresh_seconds: float) -> Deduping:
    """Who has to look for repeated transaction ids, if so many bytes are replayed, at a slow pace at that.

    A log finds them for `dedupe_seconds`. Where that may be over before the last file is in, or is switched
    off, they are looked for before.
    """
    seconds = _SPARE_SECONDS + size / _SLOW_BYTES_PER_SECOND
    safe = frozenset(queue.name for queue in queues if queue.settings.dedupe_seconds >= seconds)
    return Deduping(safe, frozenset(queue.name for queue in queues) - safe, fresh_seconds >= seconds)


Repeated = Mapping[str, Sequence[tuple[int, int]]]
"""By file (as shown): entry and message, counted from 0, whose transaction id an earlier message has."""
