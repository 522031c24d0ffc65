"""TarantoolLog: the log in a Tarantool server, in memory there and in its write-ahead log, shared by many.

The seam, in terms of the procedures in `lua`. Time is the server's clock, unless a clock is given. A commit
whose answer was lost is repeated with the same ids, so it is still one commit. It is long because it holds
the whole seam in one place.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from functools import partial
from types import TracebackType
from typing import Any, Final, Self

import msgspec

from forebay.log import flow_stretches
from forebay.log.claiming import (
    Space,
    check_held,
    check_lanes,
    check_letters,
    check_publish,
    check_spans,
    check_stage_name,
    check_tokens,
    corrupt_block,
    digests_of,
    recalled,
)
from forebay.log.delays import DelayedBlocks, count_delayed, delayed_flows
from forebay.log.finding import OUTCOMES_MAX, is_about
from forebay.log.flow_stretches import BlockFlows, FlowMemory, FlowRead, FlowStretches
from forebay.log.flows import FlowGroup, FlowTally, Returned
from forebay.log.groupcommit import GroupCommit, Item, Result
from forebay.log.marking import Marking
from forebay.log.records import check_keys, check_records, check_scan, prefix_end
from forebay.log.registry import (
    NEAR_NAMES,
    change_settings,
    check_number,
    check_owners,
    check_queues,
    merge_settings,
    next_number,
    number_taken,
    unknown_queue,
)
from forebay.log.seeking import Reckoning, check_dead, check_start, no_reader
from forebay.log.tarantool.refusals import as_start, no_group, no_queue, no_start
from forebay.log.tarantool.rows import (
    Row,
    block_of_row,
    claim_of_row,
    group_of_row,
    group_stats_of_row,
    kept_of_row,
    letter_of_row,
    message_id,
    outcome_of_row,
    progress_of_row,
    quarantined_of_row,
    queue_of_row,
    raw,
    standing_of_row,
    text_of,
)
from forebay.log.tarantool.server import Refused, Server, maybe_out, named, no_room, text_out
from forebay.log.tarantool.staging import Staged, publish
from forebay.log.tarantool.writing import Offer, Outdated, StagedOffer, write, write_whole
from forebay.log.values import (
    ROOM,
    Append,
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
    QueueSettings,
    QueueStats,
    Receipt,
    Record,
    RejectedRow,
    Room,
    Settlement,
    Sought,
    Span,
    Spans,
    Standing,
    Start,
    Stats,
    StoredBlock,
    Trimmed,
)
from forebay.model import (
    SEQUENCE_MAX,
    Clock,
    Corrupt,
    Full,
    Limits,
    Unavailable,
    check_group_name,
    check_queue_name,
    queue_of,
    sequence_of,
)
from forebay.model.limits import BLOCK_MESSAGES_CEILING

_SECOND: Final = 1_000_000
_PAUSE_SECONDS_MAX: Final = 0.5


class TarantoolLog:
    """The log at `url`: `tarantool://user:password@host:port`.

    Ids are remembered for `remember_seconds`; outcomes are kept for `outcome_keep_seconds`, or until their
    block is dropped. A commit is tried again for `retry_seconds` while the server is away.
    """

    def __init__(
        self,
        url: str,
        *,
        clock: Clock | None = None,
        limits: Limits | None = None,
        remember_seconds: float = 7 * 86_400.0,
        outcome_keep_seconds: float = 7 * 86_400.0,
        timeout_seconds: float = 30.0,
        retry_seconds: float = 5.0,
    ) -> None:
        self._limits = limits or Limits()
        self._server = Server(
            url, timeout_seconds=timeout_seconds, body_bytes_max=self._limits.block_bytes_max
        )
        self._clock = clock
        self._remember_us = int(remember_seconds * _SECOND)
        self._outcome_keep_us = int(outcome_keep_seconds * _SECOND)
        self._retry_seconds = retry_seconds
        self._commits = GroupCommit(self._flush, flights=2)
        self._publishing = GroupCommit(self._flush)
        self._marks = Marking(self._mark)
        self._queues: dict[int, Queue] = {}
        self._flows = FlowMemory()

    async def __aenter__(self) -> Self:
        await self._server.open()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._commits.close()
        await self._publishing.close()
        await self._marks.close()
        await self._server.close()

    # Queues and groups

    async def create_queue(
        self, name: str, settings: dict[str, Any] | None = None, *, number: int | None = None
    ) -> Queue:
        check_queue_name(name)
        merged = merge_settings(QueueSettings(), settings)
        if number is not None and await self._named_queue(name) is None:
            check_number(number)
        try:
            row = await self._server.call(
                "create_queue", text_out(name), _json(merged), merged.ordered, _dedupe_us(merged), number,
                self._now(),
            )  # fmt: skip
        except Refused as refused:
            if refused.kind == "number_taken" and number is not None:
                raise number_taken(number, text_of(refused.detail)) from None
            next_number(refused.detail)
            raise AssertionError(refused) from None
        return self._cache(queue_of_row(row))

    async def configure_queue(self, name: str, settings: dict[str, Any]) -> Queue:
        while True:
            queue = await self.queue(name)
            changed = change_settings(queue.settings, settings)
            arguments = (queue.number, _json(queue.settings), _json(changed), _dedupe_us(changed))
            try:
                return self._cache(queue_of_row(await self._server.call("configure_queue", *arguments)))
            except Refused:  # somebody else was faster, and changed it or deleted it: look again
                continue

    async def queue(self, name: str) -> Queue:
        found = await self._named_queue(name)
        if found is None:
            near = await self._server.call("near_names", text_out(name), NEAR_NAMES)
            raise unknown_queue(name, [text_of(one) for one in near])
        return self._cache(found)

    async def queues(
        self, *, numbers: Sequence[int] | None = None, after: int = 0, limit: int | None = None
    ) -> list[Queue]:
        check_queues(numbers, after, limit)
        rows = await self._server.call("queues", _listed(numbers), after, limit)
        return [self._cache(queue_of_row(row)) for row in rows]

    async def delete_queue(self, name: str) -> bool:
        number = await self._server.call("delete_queue", text_out(name))
        if number is None:
            return False
        self._queues.pop(number, None)
        await self._repeat("sweep_groups")
        await self._repeat("sweep_blocks", number)
        await self._repeat("trim_digests", number, self._remember_us, self._now())
        return True

    async def create_group(self, queue: Queue, name: str, start: Start = "earliest") -> Group:
        check_group_name(name)
        check_start(start)
        try:
            row = await self._server.call("create_group", queue.number, text_out(name), *as_start(start))
        except Refused as refused:
            raise no_start(refused, start) or no_queue(refused, queue) from None
        return group_of_row(row)

    async def groups(self, queue: Queue) -> list[Group]:
        return [group_of_row(row) for row in await self._server.call("groups", queue.number)]

    async def seek(self, group: Group, start: Start, *, dry_run: bool = False) -> Sought:
        check_start(start)
        try:
            row = await self._server.call("seek", group.number, *as_start(start), dry_run, self._now())
        except Refused as refused:
            raise no_start(refused, start) or no_group(refused, group) from None
        before, place, upcoming, ready, claimed, returned, dropped = row
        held = group_of_row(before)
        reckoning = Reckoning(
            start=held.start, place=place, upcoming=upcoming, ready=ready, claimed=claimed, returned=returned,
            dropped=dropped,
        )  # fmt: skip
        return reckoning.sought(held, dry_run=dry_run)

    async def advance(self, group: Group, to: int, dead: Sequence[DeadLetter] = ()) -> int:
        check_start(Position(to))
        check_dead(group, to, dead)
        ordered = bool(dead) and (await self._known_queue(group.queue)).settings.ordered
        letters = [_letter(letter, ordered=ordered) for letter in dead]
        try:
            count: int = await self._server.call("advance", group.number, to, letters, self._now())
        except Refused as refused:
            if refused.kind == "no_reader":
                raise no_reader(group) from None
            raise no_start(refused, Position(to)) or no_group(refused, group) from None
        return count

    async def delete_group(self, group: Group) -> bool:
        deleted: bool = await self._server.call("delete_group", group.number)
        await self._repeat("sweep_groups")
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
        async def offers() -> list[Offer]:
            return [Offer(a, await self._known_queue(a.queue), self._limits) for a in appends]

        return await self._commit(
            self._commits, offers, settlements=settlements, id=id, atomic=atomic, records=records
        )

    async def _commit(
        self, commits: GroupCommit, make_offers: Callable[[], Awaitable[list[Offer]]], **parts: Any
    ) -> Receipt:
        """Commit blocks as they are offered, which depends on their queues."""
        while True:
            try:
                return await commits.commit(await make_offers(), **parts)
            except Outdated:
                self._queues.clear()

    async def _flush(self, items: list[Item]) -> list[Result | Exception]:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._retry_seconds
        pause = 0.01
        while True:
            try:
                if items[0].atomic:
                    return [await write_whole(self._server, items[0], self._now())]
                return await write(self._server, items, self._now())
            except Full:  # that doesn't pass in seconds
                raise
            except Unavailable:
                if loop.time() + pause > deadline:
                    raise
                await asyncio.sleep(pause)
                pause = min(pause * 2, _PAUSE_SECONDS_MAX)

    # Handing out

    async def claim(
        self,
        group: Group,
        owner: str,
        room: Room = ROOM,
        *,
        partition: str | None = None,
        known: int | None = None,
    ) -> Claimed:
        Space(room)
        begin = None if known is None else max(0, known - message_id(group.queue, 0))
        arguments = (
            group.number, text_out(owner), room.messages, room.bytes, maybe_out(partition), begin, self._now()
        )  # fmt: skip
        while (rows := await self._of(group, "claim", *arguments)) is False:
            pass
        return await self._claimed(group, rows, known=known)

    async def mark(self, marks: Sequence[Mark]) -> Sequence[int]:
        return await self._marks.mark(marks)

    async def _mark(self, marks: Sequence[Mark]) -> list[int]:
        rows = [[mark.group, mark.token, mark.count, mark.handed, mark.returned] for mark in marks]
        refused: list[int] = await self._server.call("mark", rows)
        return refused

    async def due(
        self, group: Group, owner: str, room: Room = ROOM, *, partition: str | None = None
    ) -> Claimed:
        Space(room)
        rows, next_due_at = await self._of(
            group, "due", group.number, text_out(owner), room.messages, room.bytes, maybe_out(partition),
            self._now(),
        )  # fmt: skip
        return await self._claimed(group, rows, next_due_at)

    async def heartbeat(self, owner: str | Sequence[str]) -> None:
        owners = [text_out(name) for name in check_owners(owner)]
        await self._server.call("heartbeat", owners, self._now())

    async def reclaim(
        self,
        group: Group,
        owner: str,
        room: Room = ROOM,
        *,
        of: Sequence[str] = (),
        silent_seconds: float = 30.0,
        besides: Collection[int] = (),
    ) -> Claimed:
        Space(room)
        rows = await self._of(
            group, "reclaim", group.number, text_out(owner), room.messages, room.bytes, named(of),
            int(silent_seconds * _SECOND), list(besides), self._now(),
        )  # fmt: skip
        return await self._claimed(group, rows)

    async def recall(self, group: Group, tokens: Sequence[int]) -> list[Claim]:
        name, rows = await self._of(group, "recall", group.number, check_tokens(tokens))
        return recalled([claim_of_row(group, row) for row in rows], text_of(name))

    async def holding(self, group: Group, ids: Sequence[int]) -> list[Claim]:
        wanted = [sequence_of(i) for i in check_held(group, ids)]
        name, rows = await self._of(group, "holding", group.number, wanted)
        return recalled([claim_of_row(group, row) for row in rows], text_of(name))

    async def seize(
        self,
        group: Group,
        owner: str,
        *,
        ids: Sequence[int] = (),
        partition: str | None = None,
        held: bool = True,
    ) -> int:
        wanted = [sequence_of(i) for i in check_held(group, ids)]
        count: int = await self._of(
            group, "seize", group.number, text_out(owner), wanted, maybe_out(partition), held, self._now()
        )
        return count

    async def owners(self) -> list[Owner]:
        return [Owner(text_of(name), beat_at) for name, beat_at in await self._server.call("owners")]

    async def retire(self, owner: str) -> int:
        count: int = await self._server.call("retire", text_out(owner), self._now())
        return count

    async def stamp(self) -> str | None:
        return str(await self._server.call("stamp"))

    async def outlook(self, groups: Sequence[Group]) -> list[Outlook]:
        rows = await self._server.call("outlook", [group.number for group in groups])
        return [Outlook.of(row) for row in rows]

    async def _claimed(
        self, group: Group, rows: list[Row], next_due_at: int | None = None, *, known: int | None = None
    ) -> Claimed:
        """Check the blocks of claims, but for known ones; set aside those that can't be read."""
        good, bad = list[Claim](), list[Corrupt]()
        for row in rows:
            claim = claim_of_row(group, row)
            try:
                if known is None or claim.block.first < known:
                    claim.block.check()
            except Corrupt as error:
                await self._server.call("set_aside", group.number, claim.token)
                queue = await self._known_queue(group.queue)
                bad.append(corrupt_block(queue.name, claim.block, error))
            else:
                good.append(claim)
        return Claimed(good, bad, next_due_at)

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
        Space(Room(messages, bytes))
        rows = await self._in(queue, "read", queue.number, first, messages, bytes, maybe_out(partition))
        return [block_of_row(row) for row in rows]

    async def spans(
        self,
        queue: Queue,
        partitions: Sequence[str] | None = None,
        *,
        after: str | None = None,
        limit: int = 1000,
    ) -> Spans:
        check_spans(partitions, limit)
        at, rows = await self._in(queue, "spans", queue.number, named(partitions), maybe_out(after), limit)
        return Spans(
            at,
            [
                Span(text_of(name), message_id(queue.number, first), message_id(queue.number, last), *times)
                for name, first, last, *times in rows
            ],
        )

    async def dead_letters(self, group: Group, *, after: int = 0, limit: int = 100) -> list[DeadLetter]:
        begin = min(max(0, after - message_id(group.queue, 0)), SEQUENCE_MAX)
        rows = await self._of(group, "dead_letters", group.number, begin, limit)
        return [letter_of_row(group, row).letter for row in rows]

    async def outcomes(self, group: Group, first: int, *, limit: int = 100) -> list[Outcome]:
        place = sequence_of(first) if queue_of(first) == group.queue else SEQUENCE_MAX
        rows = await self._of(group, "outcomes", group.number, place, limit)
        return [outcome_of_row(group, row) for row in rows]

    async def progress(self, group: Group) -> Progress:
        return progress_of_row(await self._of(group, "progress", group.number, self._now()))

    async def find(self, message_id: int) -> Found:
        number = queue_of(message_id)
        try:
            at, row, block, standings = await self._server.call(
                "find", number, sequence_of(message_id), BLOCK_MESSAGES_CEILING, OUTCOMES_MAX, self._now()
            )
        except Refused:
            raise unknown_queue(f"number {number}", ()) from None
        return Found(
            at=at,
            queue=queue_of_row(row),
            next=row[4],
            block=None if block is None else block_of_row(block),
            standings=[_about(standing_of_row(standing), message_id) for standing in standings],
        )

    async def locate(self, queue: Queue, keys: Sequence[tuple[str, str]]) -> list[int | None]:
        digests = digests_of(queue, keys)
        found = await self._in(queue, "locate", queue.number, digests, self._now())
        return [None if sequence is None else message_id(queue.number, sequence) for sequence in found]

    async def records(self, space: str, keys: Sequence[str]) -> list[Kept]:
        check_keys(space, keys)
        rows = await self._server.call("records", text_out(space), named(keys), self._now())
        return [kept_of_row(row) for row in rows]

    async def scan(self, space: str, prefix: str = "", *, after: str = "", limit: int = 1000) -> list[Kept]:
        check_scan(space, prefix, after, limit)
        bounds = (text_out(max(prefix, after)), text_out(prefix_end(prefix)), text_out(after))
        rows = await self._server.call("scan", text_out(space), *bounds, limit, self._now())
        return [kept_of_row(row) for row in rows]

    async def quarantined(self, queue: Queue) -> list[StoredBlock]:
        return [quarantined_of_row(row) for row in await self._server.call("quarantined", queue.number)]

    async def flows(self, group: Group, *, besides: Collection[str] | None = None) -> list[FlowCount]:
        position, owners = 0, None if besides is None else [text_out(owner) for owner in besides]
        while True:
            plan = self._flows.get(group.number).plan(position, 0, SEQUENCE_MAX)
            gaps = [(gap.first, gap.last) for gap in plan.gaps]
            place = (plan.position, plan.whole_from, gaps, flow_stretches.PAGE_BLOCKS)
            position, pages, *rest = await self._of(group, "flows", group.number, *place, self._now(), owners)
            if len(pages) == len(gaps):
                read = plan._replace(position=position).fold([_block_flows(page) for page in pages])
                self._flows.keep(group.number, read.known)
                if read.tally is not None:
                    return _flow_counts(read, *rest)
            elif rest:
                return _flow_counts(FlowRead(FlowStretches(), FlowTally()), *rest)

    async def lanes(self, group: Group, *, after: str | None = None, limit: int = 100) -> list[LaneStats]:
        rows = await self._of(group, "lanes", group.number, maybe_out(after), check_lanes(limit))
        return [
            LaneStats(
                partition=text_of(name),
                first=message_id(group.queue, first),
                last=message_id(group.queue, last),
                oldest_at=oldest_at,
                newest_at=newest_at,
                messages=messages,
                waiting=waiting,
                handed=handed,
                oldest_waiting_at=oldest_waiting_at,
            )
            for (
                name, first, last, oldest_at, newest_at, messages, waiting, handed, oldest_waiting_at
            ) in rows
        ]  # fmt: skip

    async def lane_count(self, queue: Queue) -> int:
        count: int = await self._in(queue, "lane_count", queue.number)
        return count

    async def stats(
        self, *, numbers: Sequence[int] | None = None, after: int = 0, limit: int | None = None
    ) -> Stats:
        check_queues(numbers, after, limit)
        at, rows = await self._server.call("stats", self._now(), _listed(numbers), after, limit)
        return Stats(at, [_queue_stats(queue, groups, at) for queue, groups in rows])

    # Dead letters

    async def redrive(self, group: Group, ids: Sequence[int]) -> list[int]:
        return await self._change_letters("redrive", group, ids)

    async def purge(self, group: Group, ids: Sequence[int]) -> list[int]:
        return await self._change_letters("purge", group, ids)

    async def restore(self, group: Group, ids: Sequence[int]) -> list[int]:
        return await self._change_letters("restore", group, ids)

    async def _change_letters(self, verb: str, group: Group, ids: Sequence[int]) -> list[int]:
        wanted = [sequence_of(i) for i in check_letters(ids) if queue_of(i) == group.queue]
        changed = await self._of(group, verb, group.number, wanted, self._now())
        return [message_id(group.queue, sequence) for sequence in changed]

    # Two steps

    async def stage(self, stage: str, appends: Sequence[Append]) -> None:
        check_stage_name(stage)
        for append in appends:
            Offer(append, await self._known_queue(append.queue), self._limits)
        rows = [[append.block.id, append.queue, append.body] for append in appends]
        try:
            await self._server.call("stage", text_out(stage), rows, self._now())
        except Refused:
            raise no_room() from None

    async def publish(
        self, stage: str, ids: Sequence[bytes], *, records: Sequence[Record] = (), replayed: bool = False
    ) -> Receipt:
        check_publish(stage, ids)
        check_records(records)
        commit = partial(self._publish, records)
        receipt = await publish(self._server, stage, ids, commit, replayed=replayed)
        await self._server.call("forget_stage", text_out(stage))
        await self._repeat("sweep_stages", None, self._now())
        return receipt

    async def _publish(self, records: Sequence[Record], staged: Sequence[Staged]) -> Receipt:
        async def offers() -> list[Offer]:
            return [
                StagedOffer(s.append, await self._known_queue(s.append.queue), self._limits, s.stage)
                for s in staged
            ]

        return await self._commit(
            self._publishing, offers, settlements=(), id=None, atomic=True, records=records
        )

    # Upkeep

    def hang_up(self) -> None:
        self._server.hang_up()

    async def sweep(self, limit: int = 10_000) -> int:  # noqa: ARG002 - there is no inbox
        return 0

    async def inbox_rejected(self, after: int = 0, limit: int = 100) -> list[RejectedRow]:  # noqa: ARG002 - likewise
        return []

    async def trim(self) -> Trimmed:
        now = self._now()
        await self._repeat("sweep_groups")
        blocks = 0
        after: int | None = 0
        while after is not None:
            numbers, after = await self._server.call(
                "trimmable", after, self._outcome_keep_us, self._remember_us, now
            )
            for number in numbers:
                await self._repeat("sweep_blocks", number)
                blocks += await self._count("trim_blocks", number, now)
                await self._repeat("trim_digests", number, self._remember_us, now)
                await self._repeat("trim_outcomes", number, self._outcome_keep_us, now)
        receipts = await self._count("trim_receipts", self._remember_us, now)
        await self._repeat("sweep_stages", self._remember_us, now)
        await self._repeat("trim_letters", self._remember_us, now)
        await self._repeat("trim_delayed", now)
        await self._server.call("trim_owners", self._remember_us, now)
        expired = await self._count("trim_records", now)
        return Trimmed(blocks=blocks, receipts=receipts, records=expired)

    # Odds

    async def _repeat(self, verb: str, *arguments: Any) -> None:
        """Run a procedure for as long as it says that there may be more."""
        while await self._server.call(verb, *arguments):
            pass

    async def _count(self, verb: str, *arguments: Any) -> int:
        """The same for one that says how much it did; the sum."""
        total, more = 0, True
        while more:
            count, more = await self._server.call(verb, *arguments)
            total += count
        return total

    async def _of(self, group: Group, verb: str, *arguments: Any) -> Any:
        """What a procedure says of a group."""
        try:
            return await self._server.call(verb, *arguments)
        except Refused as refused:
            raise no_group(refused, group) from None

    async def _in(self, queue: Queue, verb: str, *arguments: Any) -> Any:
        """What a procedure says of a queue."""
        try:
            return await self._server.call(verb, *arguments)
        except Refused as refused:
            raise no_queue(refused, queue) from None

    async def _named_queue(self, name: str) -> Queue | None:
        row = await self._server.call("queue", text_out(name))
        return None if row is None else queue_of_row(row)

    async def _known_queue(self, number: int) -> Queue:
        if number not in self._queues:
            await self.queues(numbers=[number])
        if number not in self._queues:
            raise unknown_queue(f"number {number}", ())
        return self._queues[number]

    def _cache(self, queue: Queue) -> Queue:
        """Keep a queue for the next commit, which makes sure that it has not changed."""
        self._queues[queue.number] = queue
        return queue

    def _now(self) -> int | None:
        """The time, where a clock is given; otherwise the server knows it."""
        return None if self._clock is None else self._clock.now()


def _listed(numbers: Sequence[int] | None) -> list[int] | None:
    return None if numbers is None else sorted(set(numbers))


def _letter(letter: DeadLetter, *, ordered: bool) -> list[Any]:
    """A letter of a message that nobody claimed."""
    partition = letter.message().partition if ordered else None
    return [
        sequence_of(letter.message_id), letter.attempts, text_out(letter.reason), letter.body,
        maybe_out(partition),
    ]  # fmt: skip


def _about(standing: Standing, message_id: int) -> Standing:
    """The standing with the outcomes that are about a message, oldest first."""
    outcomes = [outcome for outcome in standing.outcomes if is_about(outcome, message_id)]
    return msgspec.structs.replace(standing, outcomes=outcomes[::-1])


def _queue_stats(row: Row, groups: list[Row], now: int) -> QueueStats:
    upcoming, floor = row[4], row[5]
    counted = []
    for group, counts, (whole, others) in groups:
        delayed = whole + count_delayed(_delayed_blocks(others), now)
        counted.append(group_stats_of_row(group, upcoming, counts, delayed))
    return QueueStats(queue=queue_of_row(row), next=upcoming, floor=floor, groups=counted)


def _block_flows(rows: Sequence[Any]) -> list[BlockFlows]:
    return [BlockFlows(last, count, at, _column(flows)) for last, count, at, flows in rows]


def _flow_counts(  # noqa: PLR0917 - the rows of one answer
    read: FlowRead,
    ordered: Any,
    body: Any,
    returned: Sequence[Any],
    delayed: Sequence[Any],
    held: Sequence[Any] | None,
    now: int,
) -> list[FlowCount]:
    tally, cut = read.tally, read.cut
    assert tally is not None, "a count that isn't whole"
    if cut is not None:
        tally.add_body(raw(body), cut.unclaimed, cut.oldest_at)
    for flows, blocks, unclaimed, oldest_at, last, found in ordered or ():
        if not tally.add_group(FlowGroup(_column(flows), blocks, unclaimed, oldest_at, last)):
            tally.add_body(raw(found), unclaimed, oldest_at)
    tally.hold_back(delayed_flows(_delayed_blocks(delayed), now))
    _add_claims(tally, returned)
    others = FlowTally()
    _add_claims(others, held or ())
    return tally.counts() + others.counts(is_held=True)


def _add_claims(tally: FlowTally, rows: Sequence[Any]) -> None:
    for flows, blocks, remaining, since, key, is_letter, begin, count, done, found in rows:
        if key is None:
            tally.add_held(_column(flows), blocks, remaining, since)
        else:
            bits = b"" if done is None else raw(done)
            tally.add_returned(Returned((key, is_letter), begin, count, bits, since), raw(found))


def _column(flows: Any) -> bytes | None:
    return None if flows is None else raw(flows)


def _delayed_blocks(rows: Sequence[Row]) -> list[DelayedBlocks]:
    return [DelayedBlocks(count, blocks, begin, raw(starts)) for count, blocks, begin, starts in rows]


def _json(settings: QueueSettings) -> bytes:
    return msgspec.json.encode(settings)


def _dedupe_us(settings: QueueSettings) -> float:
    return settings.dedupe_seconds * _SECOND
