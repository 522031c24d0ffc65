"""Which files of which folders are replayed, in which order, and what goes together: pure functions.

Invariants: older files come before newer ones, whichever server wrote them, and what was refused of a file
comes before the rest of it; a group is files that follow each other in that order; a file is in one group.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from forebay.log.intake import dedupe_us, remembered_us
from forebay.log.values import Queue, QueueSettings
from forebay.spool.names import FAILED, FileName

GROUP_BYTES: Final = 8 << 20
"""What one task stages and one transaction publishes, unless a single file is larger."""
GROUP_FILES_MAX: Final = 500
_SLOW_BYTES_PER_SECOND: Final = 1 << 20
_SPARE_SECONDS: Final = 600.0
_SECOND: Final = 1_000_000
_REMEMBER_US: Final = 7 * 86_400 * _SECOND
"""How long logs remember ids, unless they are told otherwise."""


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
    windows: Mapping[str, int]
    """Of the others, how far apart messages must be accepted to be two, in microseconds; 0 for any time."""
    fresh: int | None
    """The window of a queue that isn't there yet; None where it will find them by itself."""

    @property
    def is_needed(self) -> bool:
        """Whether anybody else has to look."""
        return bool(self.windows) or self.fresh is not None

    def window(self, queue: str) -> int | None:
        """The window by which messages of a queue have to be compared here; None if it does so itself."""
        return None if queue in self.safe else self.windows.get(queue, self.fresh)


def deduping(queues: Sequence[Queue], size: int, fresh: QueueSettings) -> Deduping:
    """Who has to look for repeated transaction ids, if so many bytes are replayed, at a slow pace at that.

    A log finds them for as long as it remembers them. Where that may be over before the last file is in, or
    is switched off, they are looked for before.
    """
    seconds = _SPARE_SECONDS + size / _SLOW_BYTES_PER_SECOND

    def is_safe(settings: QueueSettings) -> bool:
        return remembered_us(settings, _REMEMBER_US) >= seconds * _SECOND

    safe = frozenset(queue.name for queue in queues if is_safe(queue.settings))
    windows = {queue.name: dedupe_us(queue.settings) for queue in queues if queue.name not in safe}
    return Deduping(safe, windows, None if is_safe(fresh) else dedupe_us(fresh))


Place = tuple[int, int, int, int]
"""Task, file, entry and message, each by its number: where a message is among all that is replayed."""


def repeated(places: Sequence[tuple[Place, int]], window: int) -> list[Place]:
    """Of messages with one transaction id, in order, each with when it was accepted: those that aren't new.

    As a log would find them: by the one before them that was accepted last, of those that were new.
    """
    found: list[Place] = []
    last: int | None = None
    for place, at in places:
        if last is not None and (not window or abs(at - last) < window):
            found.append(place)
        else:
            last = at if last is None else max(last, at)
    return found


Repeated = Mapping[str, Sequence[tuple[int, int]]]
"""By file (as shown): entry and message, counted from 0, whose transaction id an earlier message has."""
