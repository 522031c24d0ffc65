"""What is in the spool and not in the log: who has to line up behind it.

Pushes to a partition of which something is spooled go to the spool, too, or they would overtake it. Once the
log is back that must come to an end however much is pushed: for each message that is replayed somewhat less
than one may line up, and when little is left whoever pushes waits for the rest of it.

Invariants: a partition is free only if nothing of it is in the spool; the memory it takes is bounded: of a
queue with very many partitions in the spool it is only known that it has some.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import Final

from forebay.model import Block
from forebay.spool.names import FileName

PARTITIONS_MAX: Final = 10_000
"""Partitions of a queue that are told apart."""
SHARE: Final = 0.25
"""How many may line up for each that is replayed: so a third more than was spooled is replayed in all."""


class _Lane:
    """What is spooled of one queue."""

    __slots__ = ("blocks", "events", "partitions")

    def __init__(self) -> None:
        self.events = 0
        self.blocks = 0
        self.partitions: Counter[str] | None = Counter()
        """How many blocks have something of a partition; None when there are too many."""

    def add(self, block: Block) -> None:
        self.events += len(block)
        self.blocks += 1
        if self.partitions is not None:
            self.partitions.update(block.partition_table)
            if len(self.partitions) > PARTITIONS_MAX:
                self.partitions = None

    def remove(self, block: Block) -> None:
        self.events -= len(block)
        self.blocks -= 1
        if self.partitions is not None:
            self.partitions.subtract(block.partition_table)
            for partition in block.partition_table:
                if self.partitions[partition] <= 0:
                    del self.partitions[partition]

    def is_free(self, partitions: Sequence[str]) -> bool:
        return self.partitions is not None and not any(p in self.partitions for p in partitions)


class Backlog:
    """See the module. `little` is how many messages are worth waiting for."""

    def __init__(self, before: Sequence[FileName] = (), *, little: int) -> None:
        self._little = little
        self._lanes: dict[str, _Lane] = {}
        self._before = set(before)
        self._progress = asyncio.Event()
        self._lined_up = 0
        self._replayed = 0
        self.events = 0
        """Messages that were spooled since the start, and are not in the log."""

    @property
    def queues(self) -> dict[str, int]:
        """The same by queue."""
        return {name: lane.events for name, lane in self._lanes.items()}

    @property
    def before(self) -> int:
        """Files that are left of what was there at the start: nobody knows of which partitions they are."""
        return len(self._before)

    def is_before(self, name: FileName) -> bool:
        """Whether a file was there at the start."""
        return name in self._before

    def is_free(self, queue: str, partitions: Sequence[str]) -> bool:
        """Whether nothing of these partitions is in the spool."""
        if self._before:
            return False
        lane = self._lanes.get(queue)
        return lane is None or lane.is_free(partitions)

    def admits(self, events: int) -> bool:
        """Whether so many more may line up while the spool is being replayed."""
        is_much = bool(self._before) or self.events > self._little
        return is_much and self._lined_up + events <= SHARE * self._replayed + self._little

    def add(self, queue: str, block: Block) -> None:
        """A block goes to the spool."""
        lane = self._lanes.get(queue)
        if lane is None:
            lane = self._lanes[queue] = _Lane()
        lane.add(block)
        self.events += len(block)
        self._lined_up += len(block)

    def remove(self, queue: str, block: Block, *, replayed: bool = True) -> None:
        """A block is in the log, or was set aside, or never came to the spool."""
        if replayed:
            self._replayed += len(block)
        else:
            self._lined_up -= len(block)
        lane = self._lanes.get(queue)
        if lane is not None:
            lane.remove(block)
            self.events -= len(block)
            if lane.blocks <= 0:
                self.events -= lane.events
                del self._lanes[queue]
        self.move()

    def count_replayed(self, events: int) -> None:
        """So many messages of before the start are in the log."""
        self._replayed += events
        self.move()

    def read(self, name: FileName) -> None:
        """All of a file is in the log, or was set aside."""
        self._before.discard(name)
        self.move()

    def begin(self) -> None:
        """The log is back: from now on it is counted who lines up."""
        self._lined_up = self._replayed = 0
        self.move()

    def clear(self) -> None:
        """The spool is empty."""
        self._lanes.clear()
        self._before.clear()
        self.events = 0
        self.move()

    def move(self) -> None:
        """Let those who wait look again."""
        self._progress.set()
        self._progress = asyncio.Event()

    async def moved(self) -> None:
        """Wait until something has changed."""
        await self._progress.wait()
