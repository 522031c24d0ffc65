"""Where spooled blocks go: a log, or any store.

Invariants: messages of a queue are written in the order in which they are given; what is refused, in the end
single messages, leaves the others alone; written again, a block changes nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, Protocol, TypeVar

import msgspec

from forebay.log.values import Append, Queue, Receipt
from forebay.model import (
    BLOCK_MESSAGES_CEILING,
    Block,
    Clock,
    Conflict,
    Forbidden,
    ForebayError,
    Rejected,
    SystemClock,
    TooLarge,
    Unauthorized,
    Unavailable,
    UnknownQueue,
)
from forebay.spool.lines import derive_id
from forebay.store.values import DEFAULT_GROUP

T = TypeVar("T")
QUEUES_MAX: Final = 10_000
"""Queues that are remembered."""

Addressed = tuple[str, Block]
"""A block and the name of its queue."""


class Refused(msgspec.Struct, frozen=True):
    """What was refused of the block at a place, and why; what else it holds is written."""

    place: int
    block: Block
    error: ForebayError


class Sink(Protocol):
    """Takes blocks in order."""

    async def write(self, blocks: Sequence[Addressed]) -> list[Refused]:
        """Write blocks; what was refused of them. Unavailable when it isn't known of any."""
        ...


class Taker(Protocol):
    """What `LogSink` asks of a log."""

    async def queue(self, name: str) -> Queue:
        """The queue of that name."""
        ...

    async def create_queue(self, name: str, settings: dict[str, Any] | None = None) -> Queue:
        """Make a queue."""
        ...

    async def create_group(self, queue: Queue, name: str) -> object:
        """Make a group."""
        ...

    async def commit(self, appends: Sequence[Append]) -> Receipt:
        """Take blocks, each for itself."""
        ...

    def hang_up(self) -> None:
        """Drop connections that may be dead."""
        ...


Creation = Callable[[str, Block], dict[str, Any] | None]
"""The settings of a queue that isn't there, by its name and the first block for it."""


def by_name(_name: str, _block: Block) -> None:
    """A queue as it is made when only its name is known."""


async def _unheard(_: int) -> None:
    """Nobody waits."""


class LogSink:
    """Writes many blocks in one commit, which may take so many seconds.

    `announce` is told of each queue that has something new; `creation` is asked when a queue has to be made.
    Blocks were accepted when they were made, by `clock`: one of the future counts as accepted now.
    """

    def __init__(
        self,
        log: Taker,
        *,
        create_queues: bool,
        seconds: float = 30.0,
        announce: Callable[[int], Awaitable[None]] = _unheard,
        creation: Creation = by_name,
        clock: Clock | None = None,
    ) -> None:
        self._log = log
        self._clock = clock or SystemClock()
        self._create_queues = create_queues
        self._seconds = seconds
        self._announce = announce
        self._creation = creation
        self._queues: dict[str, Queue] = {}
        self.has_taken = False
        """Whether it took something that it didn't have: one that can only be read knows what it has."""

    async def write(self, blocks: Sequence[Addressed]) -> list[Refused]:
        """Write blocks in one commit; where it is refused, in halves, until only what is to blame is left."""
        try:
            await answered(self._log, self._commit(blocks), self._seconds)
        except (Rejected, Conflict) as error:
            if len(blocks) == 1:
                return await _isolate(self, *blocks[0], error)
            half = len(blocks) // 2
            return [*await self.write(blocks[:half]), *_moved(await self.write(blocks[half:]), half)]
        return []

    async def _commit(self, blocks: Sequence[Addressed]) -> None:
        try:
            await self._append(blocks)
        except UnknownQueue:
            if not self._queues:
                raise
            self._queues.clear()  # one was deleted, and perhaps made anew
            await self._append(blocks)

    async def _append(self, blocks: Sequence[Addressed]) -> None:
        appends: list[Append] = []
        for name, block in blocks:
            queue = self._queues.get(name) or await self._find(name, block)
            waited = block.created_at <= self._clock.now()
            appends.extend(Append.of(queue, part, replayed=waited) for part in _fitting(queue, block))
        receipt = await self._log.commit(appends)
        self.has_taken |= not all(appended.known for appended in receipt.appended)
        for number in {append.queue for append in appends}:
            await self._announce(number)

    async def _find(self, name: str, block: Block) -> Queue:
        try:
            queue = await self._log.queue(name)
        except UnknownQueue:
            if not self._create_queues:
                raise
            queue = await self._log.create_queue(name, self._creation(name, block))
            await self._log.create_group(queue, DEFAULT_GROUP)
        if len(self._queues) >= QUEUES_MAX:
            self._queues.clear()
        self._queues[name] = queue
        return queue


async def answered(log: Taker, work: Awaitable[T], seconds: float) -> T:
    """What the log answers; Unavailable, and its connections are dropped, if that takes too long."""
    timeout = asyncio.timeout(seconds)
    try:
        async with timeout:
            return await work
    except TimeoutError:
        if not timeout.expired():
            raise
        log.hang_up()
        raise Unavailable(f"no answer within {seconds:g} seconds", retry_after_seconds=1.0) from None


class Target(Protocol):
    """What `StoreSink` asks of a store."""

    async def append(self, queue: str, block: Block, *, replayed: bool) -> object:
        """Write a block, which waited in a spool since it was made."""
        ...

    async def create_queue(self, name: str, settings: dict[str, Any] | None = None) -> object:
        """Make a queue."""
        ...

    async def queue(self, name: str) -> Queue:
        """What is known of a queue."""
        ...


class StoreSink:
    """Writes blocks one by one, queues side by side: to a server, or to a store of any kind.

    A key that isn't good is raised, like a store that is away. `creation` is asked when a queue has to be
    made.
    """

    def __init__(self, store: Target, *, create_queues: bool = True, creation: Creation = by_name) -> None:
        self._store = store
        self._create_queues = create_queues
        self._creation = creation

    async def write(self, blocks: Sequence[Addressed]) -> list[Refused]:
        """Write blocks."""
        by_queue: dict[str, list[int]] = {}
        for place, (queue, _) in enumerate(blocks):
            by_queue.setdefault(queue, []).append(place)
        refused: list[Refused] = []

        async def write_queue(places: Sequence[int]) -> None:
            for place in places:
                refused.extend(_moved(await self._write(*blocks[place]), place))

        ends = await asyncio.gather(*map(write_queue, by_queue.values()), return_exceptions=True)
        for end in ends:  # nobody goes on writing behind the back of whoever begins again
            if isinstance(end, BaseException):
                raise end
        return refused

    async def _write(self, name: str, block: Block) -> list[Refused]:
        try:
            await self._append(name, block)
        except (Unauthorized, Forbidden):
            raise  # no message is to blame for the key
        except (Rejected, Conflict) as error:
            if parts := await self._parts(name, block, error):
                return [refused for part in parts for refused in await self._write(name, part)]
            return await _isolate(self, name, block, error)
        return []

    async def _append(self, name: str, block: Block) -> None:
        try:
            await self._store.append(name, block, replayed=True)
        except UnknownQueue:
            if not self._create_queues:
                raise
            await self._store.create_queue(name, self._creation(name, block))
            await self._append(name, block)

    async def _parts(self, name: str, block: Block, error: ForebayError) -> Sequence[Block]:
        """What a block has to be divided into for an ordered queue, if that may be why it was refused."""
        if len(block.partition_table) == 1 or type(error) is not Rejected:
            return ()
        try:
            queue = await self._store.queue(name)
        except Forbidden:  # the key is for pushing only, and halves of halves come to the same
            return ()
        return _fitting(queue, block) if queue.settings.ordered else ()


def _fitting(queue: Queue, block: Block) -> Sequence[Block]:
    """A block as a queue can take it: an ordered one wants those of each partition by themselves.

    The parts have ids that follow from the block's, so they are the same each time.
    """
    if not queue.settings.ordered or len(block.partition_table) == 1:
        return (block,)
    by_partition: dict[str, list[int]] = {}
    for place, message in enumerate(block):
        by_partition.setdefault(message.partition, []).append(place)
    return [
        Block.of(
            [block.message(place) for place in places],
            id=derive_id(block.id, BLOCK_MESSAGES_CEILING + places[0]),
            created_at=block.created_at,
        )
        for places in by_partition.values()
    ]


async def _isolate(sink: Sink, queue: str, block: Block, error: ForebayError) -> list[Refused]:
    """Write all but what is to blame for the refusal of a block; that, each with why."""
    if len(block) == 1 or type(error) not in (Rejected, TooLarge):
        return [Refused(0, block, error)]
    refused: list[Refused] = []
    for half in _halves(block):
        refused += await sink.write([(queue, half)])
    return refused


def _moved(refused: Sequence[Refused], by: int) -> list[Refused]:
    return [msgspec.structs.replace(each, place=each.place + by) for each in refused]


def _halves(block: Block) -> Sequence[Block]:
    """The two halves of a block that was refused whole, under ids that follow from its own."""
    middle, size = len(block) // 2, len(block)
    return [
        Block.of(
            [block.message(place) for place in range(begin, end)],
            id=derive_id(block.id, begin << 32 | end),
            created_at=block.created_at,
        )
        for begin, end in ((0, middle), (middle, size))
    ]
