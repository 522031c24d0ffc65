"""From options to stretches: which queues there are, from where to where each is kept and wanted.

What is asked for and not there is said before anything is read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from forebay.log.values import Queue, QueueStats
from forebay.model import Rejected, UnknownQueue, sequence_of
from forebay.spark.logs import Face
from forebay.spark.options import EARLIEST, LATEST, Offsets, Options
from forebay.spark.skipping import skip

if TYPE_CHECKING:
    from forebay.spark.archive.reading import Span

PATTERN_QUEUES_MAX: Final = 10_000
"""Queues that a pattern may match."""


class DataLoss(Rejected):
    """Messages that should be read are gone: retention dropped them, or they can't be read.

    `queue`, `first` and `last` say which.
    """

    def __init__(
        self, message: str, *, hint: str | None = None, queue: str = "", first: int = 0, last: int = 0
    ) -> None:
        super().__init__(message, hint=hint)
        self.queue = queue
        self.first = first
        self.last = last


def data_loss(queue: str, first: int, end: int, hint: str | None = None) -> DataLoss:
    """The error about messages from `first` up to, but not including, `end`."""
    text = f"messages {first} to {end - 1} of queue {queue!r} are gone: {end - first} in all"
    goes_on = "`failOnDataLoss` = false (in the source of a flow `on_loss: skip`) goes on without them"
    return DataLoss(
        text,
        hint=hint or f"retention dropped them before they were read; {goes_on}",
        queue=queue,
        first=first,
        last=end - 1,
    )


class Kept(msgspec.Struct, frozen=True):
    """A queue, and from where (`floor`) up to where (`next`, not included) it is kept."""

    queue: Queue
    floor: int
    next: int
    span: Span | None = None
    """What an archive has of it, which is read there, up to `live`."""

    @property
    def live(self) -> int:
        """From where on the log is read."""
        return self.floor if self.span is None else self.span.archived.next


def kept_queues(face: Face) -> list[QueueStats]:
    """All queues, as the log has them now."""
    return list(face(face.log.stats()).queues)


def subscribed(found: Sequence[QueueStats], options: Options) -> dict[str, Kept]:
    """The queues to read, by name; UnknownQueue when one that is named isn't there."""
    kept = {
        each.queue.name: Kept(each.queue, each.floor, each.next)
        for each in found
        if options.matches(each.queue.name)
    }
    if missing := [name for name in options.names if name not in kept]:
        known = ", ".join(sorted(each.queue.name for each in found)[:10]) or "none at all"
        raise UnknownQueue(f"there is no queue {missing[0]!r}", hint=f"create it first; there are {known}")
    if len(kept) > PATTERN_QUEUES_MAX:
        text = f"`subscribePattern` matches {len(kept)} queues, more than {PATTERN_QUEUES_MAX}"
        raise Rejected(text, hint="give a narrower one")
    return kept if options.archive is None else _spanned(kept, options.archive)


def _spanned(kept: dict[str, Kept], archive: str) -> dict[str, Kept]:
    """The queues with what an archive has of them."""
    from forebay.spark.archive.reading import spans  # noqa: PLC0415 - who has no archive needs none of it

    found = spans(archive, {name: each.queue.number for name, each in kept.items()})
    return {
        name: Kept(each.queue, span.archived.start, max(each.next, span.archived.next), span)
        if (span := found.get(name)) is not None
        else each
        for name, each in kept.items()
    }


def starts(face: Face, kept: Mapping[str, Kept], options: Options, *, default: Offsets) -> dict[str, int]:
    """Where each queue is begun."""
    if options.startingTimestamp is not None:
        return {name: first_since(face, each, options.startingTimestamp) for name, each in kept.items()}
    wanted = options.startingOffsets
    found = _places(kept, default if wanted is None else wanted, "startingOffsets")
    for name, place in found.items():
        if place < kept[name].floor:
            _gone(face, kept[name], place, options)
    return {name: max(place, kept[name].floor) for name, place in found.items()}


def _gone(face: Face, kept: Kept, place: int, options: Options) -> None:
    error = data_loss(kept.queue.name, place, kept.floor)
    if options.failOnDataLoss:
        raise error
    skip(face, kept.queue, place, kept.floor, error.message)


def ends(face: Face, kept: Mapping[str, Kept], options: Options) -> dict[str, int]:
    """The first sequence number of each queue that is not read."""
    if options.endingTimestamp is not None:
        return {name: first_since(face, each, options.endingTimestamp) for name, each in kept.items()}
    wanted = options.endingOffsets
    found = _places(kept, "latest" if wanted is None else wanted, "endingOffsets")
    return {name: max(place, kept[name].floor) for name, place in found.items()}


def _places(kept: Mapping[str, Kept], wanted: Offsets, option: str) -> dict[str, int]:
    """What was said as sequence numbers, which may be too old."""
    if isinstance(wanted, str):
        place = EARLIEST if wanted == "earliest" else LATEST
        wanted = dict.fromkeys(kept, place)
    if odd := sorted(wanted.keys() ^ kept.keys()):
        what = "is not read here" if odd[0] in wanted else "is left out"
        text = f"option `{option}` has a place for each queue, and {odd[0]!r} {what}"
        raise Rejected(text, hint=f"name exactly {', '.join(sorted(kept)) or 'the queues that there are'}")
    return {name: _place(kept[name], place, option) for name, place in wanted.items()}


def _place(kept: Kept, place: int, option: str) -> int:
    if place == EARLIEST:
        return kept.floor
    if place == LATEST:
        return kept.next
    if place > kept.next:
        text = (
            f"option `{option}` says {place} for {kept.queue.name!r}, whose next message will be {kept.next}"
        )
        raise Rejected(text, hint="give -1 for the next message to come")
    return place


def first_since(face: Face, kept: Kept, time: int) -> int:
    """The first message that the log took at a time or later, by halving; the next one, if there is none.

    Times rise with sequence numbers, and a block has one time.
    """
    if kept.span is not None and (found_at := kept.span.first_since(time)) is not None:
        return found_at
    low, high = kept.live, kept.next
    while low < high:
        middle = (low + high) // 2
        found = face(face.log.read(kept.queue, middle, messages=1, bytes=1))
        if not found or found[0].appended_at >= time:
            high = min(middle, sequence_of(found[0].first)) if found else middle
        else:
            low = sequence_of(found[0].last) + 1
    return low
