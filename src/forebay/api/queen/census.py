"""How many messages are where, by queue: the books of the log in Queen's words.

Invariants: a message counts once, however many groups its queue has. What is shown is at most half a second
old; those who ask at the same time share one reading of the books. `counts_of` is pure.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from time import monotonic
from typing import TYPE_CHECKING, Final

import msgspec

from forebay.api.queen.directory import PAGE
from forebay.log.values import GroupStats, QueueStats, Stats
from forebay.model import UnknownQueue
from forebay.store.values import DEFAULT_GROUP

if TYPE_CHECKING:
    from forebay.api.queen.desk import Desk

OLD_SECONDS: Final = 0.5
_PARTITIONS_OLD_SECONDS: Final = 10.0
"""So old the number of partitions of a queue may be that is pushed to all the time."""


class Counts(msgspec.Struct, frozen=True, rename="camel"):
    """Messages of a queue, or of several.

    With several groups: what waits is what the group has that is furthest behind, and so for what is out
    with consumers; done is what every group has done with; dead letters are those of all groups. The group of
    those who name none counts only if it was ever used, or is the only one. `total` is all that was ever
    pushed.
    """

    total: int = 0
    pending: int = 0
    processing: int = 0
    completed: int = 0
    failed: int = 0
    """Always 0: what failed waits to come back, or is a dead letter; there is no third place."""
    dead_letter: int = 0

    def __add__(self, other: Counts) -> Counts:
        return Counts(
            *(
                getattr(self, name) + getattr(other, name)
                for name in ("total", "pending", "processing", "completed", "failed", "dead_letter")
            )
        )


def counts_of(found: QueueStats) -> Counts:
    """Where the messages of a queue are."""
    groups = in_use(found)
    return Counts(
        total=found.next - 1,
        pending=max(map(waiting_of, groups), default=found.next - found.floor),
        processing=max((group.handed for group in groups), default=0),
        completed=min((group.done for group in groups), default=0),
        dead_letter=sum(group.dead for group in found.groups),
    )


def added(found: Iterable[QueueStats]) -> Counts:
    """The same for several queues."""
    return sum(map(counts_of, found), Counts())


def waiting_of(group: GroupStats) -> int:
    """What a group has not finished, and nobody has."""
    return group.unclaimed + group.held - group.handed + group.deferred


def in_use(found: QueueStats) -> Sequence[GroupStats]:
    """The groups that say how far a queue is."""
    used = [group for group in found.groups if group.group.name != DEFAULT_GROUP or is_used(group)]
    return used or found.groups


def leading(found: QueueStats) -> GroupStats | None:
    """The group by which a queue's partitions are shown: the one without a name, or the furthest behind."""
    used = in_use(found)
    own = next((group for group in used if group.group.name == DEFAULT_GROUP), None)
    return own or max(used, key=waiting_of, default=None)


def is_used(group: GroupStats) -> bool:
    """Whether somebody takes for a group, or did: something was brought from the log for it."""
    return group.accepted > group.unclaimed


async def books_of(desk: Desk, queue: str | None) -> Sequence[QueueStats]:
    """The books of one queue by its name as we keep it, if it is there; or of all."""
    try:
        return (await desk.store.ledger(queue=queue)).queues
    except UnknownQueue:
        return ()


class Census:
    """The books, remembered for a moment."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._stats: Stats | None = None
        self._read_at = 0.0
        self._reading: asyncio.Task[Stats] | None = None
        self._partitions: dict[tuple[int, int], tuple[int, float, int]] = {}

    @property
    def age_seconds(self) -> float:
        """How old the books are that were last shown."""
        return monotonic() - self._read_at if self._stats is not None else 0.0

    async def stats(self, *, fresh: bool = False) -> Stats:
        """The books; `fresh` ones are read now."""
        if self._stats is None or fresh or self.age_seconds >= OLD_SECONDS:
            return await self._read(fresh=fresh)
        return self._stats

    async def _read(self, *, fresh: bool) -> Stats:
        """Read the books, with all who wait for them; who wants fresh ones takes no reading from before."""
        if self._reading is None or self._reading.done() or fresh:
            self._reading = asyncio.create_task(self._ledger(), name="forebay-census")
            self._reading.add_done_callback(_looked_at)
        return await asyncio.shield(self._reading)

    async def _ledger(self) -> Stats:
        began = monotonic()
        found = await self._desk.store.ledger()
        if began >= self._read_at:  # another reading, that began later, may have been faster
            self._stats, self._read_at = found, began
        for gone in self._partitions.keys() - {_made(one) for one in found.queues}:
            del self._partitions[gone]
        return found

    async def partitions(self, *found: QueueStats) -> list[int]:
        """How many partitions each queue has that were used in Queen's format: at least one.

        Costs by their number where a queue was pushed to since it was last asked, but not more than every ten
        seconds. Of many queues that nobody asked about yet, all are counted in one go.
        """
        now = monotonic()
        missing = [one for one in found if one.queue.settings.ordered and not self._is_known(one, now)]
        counts = await self._count([one.queue.number for one in missing])
        for one in missing:
            self._partitions[_made(one)] = (one.next, now, max(1, counts[one.queue.number]))
        return [known[2] if (known := self._partitions.get(_made(one))) else 1 for one in found]

    def _is_known(self, one: QueueStats, now: float) -> bool:
        known = self._partitions.get(_made(one))
        return known is not None and (known[0] == one.next or now - known[1] < _PARTITIONS_OLD_SECONDS)

    async def _count(self, queues: Sequence[int]) -> Mapping[int, int]:
        directory = self._desk.directory
        if len(queues) > 1 + sum(known[2] for known in self._partitions.values()) // PAGE:
            return await directory.counts()
        return {queue: sum([1 async for _ in directory.names(queue)]) for queue in queues}


def _made(found: QueueStats) -> tuple[int, int]:
    """Which queue it is: one that was deleted and made again under its name has its number, too."""
    return found.queue.number, found.queue.created_at


def _looked_at(reading: asyncio.Task[Stats]) -> None:
    """Nobody may be left to hear that it failed; those who are hear it from the task."""
    if not reading.cancelled():
        reading.exception()
