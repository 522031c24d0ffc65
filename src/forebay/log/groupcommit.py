"""Group commit: concurrent writes share one transaction, without waiting for company.

While a flush is in flight the next one fills; an idle log flushes a lone write at once. Each write
gets its own answer. When a flush is refused and held more than one write, each of them is tried alone,
so that one bad write fails by itself.

Invariant: the blocks of one commit that go to the same partition, or to the same unordered queue, get their
places in the order in which they were given, also where some of them hold duplicates.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import cast

import msgspec

from forebay.log.claiming import check_settlement
from forebay.log.intake import Answer, Intake, find_links, leave_to_earlier, note_links
from forebay.log.records import bytes_of, check_records
from forebay.log.values import Receipt, Record, Settlement
from forebay.model import Conflict, Rejected, Unavailable, mint


class Item(msgspec.Struct, frozen=True):
    """What one caller wants written, as the transaction sees it."""

    id: bytes
    appends: Sequence[Intake] = ()
    settlements: Sequence[Settlement] = ()
    atomic: bool = False
    size: int = 0
    records: Sequence[Record] = ()
    """With these, it is atomic; they are written unless something was written under the id before."""


class Result(msgspec.Struct, frozen=True):
    """What became of an item: an answer per append, the settlements that came too late."""

    answers: Sequence[Answer] = ()
    conflicts: Sequence[int] = ()


def encode_all(items: Sequence[Item]) -> None:
    """Have all blocks encoded; compressing lets go of the interpreter, so this is worth a thread."""
    for item in items:
        for intake in item.appends:
            _ = intake.body


Flush = Callable[[list[Item]], Awaitable[list[Result | Exception]]]
"""Write the items in one transaction, and answer each, with an exception where it changed nothing.

An atomic item comes alone, and is rolled back unless the result `is_whole`.
"""


def is_whole(item: Item, result: Result) -> bool:
    """Whether all of an item can stand: no duplicates, nothing too late, no block id used otherwise.

    Blocks that leave messages to earlier ones note where those are; what was noted must hold too.
    """
    pairs = list(zip(item.appends, result.answers, strict=True))
    if result.conflicts or any(a.found or i.differs(a) for i, a in pairs):
        return False
    links = find_links(item.appends, result.answers)
    return all(i.has_noted(noted) for i, noted in zip(item.appends, links, strict=True))


class GroupCommit:
    """Collects writes and hands them to `flush`, with at most `flights` transactions at a time."""

    def __init__(
        self,
        flush: Flush,
        *,
        flights: int = 1,
        items_max: int = 1_000,
        flush_bytes_max: int = 32 << 20,
        waiting_bytes_max: int = 256 << 20,
    ) -> None:
        self._flush = flush
        self._items_max = items_max
        self._flush_bytes_max = flush_bytes_max
        self._waiting_bytes_max = waiting_bytes_max
        self._waiting: deque[tuple[Item, asyncio.Future[Result]]] = deque()
        self._waiting_bytes = 0
        self._flights = flights
        self._flushers: set[asyncio.Task[None]] = set()
        self._aloft = 0
        self._closed = False

    async def commit(
        self,
        intakes: Sequence[Intake],
        settlements: Sequence[Settlement],
        id: bytes | None,
        *,
        atomic: bool,
        records: Sequence[Record] = (),
    ) -> Receipt:
        """Write until every message is either appended or known; raise what the log raises."""
        for settlement in settlements:
            check_settlement(settlement)
        check_records(records)
        if id is not None and any(intake.id == id for intake in intakes):
            raise Rejected("the commit has the id of its block", hint="mint an id for each")
        if not intakes and not settlements and not records:
            return Receipt()
        write_id = id or (mint() if settlements or records else b"")
        if atomic or records:
            return await self._commit_whole(intakes, settlements, records, write_id)
        if _may_overtake(intakes):
            return await self._commit_in_order(intakes, settlements, write_id)
        return await self._commit_each(intakes, settlements, write_id)

    async def _commit_each(
        self, intakes: Sequence[Intake], settlements: Sequence[Settlement], write_id: bytes
    ) -> Receipt:
        """Write blocks that are in nobody's way: one with duplicates is repeated after the others."""
        if not intakes:
            return Receipt((), (await self._submit(Item(write_id, (), settlements))).conflicts)
        left, answers = list(intakes), dict[Intake, Answer]()
        conflicts: Sequence[int] = ()
        while left or settlements:
            result = await self._submit(_item(write_id, left, settlements))
            if settlements:
                conflicts, settlements = result.conflicts, ()
            answers.update(zip(left, result.answers, strict=True))
            left = [intake for intake in left if answers[intake].found]
            for intake in left:
                intake.drop(answers[intake].found)
        return Receipt([intake.appended(answers[intake]) for intake in intakes], conflicts)

    async def _commit_in_order(
        self, intakes: Sequence[Intake], settlements: Sequence[Settlement], write_id: bytes
    ) -> Receipt:
        """Write blocks all at once, so that none overtakes another one that holds duplicates.

        A block whose id was used for another one is left out, and raised when all the others are written.
        Settlements come last: whoever settles the cause of a block has the block in the log by then.
        """
        left, answers = list(intakes), dict[Intake, Answer]()
        while left:
            result = await write_whole(self._submit, _item(b"", left, (), atomic=True))
            answers.update(zip(left, result.answers, strict=True))
            odd = {intake for intake in left if intake.differs(answers[intake])}
            left = [intake for intake in left if intake not in odd] if odd else []
            for intake in left:
                intake.begin_anew()  # what it left to a block that is not written is its own again
        conflicts: Sequence[int] = ()
        if settlements:
            conflicts = (await self._submit(Item(write_id, (), settlements))).conflicts
        return Receipt([intake.appended(answers[intake]) for intake in intakes], conflicts)

    async def _commit_whole(
        self,
        intakes: Sequence[Intake],
        settlements: Sequence[Settlement],
        records: Sequence[Record],
        write_id: bytes,
    ) -> Receipt:
        item = _item(write_id, intakes, settlements, atomic=True, records=records)
        result = await write_whole(self._submit, item)
        if result.conflicts:
            raise Conflict(
                "nothing was written: a settlement of the atomic commit came too late",
                hint="take the messages again",
            )
        pairs = zip(intakes, result.answers, strict=True)
        return Receipt([intake.appended(answer) for intake, answer in pairs])

    async def close(self) -> None:
        """Finish what is waiting, and take nothing more."""
        self._closed = True
        while self._flushers:
            await asyncio.wait(self._flushers)

    async def _submit(self, item: Item) -> Result:
        if self._closed:
            raise Unavailable("the log is closed", hint="open it again")
        if self._waiting and self._waiting_bytes + item.size > self._waiting_bytes_max:
            text = f"{self._waiting_bytes} bytes are waiting to be written already"
            raise Unavailable(text, hint="slow down", retry_after_seconds=0.1)
        future: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        self._waiting.append((item, future))
        self._waiting_bytes += item.size
        self._start_flusher()
        return await future

    def _start_flusher(self) -> None:
        if self._waiting and len(self._flushers) < self._flights:
            flusher = asyncio.create_task(self._flush_waiting(), name="forebay-group-commit")
            self._flushers.add(flusher)

    async def _flush_waiting(self) -> None:
        try:
            while self._waiting:
                batch = self._next_batch()
                self._aloft += 1
                self._start_flusher()
                try:
                    await self._flush_batch(batch)
                finally:
                    self._aloft -= 1
        finally:
            # Here, not in a callback: a write that comes between the two would find no flusher.
            self._flushers.discard(cast("asyncio.Task[None]", asyncio.current_task()))

    def _next_batch(self) -> list[tuple[Item, asyncio.Future[Result]]]:
        batch: list[tuple[Item, asyncio.Future[Result]]] = []
        size = 0
        # What waits is shared between the flights that are free, so that one fills while one flies.
        items_max = min(self._items_max, -(-len(self._waiting) // (self._flights - self._aloft)))
        while self._waiting and len(batch) < items_max:
            item, future = self._waiting[0]
            if batch and (item.atomic or size + item.size > self._flush_bytes_max):
                break
            self._waiting.popleft()
            self._waiting_bytes -= item.size
            if future.cancelled():
                continue
            batch.append((item, future))
            size += item.size
            if item.atomic:
                break
        return batch

    async def _flush_batch(self, batch: list[tuple[Item, asyncio.Future[Result]]]) -> None:
        if not batch:
            return
        try:
            results = await self._flush([item for item, _ in batch])
        except Unavailable as error:
            _fail(batch, error)
        except Exception as error:  # noqa: BLE001 - handed to the callers, whose writes it concerns
            if len(batch) == 1:
                _fail(batch, error)
            else:
                for single in batch:
                    await self._flush_batch([single])
        else:
            for (_, future), result in zip(batch, results, strict=True):
                if future.done():
                    continue
                if isinstance(result, Exception):
                    future.set_exception(result)
                else:
                    future.set_result(result)


async def write_whole(submit: Callable[[Item], Awaitable[Result]], item: Item) -> Result:
    """Submit an atomic item, without its duplicates, until it is written whole, or can't be.

    It can't where a settlement comes too late, or a block id was used for another block.
    """
    leave_to_earlier(item.appends)
    while True:
        result = await submit(item)
        pairs = list(zip(item.appends, result.answers, strict=True))
        if result.conflicts or any(i.differs(a) for i, a in pairs) or is_whole(item, result):
            return result
        if not any(answer.found for answer in result.answers):
            note_links(item.appends, result.answers)
            continue
        for intake, answer in pairs:
            intake.drop(answer.found)
        for intake in item.appends:
            intake.take_back()  # its window may reach less far than that of the message it was left to
        leave_to_earlier(item.appends)


def _may_overtake(intakes: Sequence[Intake]) -> bool:
    """Whether a block that is repeated without its duplicates could come after a later one of its place."""
    places = [(intake.queue, intake.partition) for intake in intakes]
    return len(set(places)) < len(places) and any(intake.digests is not None for intake in intakes)


def _item(
    write_id: bytes,
    intakes: Sequence[Intake],
    settlements: Sequence[Settlement],
    *,
    atomic: bool = False,
    records: Sequence[Record] = (),
) -> Item:
    size = sum(intake.size for intake in intakes) + bytes_of(records)
    return Item(write_id, intakes, settlements, atomic, size, records)


def _fail(batch: list[tuple[Item, asyncio.Future[Result]]], error: Exception) -> None:
    for _, future in batch:
        if not future.done():
            future.set_exception(error)
