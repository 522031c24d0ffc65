"""Image: what the log says of the groups of one slice of a queue, and what has changed since another one.

A slice is a range of sequence numbers. Invariants: what lies outside a slice never changes its image, so that
what is quiet is not looked at; every change of a message's status that isn't of time alone is in `changed`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from forebay.log.values import Progress, Queue
from forebay.model import sequence_of

__all__ = [
    "SLICE", "GroupImage", "Image", "Run", "SliceTask", "changed", "decode_image", "encode_image",
    "group_image", "slices",
]  # fmt: skip

SLICE: Final = 1 << 16
"""Messages of a slice. A block belongs to the slice of its first message."""


class Run(msgspec.Struct, frozen=True, array_like=True):
    """An open claim, by sequence numbers."""

    token: int
    first: int
    count: int
    done: bytes
    handed: bytes
    is_held: bool
    due_at: int
    start_time: int

    @property
    def end(self) -> int:
        """The sequence number behind it."""
        return self.first + self.count


class GroupImage(msgspec.Struct, frozen=True, array_like=True):
    """How far one group has come within a slice."""

    number: int
    name: str
    begin: int
    """The first message that the group ever was to see."""
    again: int
    """Grows when messages are handed out again that were finished."""
    is_fresh: bool
    """It was never sent elsewhere: ahead of its position it has finished nothing."""
    position: int
    lanes: dict[str, int]
    runs: list[Run]
    dead: list[tuple[int, int]]


class Image(msgspec.Struct, frozen=True, array_like=True):
    """All groups of a slice, by number."""

    queue: str
    floor: int
    next: int
    """The sequence number behind the last message of the queue, or of the slice."""
    groups: list[GroupImage]
    rules: str = ""
    """By which labels were read."""


class SliceTask(msgspec.Struct, frozen=True):
    """A slice of a queue, as it is to be folded."""

    queue: Queue
    place: int
    """Which slice it is, from 0."""
    image: Image


_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(Image).decode


def encode_image(image: Image) -> bytes:
    """An image as bytes."""
    return _encode(image)


def decode_image(data: bytes) -> Image:
    """An image from bytes."""
    return _decode(data)


def slices(floor: int, upcoming: int, progress: Iterable[Progress]) -> list[int]:
    """The slices of a queue that have something: messages, or what is left of messages that were dropped."""
    found = set(range(floor // SLICE, (upcoming - 1) // SLICE + 1)) if floor < upcoming else set[int]()
    for each in progress:
        found.update(sequence_of(run.first) // SLICE for run in each.open)
        found.update(sequence_of(message_id) // SLICE for message_id, _ in each.dead)
    return sorted(found)


def group_image(progress: Progress, low: int, high: int) -> GroupImage:
    """What a group's progress says of the messages from `low` to before `high`."""
    accepted = progress.earlier + progress.next - progress.group.start
    return GroupImage(
        number=progress.group.number,
        name=progress.group.name,
        begin=_within(max(1, progress.next - accepted), low, high),
        again=accepted - progress.next,
        is_fresh=not progress.group.sought,
        position=_within(progress.position, low, high),
        lanes={name: min(at, high) for name, at in progress.lanes.items() if at > low},
        runs=[
            Run(
                run.token, first, run.count, run.done, run.handed, run.is_held, run.due_at, run.start_time
            )
            for run in progress.open
            if (first := sequence_of(run.first)) < high and first + run.count > low
        ],
        dead=[
            (sequence, died_at)
            for message_id, died_at in progress.dead
            if low <= (sequence := sequence_of(message_id)) < high
        ],
    )  # fmt: skip


def _within(place: int, low: int, high: int) -> int:
    return min(max(place, low), high)


def changed(old: GroupImage | None, new: GroupImage) -> list[tuple[int, int]] | None:
    """The stretches of messages of which something may have changed; None for all of them."""
    if old is None or (old.name, old.begin, old.again) != (new.name, new.begin, new.again):
        return None
    found = [_between(old.position, new.position)]
    found += [
        _between(old.lanes.get(name, old.position), new.lanes.get(name, new.position))
        for name in old.lanes.keys() | new.lanes.keys()
    ]
    before, now = _by_token(old), _by_token(new)
    found += [
        (run.first, run.end)
        for token in before.keys() | now.keys()
        if before.get(token) != now.get(token)
        for run in (before.get(token), now.get(token))
        if run is not None
    ]
    found += [(sequence, sequence + 1) for sequence, _ in set(old.dead) ^ set(new.dead)]
    return [(first, end) for first, end in found if first < end]


def _between(one: int, other: int) -> tuple[int, int]:
    return min(one, other), max(one, other)


def _by_token(image: GroupImage) -> Mapping[int, Run]:
    return {run.token: run for run in image.runs}
