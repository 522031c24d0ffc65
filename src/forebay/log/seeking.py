"""Rules of going on from another place that hold for every log: where that is, and what the books say of it.

Pure functions. The reasons are in docs/adr/0013-what-a-seek-does-to-the-books.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from forebay.log.values import DeadLetter, Group, Position, Sought
from forebay.model import SEQUENCE_MAX, TIME_MAX, Rejected, bitmap, queue_of, sequence_of

ADVANCED_DEAD_MAX: Final = 10_000


def check_start(start: object) -> None:
    """Raise Rejected unless it says where a group begins."""
    if isinstance(start, Position):
        sequence = start.sequence
        if type(sequence) is not int or not 1 <= sequence <= SEQUENCE_MAX:
            raise Rejected(f"{sequence!r} is no sequence number", hint=f"give 1 to {SEQUENCE_MAX}")
    elif isinstance(start, str):
        if start not in {"earliest", "latest"}:
            raise Rejected(f"a group can't begin at {start!r}", hint='give "earliest" or "latest"')
    elif type(start) is not int or not 0 <= start <= TIME_MAX:
        hint = 'give "earliest", "latest", a time in whole microseconds since 1970, or a position'
        raise Rejected(f"a group can't begin at {start!r}", hint=hint)


def kept_position(position: Position, floor: int, upcoming: int) -> int:
    """The sequence number to begin at, of what is kept from `floor` to before `upcoming`; or Rejected."""
    if position.sequence > upcoming:
        text = f"position {position.sequence} is past the end: the next message will be {upcoming}"
        raise Rejected(text, hint='give "latest" to begin with the next message')
    return max(floor, position.sequence)


def check_dead(group: Group, to: int, dead: Sequence[DeadLetter]) -> None:
    """Raise Rejected unless these are messages before a place, each once."""
    if len(dead) > ADVANCED_DEAD_MAX:
        text = f"{len(dead)} dead letters at once, over {ADVANCED_DEAD_MAX}"
        raise Rejected(text, hint="advance in smaller steps")
    ids = {letter.message_id for letter in dead}
    if len(ids) < len(dead):
        raise Rejected("a message dies twice", hint="name each dead letter once")
    for message_id in ids:
        if queue_of(message_id) != group.queue or sequence_of(message_id) >= to:
            text = f"message {message_id} is not before position {to} of the group's queue"
            raise Rejected(text, hint="name only messages that the group has come past")


def no_reader(group: Group) -> Rejected:
    """What is said to a reader that buries messages of a group with workers."""
    text = f"messages of group {group.name} are claimed by workers"
    return Rejected(text, hint="read with a group of its own, or let its workers bury them")


def unfinished_from(done: bytes, count: int, offset: int) -> int:
    """How many messages of a claim from an offset on are not finished."""
    if offset >= count:
        return 0
    left = bitmap.minus(bitmap.full(count), done)
    return bitmap.count(left) if offset <= 0 else sum(i >= offset for i in bitmap.indexes(left))


class Reckoning(msgspec.Struct, frozen=True, kw_only=True):
    """What a seek does to the books of a group.

    `start` is where the group began, `place` where it goes, `upcoming` the number of the next message;
    `ready` is all that it had not claimed. Of what lies from the place on, `claimed` had been claimed (by
    the cursor, and since `start`) and `returned` is still held or deferred; `dropped` is so before it.
    """

    start: int
    place: int
    upcoming: int
    ready: int
    claimed: int
    returned: int
    dropped: int

    @property
    def _waiting(self) -> int:
        """What lies from the place on, and had not been claimed."""
        return self.upcoming - max(self.place, self.start) - self.claimed

    @property
    def _passed(self) -> int:
        """What lies before the place, and had not been claimed."""
        return self.ready - self._waiting

    @property
    def skipped(self) -> int:
        """What becomes purged."""
        return self._passed + self.dropped

    @property
    def again(self) -> int:
        """What is accepted once more."""
        return self.upcoming - self.place - self._waiting - self.returned

    @property
    def earlier_change(self) -> int:
        """By how much more was accepted before the new start than before the old one."""
        return self.again + self.place - self.start

    @property
    def claimed_change(self) -> int:
        """By how much more counts as claimed: afterwards, all from the place on is ready."""
        return self._passed - self.returned

    def sought(self, group: Group, *, dry_run: bool) -> Sought:
        """The answer; `group` is as it was before."""
        if not dry_run:
            group = Group(group.number, group.queue, group.name, self.place, group.sought + 1)
        return Sought(group=group, skipped=self.skipped, again=self.again, returned=self.returned)
