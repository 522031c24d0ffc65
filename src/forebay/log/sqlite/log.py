"""SqliteLog: the log in one SQLite file, the embedded default.

Invariants: nothing is remembered in memory that another process could change; a write is one
transaction of the writer's connection; a claim or a mark is not synced by itself, but always before a
commit that comes after it.
"""

from collections.abc import Callable, Collection, Sequence
from functools import partial
from os import PathLike
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from forebay.log.claiming import (
    check_held,
    check_lanes,
    check_letters,
    check_publish,
    check_spans,
    check_stage_name,
    check_tokens,
    digests_of,
)
from forebay.log.flow_stretches import FlowMemory
from forebay.log.groupcommit import GroupCommit, Item, Result, encode_all
from forebay.log.marking import Marking
from forebay.log.records import check_keys, check_records, check_scan
from forebay.log.registry import check_owners, check_queues
from forebay.log.seeking import check_dead, check_start
from forebay.log.sqlite import (
    catalogue,
    finding,
    handing,
    letters,
    reading,
    records,
    seeking,
    seizing,
    staging,
    upkeep,
    versions,
)
from forebay.log.sqlite.connection import Session, Transaction, data_version
from forebay.log.sqlite.errors import closed
from forebay.log.sqlite.handing import SECOND
from forebay.log.sqlite.writing import Flush, NotWhole, Offer, Outdated
from forebay.log.values import (
    Append,
    Appended,
    Claim,
    Claimed,
    DeadLetter,
    FlowCount,
    Found,
    Group,
    Kept,
    LaneStats,
    Mark,
    Outcome,
    Outlook,
    Owner,
    Position,
    Progress,
    Queue,
    Receipt,
    Record,
    RejectedRow,
    Room,
    Settlement,
    Sought,
    Spans,
    Start,
    Stats,
    StoredBlock,
    Trimmed,
)
from forebay.model import Clock, Limits, SystemClock

T = TypeVar("T")

_ROOM: Final = Room()


class SqliteLog:
    """The log in the file at `path`, which is created when it isn't there; its folder is not.

    Ids are remembered for `remember_seconds`; outcomes are kept for `outcome_keep_seconds`, or
    until their block is dropped.
    """

    def __init__(
        self,
        path: str | PathLike[str],
        *,
        clock: Clock | None = None,
        limits: Limits | None = None,
        remember_seconds: float = 7 * 86_400.0,
        outcome_keep_seconds: float = 7 * 86_400.0,
    ) -> None:
        self._path = Path(path)
        self._clock = clock or SystemClock()
        self._limits = limits or Limits()
        self._remember = int(remember_seconds * SECOND)
        self._keep_outcomes = int(outcome_keep_seconds * SECOND)
        self._commits: GroupCommit | None = None
        self._marks = Marking(self._mark)
        self._writer: Session | None = None
        self._reader: Session | None = None
        self._queues: dict[int, Queue] = {}
        self._flows = FlowMemory()

    async def __aenter__(self) -> Self:
        writer = Session(self._path, "writer", writes=True)
        try:
            await writer.call(lambda: versions.prepare(self._path))
        except BaseException:
            await writer.close()
            raise
        self._writer = writer
        self._reader = Session(self._path, "reader", writes=False)
        self._commits = GroupCommit(self._flush)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._commits is not None:
            await self._commits.close()
        await self._marks.close()
        for session in (self._reader, self._writer):
            if session is not None:
                await session.close()
        self._queues.clear()
        self._flows = FlowMemory()

    # Queues and groups

    async def create_queue(
        self, name: str, settings: dict[str, Any] | None = None, *, number: int | None = None
    ) -> Queue:
        return self._remembered(
            await self._write(
                lambda tx: catalogue.create_queue(tx, name, settings, number, self._clock.now())
            )
        )

    async def configure_queue(self, name: str, settings: dict[str, Any]) -> Queue:
        return self._remembered(await self._write(lambda tx: catalogue.configure_queue(tx, name, settings)))

    async def queue(self, name: str) -> Queue:
        return await self._read(lambda tx: catalogue.named_queue(tx, name).queue)

    async def queues(
        self, *, numbers: Sequence[int] | None = None, after: int = 0, limit: int | None = None
    ) -> list[Queue]:
        check_queues(numbers, after, limit)
        chosen = await self._read(lambda tx: catalogue.chosen_queues(tx, numbers, after, limit))
        return [held.queue for held in chosen]

    async def delete_queue(self, name: str) -> bool:
        left = await self._write(lambda tx: catalogue.delete_queue(tx, name))
        if left is None:
            return False
        self._queues.pop(left.queue.number, None)
        await self._repeat(catalogue.sweep_groups)
        await self._repeat(lambda tx: catalogue.sweep_blocks(tx, left))
        await self._repeat(lambda tx: upkeep.trim_digests(tx, left, self._clock.now(), self._remember))
        return True

    async def create_group(self, queue: Queue, name: str, start: Start = "earliest") -> Group:
        return await self._write(lambda tx: catalogue.create_group(tx, queue, name, start))

    async def groups(self, queue: Queue) -> list[Group]:
        return await self._read(lambda tx: [state.group for state in catalogue.groups_of(tx, queue.number)])

    async def seek(self, group: Group, start: Start, *, dry_run: bool = False) -> Sought:
        check_start(start)
        return await self._write(
            lambda tx: seeking.seek(tx, group, start, self._clock.now(), dry_run=dry_run)
        )

    async def advance(self, group: Group, to: int, dead: Sequence[DeadLetter] = ()) -> int:
        check_start(Position(to))
        check_dead(group, to, dead)
        if await self._read(lambda tx: seeking.has_passed(tx, group, to)):
            return 0
        return await self._write(lambda tx: seeking.advance(tx, group, to, dead, self._clock.now()))

    async def delete_group(self, group: Group) -> bool:
        deleted = await self._write(lambda tx: catalogue.delete_group(tx, group))
        await self._repeat(catalogue.sweep_groups)
        return deleted

    # The one write

    async def commit(
        self,
        appends: Sequence[Append] = (),
        settlements: Sequence[Settlement] = (),
        *,
        id: bytes | None = None,
        atomic: bool = False,
        records: Sequence[Record] = (),
    ) -> Receipt:
        if self._commits is None:
            raise closed(self._path)
        while True:
            offers = [
                Offer(
                    append,
                    self._queues.get(append.queue) or await self._look_up(append.queue),
                    self._limits,
                )
                for append in appends
            ]
            try:
                return await self._commits.commit(offers, settlements, id, atomic=atomic, records=records)
            except Outdated:
                for append in appends:
                    self._queues.pop(append.queue, None)

    async def _look_up(self, number: int) -> Queue:
        held = await self._read(lambda tx: catalogue.live_queue(tx, number))
        return self._remembered(held.queue)

    def _remembered(self, queue: Queue) -> Queue:
        """Keep a queue for the next commit, which makes sure that it has not changed."""
        self._queues[queue.number] = queue
        return queue

    async def _flush(self, items: list[Item]) -> list[Result | Exception]:
        def write(tx: Transaction) -> list[Result | Exception]:
            flush = Flush(tx, self._clock.now())
            results = [flush.write(item) for item in items]
            flush.finish()
            return results

        try:
            return await self._open(self._writer).run(write, before=lambda: encode_all(items))
        except NotWhole as refused:
            return [refused.result]

    # Handing out

    async def claim(
        self,
        group: Group,
        owner: str,
        room: Room = _ROOM,
        *,
        partition: str | None = None,
        known: int | None = None,
    ) -> Claimed:
        def step(tx: Transaction) -> Claimed | None:
            now = self._clock.now()
            return handing.claim(tx, group, owner, room, partition=partition, known=known, now=now)

        while (claimed := await self._write(step, durable=False)) is None:
            pass
        return claimed

    async def mark(self, marks: Sequence[Mark]) -> Sequence[int]:
        return await self._marks.mark(marks)

    async def _mark(self, marks: Sequence[Mark]) -> list[int]:
        return await self._write(lambda tx: handing.mark(tx, marks), durable=False)

    async def due(
        self, group: Group, owner: str, room: Room = _ROOM, *, partition: str | None = None
    ) -> Claimed:
        def step(tx: Transaction) -> Claimed:
            return handing.due(tx, group, owner, room, partition=partition, now=self._clock.now())

        return await self._write(step, durable=False)

    async def heartbeat(self, owner: str | Sequence[str]) -> None:
        owners = check_owners(owner)
        await self._write(
            lambda tx: tx.many("beat", ((name, self._clock.now()) for name in owners)), durable=False
        )

    async def reclaim(
        self,
        group: Group,
        owner: str,
        room: Room = _ROOM,
        *,
        of: Sequence[str] = (),
        silent_seconds: float = 30.0,
        besides: Collection[int] = (),
    ) -> Claimed:
        def step(tx: Transaction) -> Claimed:
            now = self._clock.now()
            silent_at = now - int(silent_seconds * SECOND)
            return handing.reclaim(
                tx, group, owner, room, of=of, besides=besides, silent_at=silent_at, now=now
            )

        return await self._write(step, durable=False)

    async def recall(self, group: Group, tokens: Sequence[int]) -> list[Claim]:
        wanted = check_tokens(tokens)
        return await self._read(lambda tx: handing.recall(tx, group, wanted))

    async def holding(self, group: Group, ids: Sequence[int]) -> list[Claim]:
        wanted = check_held(group, ids)
        return await self._read(lambda tx: handing.holding(tx, group, wanted))

    async def seize(
        self,
        group: Group,
        owner: str,
        *,
        ids: Sequence[int] = (),
        partition: str | None = None,
        held: bool = True,
    ) -> int:
        wanted = check_held(group, ids)
        return await self._write(
            lambda tx: seizing.seize(tx, group, owner, wanted, partition, held=held, now=self._clock.now())
        )

    async def owners(self) -> list[Owner]:
        return await self._read(lambda tx: [Owner(*row) for row in tx.rows("owners")])

    async def retire(self, owner: str) -> int:
        return await self._write(lambda tx: handing.retire(tx, owner, self._clock.now()), durable=False)

    # Noticing what others write

    async def stamp(self) -> str | None:
        # Of the connection that writes: what others have written, and nothing of what it has itself.
        return await self._open(self._writer).bare(data_version)

    async def outlook(self, groups: Sequence[Group]) -> list[Outlook]:
        return await self._read(lambda tx: handing.outlook(tx, groups))

    # Reading

    async def read(
        self,
        queue: Queue,
        first: int = 1,
        *,
        messages: int = 10_000,
        bytes: int = 64 << 20,
        partition: str | None = None,
    ) -> list[StoredBlock]:
        return await self._read(lambda tx: reading.read(tx, queue, first, Room(messages, bytes), partition))

    async def spans(
        self,
        queue: Queue,
        partitions: Sequence[str] | None = None,
        *,
        after: str | None = None,
        limit: int = 1000,
    ) -> Spans:
        check_spans(partitions, limit)
        return await self._read(lambda tx: reading.spans(tx, queue, partitions, after, limit))

    async def dead_letters(self, group: Group, *, after: int = 0, limit: int = 100) -> list[DeadLetter]:
        return await self._read(lambda tx: reading.dead_letters(tx, group, after, limit))

    async def outcomes(self, group: Group, first: int, *, limit: int = 100) -> list[Outcome]:
        return await self._read(lambda tx: reading.outcomes(tx, group, first, limit))

    async def find(self, message_id: int) -> Found:
        return await self._read(lambda tx: finding.find(tx, message_id, self._clock.now()))

    async def locate(self, queue: Queue, keys: Sequence[tuple[str, str]]) -> list[int | None]:
        digests = digests_of(queue, keys)
        return await self._read(lambda tx: finding.locate(tx, queue, digests, self._clock.now()))

    async def records(self, space: str, keys: Sequence[str]) -> list[Kept]:
        check_keys(space, keys)
        return await self._read(lambda tx: records.read(tx, space, keys, self._clock.now()))

    async def scan(self, space: str, prefix: str = "", *, after: str = "", limit: int = 1000) -> list[Kept]:
        check_scan(space, prefix, after, limit)
        return await self._read(
            lambda tx: records.scan(tx, space, prefix, after, limit=limit, now=self._clock.now())
        )

    async def quarantined(self, queue: Queue) -> list[StoredBlock]:
        return await self._read(lambda tx: reading.quarantined(tx, queue))

    async def flows(self, group: Group, *, besides: Collection[str] | None = None) -> list[FlowCount]:
        while True:
            known = self._flows.get(group.number)
            known, counts = await self._read(
                partial(reading.flows, group=group, now=self._clock.now(), known=known, besides=besides)
            )
            self._flows.keep(group.number, known)
            if counts is not None:
                return counts

    async def progress(self, group: Group) -> Progress:
        return await self._read(lambda tx: reading.progress(tx, group, self._clock.now()))

    async def lanes(self, group: Group, *, after: str | None = None, limit: int = 100) -> list[LaneStats]:
        check_lanes(limit)
        return await self._read(lambda tx: reading.lanes(tx, group, after, limit))

    async def lane_count(self, queue: Queue) -> int:
        return await self._read(lambda tx: reading.lane_count(tx, queue))

    async def stats(
        self, *, numbers: Sequence[int] | None = None, after: int = 0, limit: int | None = None
    ) -> Stats:
        check_queues(numbers, after, limit)
        return await self._read(
            lambda tx: reading.stats(
                tx,
                catalogue.chosen_queues(tx, numbers, after, limit),
                self._clock.now(),
                every=numbers is None,
            )
        )

    # Dead letters

    async def redrive(self, group: Group, ids: Sequence[int]) -> list[int]:
        wanted = check_letters(ids)
        return await self._write(lambda tx: letters.redrive(tx, group, wanted, self._clock.now()))

    async def purge(self, group: Group, ids: Sequence[int]) -> list[int]:
        wanted = check_letters(ids)
        return await self._write(lambda tx: letters.purge(tx, group, wanted, self._clock.now()))

    async def restore(self, group: Group, ids: Sequence[int]) -> list[int]:
        wanted = check_letters(ids)
        return await self._write(lambda tx: letters.restore(tx, group, wanted, self._clock.now()))

    # Two steps

    async def stage(self, stage: str, appends: Sequence[Append]) -> None:
        check_stage_name(stage)
        for append in appends:
            Offer(append, await self._look_up(append.queue), self._limits)
        await self._write(lambda tx: staging.stage(tx, stage, appends, self._clock.now()))

    async def publish(
        self, stage: str, ids: Sequence[bytes], *, records: Sequence[Record] = (), replayed: bool = False
    ) -> Receipt:
        check_publish(stage, ids)
        check_records(records)

        def step(tx: Transaction) -> list[Appended]:
            now, limits = self._clock.now(), self._limits
            return staging.publish(tx, stage, ids, records, limits=limits, now=now, replayed=replayed)

        appended = await self._write(step)
        await self._repeat(staging.sweep_stages)
        return Receipt(appended)

    # Upkeep

    def hang_up(self) -> None:
        """There are no connections."""

    async def sweep(self, limit: int = 10_000) -> int:  # noqa: ARG002 - there is no inbox
        return 0

    async def inbox_rejected(self, after: int = 0, limit: int = 100) -> list[RejectedRow]:  # noqa: ARG002 - likewise
        return []

    async def trim(self) -> Trimmed:
        now, blocks, receipts = self._clock.now(), 0, 0
        await self._repeat(catalogue.sweep_groups)
        after: int | None = 0
        while after is not None:
            blocks_of, after = await self._trim_some(after, now)
            blocks += blocks_of
        more = True
        while more:
            piece = await self._write(lambda tx: upkeep.trim_receipts(tx, now - self._remember))
            receipts, more = receipts + piece.removed, piece.more
        await self._repeat(lambda tx: staging.sweep_stages(tx, now - self._remember))
        await self._repeat(lambda tx: upkeep.trim_letters(tx, now - self._remember))
        await self._repeat(lambda tx: upkeep.trim_delayed(tx, now))
        await self._write(lambda tx: tx.run("trim_owners", now - self._remember))
        expired = await self._trim_records(now)
        writer = self._open(self._writer)
        while await writer.bare(upkeep.shrink):
            pass
        await writer.bare(upkeep.checkpoint)
        return Trimmed(blocks=blocks, receipts=receipts, records=expired)

    async def _trim_some(self, after: int, now: int) -> tuple[int, int | None]:
        """Trim queues from a number on; how many blocks, and from which number to go on."""
        before = now - self._keep_outcomes
        page = await self._read(
            lambda tx: upkeep.find_trimmable(
                tx, after, now, remember_us=self._remember, outcomes_before=before
            )
        )
        return sum([await self._trim_queue(held, now) for held in page.queues]), page.next

    async def _trim_records(self, now: int) -> int:
        removed, more = 0, True
        while more:
            piece = await self._write(lambda tx: records.trim(tx, now))
            removed, more = removed + piece.removed, piece.more
        return removed

    async def _trim_queue(self, held: catalogue.QueueRow, now: int) -> int:
        number, dropped, more = held.queue.number, 0, True
        await self._repeat(lambda tx: catalogue.sweep_blocks(tx, held))
        while more:
            piece = await self._write(lambda tx: upkeep.trim_blocks(tx, number, now))
            dropped, more = dropped + piece.removed, piece.more
        await self._repeat(lambda tx: upkeep.trim_digests(tx, held, now, self._remember))
        await self._repeat(lambda tx: upkeep.trim_outcomes(tx, number, now - self._keep_outcomes))
        return dropped

    # The file

    async def _write(self, job: Callable[[Transaction], T], *, durable: bool = True) -> T:
        return await self._open(self._writer).run(job, durable=durable)

    async def _read(self, job: Callable[[Transaction], T]) -> T:
        return await self._open(self._reader).run(job)

    async def _repeat(self, job: Callable[[Transaction], bool]) -> None:
        """Run a job, each time in a transaction of its own, for as long as it asks for it."""
        while await self._write(job):
            pass

    def _open(self, session: Session | None) -> Session:
        if session is None:
            raise closed(self._path)
        return session
