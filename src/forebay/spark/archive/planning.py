"""How far a queue may be archived now, and by which tasks.

A message is archived when it is old enough and every other group has finished with it, so that its outcomes
are known; at the latest when it has waited for so long, or half of the time after which its queue drops
messages that nobody has read.

Invariants: nothing is archived twice, nor out of order; what was dropped before it was archived is a gap.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from fnmatch import fnmatchcase
from typing import Final

import msgspec

from forebay.log.values import Group, GroupStats, Outcome, QueueStats, StoredBlock
from forebay.model import SystemClock, bitmap, sequence_of
from forebay.spark.archive.manifest import Archived
from forebay.spark.archive.writing import PAGE_BYTES, PAGE_MESSAGES, read_outcomes
from forebay.spark.logs import Face
from forebay.spark.offsets import Stretch, split
from forebay.spark.ranges import Kept, first_since

SECOND: Final = 1_000_000

_WILD: Final = frozenset("*?[")
"""Characters that make a name a pattern."""


class ArchiveSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What an archive can be told."""

    path: str
    """The folder that it is in."""
    queues: tuple[str, ...] = ("*",)
    """Names, or patterns with `*` and `?`."""
    group: str = "forebay.archive"
    """The consumer group by which retention waits for the archive."""
    after: float = 300.0
    """Messages are archived when they are so old, in seconds, and all other groups have done with them."""
    wait_max: float = 86_400.0
    """And when they are so old, in seconds, whether the others have finished or not."""
    run_messages_max: int = 4_000_000
    """What one run archives of a queue at most; the next one goes on."""
    task_messages_max: int = 200_000
    file_bytes_max: int = 128 << 20
    retire_after: float = 3600.0
    """How long files stay that were replaced, in seconds: for those who began to read before."""

    def takes(self, queue: str) -> bool:
        """Whether a queue is archived."""
        return any(fnmatchcase(queue, pattern) for pattern in self.queues)

    def missing(self, queues: Collection[str]) -> list[str]:
        """The names, of those to archive, that no queue has; a pattern may match none."""
        return [name for name in self.queues if name not in queues and not _WILD.intersection(name)]


class Ahead(msgspec.Struct, frozen=True, kw_only=True):
    """What one run does with a queue."""

    stats: QueueStats
    group: Group
    first: int
    """The next message to archive, or the oldest that is left, if that is later."""
    end: int
    lost: tuple[int, int] | None = None
    """First and last of what was dropped before it was archived."""
    early: int = 0
    """Of what is archived: messages that some group has not finished with."""

    def parts(self, most: int) -> list[Stretch]:
        """The stretches of its tasks."""
        return split([Stretch(self.stats.queue.name, self.first, self.end)], 1, most)


def plan(
    face: Face, stats: QueueStats, group: Group, archived: Archived | None, settings: ArchiveSettings
) -> Ahead:
    """How far to go with a queue."""
    now = SystemClock().now()
    first, lost = stats.floor, None
    if archived is not None:
        first = max(archived.next, stats.floor)
        lost = (archived.next, first - 1) if first > archived.next else None
    kept = Kept(stats.queue, first, max(first, stats.next))
    most = min(kept.next, first + settings.run_messages_max)
    others = [each for each in stats.groups if each.group.number != group.number]
    old = (
        min(most, first_since(face, kept, now - int(settings.after * SECOND) + 1)) if first < most else first
    )
    late = min(old, first_since(face, kept, now - _patience(stats, settings) + 1)) if first < old else first
    ready = max(late, _finished(face, stats, others, late, old))
    early = late - min(late, _finished(face, stats, others, first, late)) if late > first else 0
    return Ahead(stats=stats, group=group, first=first, end=ready, lost=lost, early=early)


def _patience(stats: QueueStats, settings: ArchiveSettings) -> int:
    """How long others are waited for, in microseconds."""
    expire = stats.queue.settings.expire_seconds
    return int((settings.wait_max if expire is None else min(settings.wait_max, expire / 2)) * SECOND)


def _finished(face: Face, stats: QueueStats, others: Sequence[GroupStats], first: int, end: int) -> int:
    """Up to where, from `first` on and not beyond `end`, every other group has finished with everything."""
    busy: list[Group] = []
    for books in others:
        mark = mark_of(stats, books)
        if mark is None:
            busy.append(books.group)
        else:
            end = max(first, min(end, mark))
    at = first
    while busy and at < end:
        page = face(face.log.read(stats.queue, at, messages=PAGE_MESSAGES, bytes=PAGE_BYTES))
        page = [block for block in page if sequence_of(block.first) < end]
        if not page:
            return end
        open_at = _first_open(face, busy, page)
        if open_at is not None:
            return max(first, min(end, open_at))
        at = sequence_of(page[-1].last) + 1
    return end


def mark_of(stats: QueueStats, books: GroupStats) -> int | None:
    """Before which sequence number a group has surely finished with everything; None where books can't tell.

    While nothing is out and nothing deferred, what isn't finished is what is ready; an unordered queue has
    one cursor, behind which all of that is.
    """
    if books.held or books.deferred:
        return None
    if not books.unclaimed:
        return stats.next
    return None if stats.queue.settings.ordered else stats.next - books.unclaimed


def _first_open(face: Face, groups: Sequence[Group], page: Sequence[StoredBlock]) -> int | None:
    """The first message of the first block that a group has not finished with, by its outcomes."""
    found: list[int] = []
    for group in groups:
        seen = [block for block in page if sequence_of(block.last) >= group.start]
        for block, outcomes in zip(seen, face(read_outcomes(face.log, group, seen)), strict=True):
            if not is_finished(block, group, outcomes):
                found.append(sequence_of(block.first))
                break
    return min(found, default=None)


def is_finished(block: StoredBlock, group: Group, outcomes: Sequence[Outcome]) -> bool:
    """Whether every message of a block that a group sees is done, expired or dead, by the outcome log."""
    final = set(range(max(0, min(block.count, group.start - sequence_of(block.first)))))
    for outcome in outcomes:
        at = outcome.first - block.first
        final.update(at + offset for offset in bitmap.indexes(outcome.done))
        final.update(at + offset for offset in bitmap.indexes(outcome.expired))
        final.update(at + offset for offset, _, _ in outcome.dead)
    return len(final) >= block.count
