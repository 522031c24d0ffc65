"""PostgresLog: the log in a PostgreSQL database, shared by any number of servers.

The seam, in terms of the functions in `functions.sql` and the statements in `statements.sql`. Time is
the database's clock, unless a clock is given. Whatever the connection loses in mid-air is repeated
with the same ids, so a commit whose answer was lost is still one commit. It is long because it holds
the whole seam in one place.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from time import monotonic
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

import asyncpg
import msgspec

from forebay.log.claiming import (
    Space,
    check_held,
    check_lanes,
    check_publish,
    check_spans,
    check_stage_name,
    check_tokens,
    corrupt_block,
    decode_outcome,
    digests_of,
    recalled,
    unknown_group,
)
from forebay.log.flow_stretches import FlowMemory
from forebay.log.groupcommit import GroupCommit, Item, Result, is_whole
from forebay.log.intake import Intake
from forebay.log.marking import Marking
from forebay.log.postgres import records as recording
from forebay.log.postgres import staging
from forebay.log.postgres.counting import progress, stats
from forebay.log.postgres.database import PACKAGE, Database
from forebay.log.postgres.durability import Disk
from forebay.log.postgres.finding import find
from forebay.log.postgres.flows import flows
from forebay.log.postgres.inbox import inbox_rejected, sweep
from forebay.log.postgres.lanes import lane_count, lanes, spans
from forebay.log.postgres.letters import change_letters
from forebay.log.postgres.rows import (
    claim_of_row,
    group_of_row,
    queue_of_row,
)
from forebay.log.postgres.seeking import advance, seek, start_position
from forebay.log.postgres.seizing import seize
from forebay.log.postgres.upkeep import trim
from forebay.log.postgres.writing import write, write_marks
from forebay.log.records import check_keys, check_records, check_scan
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
from forebay.log.seeking import check_dead, check_start
from forebay.log.sqlfile import load_statements
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
from forebay.model import (
    SEQUENCE_MAX,
    Clock,
    Corrupt,
    Limits,
    Unavailable,
    UnknownQueue,
    check_group_name,
    check_queue_name,
    pack,
    queue_of,
)

if TYPE_CHECKING:
    from forebay.log.postgres.database import Connection

SQL: Final = load_statements(PACKAGE)
_SECOND: Final = 1_000_000
_KNOWN_SECONDS: Final = 5.0
"""So old the settings of a queue may be by which a block is written."""


class PostgresLog:
    """See the module."""

    def __init__(
        self,
        dsn: str,
        *,
        clock: Clock | None = None,
        limits: Limits | None = None,
        remember_seconds: float = 7 * 86_400.0,
        outcome_keep_seconds: float = 7 * 86_400.0,
        partition_seconds: float = 86_400.0,
        connections_max: int = 8,
        timeout_seconds: float = 30.0,
        retry_seconds: float = 5.0,
    ) -> None:
        self._database = Database(dsn, connections_max=connections_max, timeout_seconds=timeout_seconds)
        self._clock = clock
        self._limits = limits or Limits()
        self._remember_us = int(remember_seconds * _SECOND)
        self._outcome_keep_us = int(outcome_keep_seconds * _SECOND)
        self._piece_us = int(partition_seconds * _SECOND)
        self._retry_seconds = retry_seconds
        self._commits = GroupCommit(self._flush, flights=2)
        self._marks = Marking(self._mark)
        self._disk = Disk(self._sync)
        self._queues: dict[int, tuple[Queue, float]] = {}
        self._flows = FlowMemory()
        """Queues by number, each with when it was read, by a clock that never jumps."""

    async def __aenter__(self) -> Self:
        spans = dict.fromkeys(("block", "receipt", "outcome"), self._piece_us)
        spans["dedupe"] = min(self._piece_us, 3_600 * _SECOND)
        await self._database.open(spans)
        try:
            await self._make_pieces()
        except BaseException:
            await self._database.close()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._commits.close()
        await self._marks.close()
        await self._database.close()

    # Queues and groups

    async def create_queue(
        self, name: str, settings: dict[str, Any] | None = None, *, number: int | None = None
    ) -> Queue:
        check_queue_name(name)
        merged = merge_settings(QueueSettings(), settings)
        columns = (_json(merged), merged.ordered, _micros(merged.dedupe_seconds), self._now())
        async with self._database.transaction() as connection:
            row = await connection.fetchrow(SQL["queue_by_name"], name)
            if row is None or row["deleted"]:
                await connection.execute(SQL["lock_queues"])
                row = await connection.fetchrow(SQL["queue_by_name"], name)
            if row is not None and not row["deleted"]:
                return self._cache(queue_of_row(row))
            if row is not None:
                created_at = await connection.fetchval(SQL["revive_queue"], row["number"], *columns)
                return self._cache(Queue(row["number"], name, merged, created_at))
            if number is None:
                number = next_number(await connection.fetchval(SQL["queue_numbers"]))
            elif taken := await connection.fetchval(SQL["queue_name_of"], check_number(number)):
                raise number_taken(number, taken)
            created_at = await connection.fetchval(SQL["insert_queue"], number, name, *columns)
            await connection.execute(SQL["insert_head"], number)
        return self._cache(Queue(number, name, merged, created_at))

    async def configure_queue(self, name: str, settings: dict[str, Any]) -> Queue:
        async with self._database.transaction() as connection:
            await connection.execute(SQL["lock_queues"])
            row = await connection.fetchrow(SQL["queue_by_name"], name)
            if row is None or row["deleted"]:
                raise unknown_queue(name, await _near(connection, name))
            queue = queue_of_row(row)
            merged = change_settings(queue.settings, settings)
            await connection.execute(
                SQL["update_settings"], queue.number, _json(merged), _micros(merged.dedupe_seconds)
            )
        return self._cache(Queue(queue.number, queue.name, merged, queue.created_at))

    async def queue(self, name: str) -> Queue:
        async with self._database.connection() as connection:
            row = await connection.fetchrow(SQL["queue_by_name"], name)
            if row is None or row["deleted"]:
                raise unknown_queue(name, await _near(connection, name))
        return self._cache(queue_of_row(row))

    async def queues(
        self, *, numbers: Sequence[int] | None = None, after: int = 0, limit: int | None = None
    ) -> list[Queue]:
        check_queues(numbers, after, limit)
        async with self._database.connection() as connection:
            if numbers is None:
                rows = await connection.fetch(SQL["queues"], after, limit)
            else:
                wanted = sorted({number for number in numbers if number > after})
                rows = (await connection.fetch(SQL["queues_of"], wanted))[:limit]
        return [self._cache(queue_of_row(row)) for row in rows]

    async def delete_queue(self, name: str) -> bool:
        async with self._database.transaction() as connection:
            await connection.execute(SQL["lock_queues"])
            row = await connection.fetchrow(SQL["queue_by_name"], name)
            if row is None or row["deleted"]:
                return False
            number = row["number"]
            await connection.execute(SQL["delete_inbox"], number)
            await connection.execute(SQL["lock_queue"], number)
            head = await connection.fetchrow(SQL["head"], number)
            assert head is not None
            for group in await connection.fetch(SQL["groups"], number):
                await _delete_group(connection, group["number"])
            await connection.execute(SQL["delete_queue"], number, head["next"])
        self._queues.pop(number, None)
        return True

    async def create_group(self, queue: Queue, name: str, start: Start = "earliest") -> Group:
        check_group_name(name)
        check_start(start)
        async with self._database.transaction() as connection:
            row = await connection.fetchrow(SQL["group_by_name"], queue.number, name)
            while row is None:  # again, where one that was in the way is deleted meanwhile
                await connection.execute(SQL["lock_queue"], queue.number)
                position = await start_position(connection, SQL, queue.number, start)
                row = await connection.fetchrow(
                    SQL["insert_group"], queue.number, name, position, self._now()
                )
                if row is None:
                    row = await connection.fetchrow(SQL["group_by_name"], queue.number, name)
                else:
                    await connection.execute(SQL["insert_cursor"], row["number"], position)
                    await connection.execute(SQL["insert_tally"], row["number"])
        return group_of_row(row)

    async def groups(self, queue: Queue) -> list[Group]:
        async with self._database.connection() as connection:
            rows = await connection.fetch(SQL["groups"], queue.number)
        return [group_of_row(row) for row in rows]

    async def seek(self, group: Group, start: Start, *, dry_run: bool = False) -> Sought:
        check_start(start)
        return await seek(self._database, SQL, group, start, self._now(), dry_run=dry_run)

    async def advance(self, group: Group, to: int, dead: Sequence[DeadLetter] = ()) -> int:
        check_start(Position(to))
        check_dead(group, to, dead)
        return await advance(self._database, SQL, group, to, dead=dead, now=self._now())

    async def delete_group(self, group: Group) -> bool:
        async with self._database.transaction() as connection:
            return await _delete_group(connection, group.number)

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
        intakes = [Intake(a, await self._known_queue(a.queue), self._limits) for a in appends]
        try:
            return await self._commits.commit(intakes, settlements, id, atomic=atomic, records=records)
        except UnknownQueue:
            for append in appends:
                self._queues.pop(append.queue, None)  # deleted elsewhere, and perhaps made anew
            raise

    async def _known_queue(self, number: int) -> Queue:
        """A queue for the next write; its settings may have been changed elsewhere a moment ago."""
        queue, read_at = self._queues.get(number, (None, 0.0))
        if queue is None or monotonic() - read_at > _KNOWN_SECONDS:
            queue = next(iter(await self.queues(numbers=[number])), None)
        if queue is None:
            self._queues.pop(number, None)
            raise unknown_queue(f"number {number}", ())
        return queue

    async def _flush(self, items: list[Item]) -> list[Result | Exception]:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._retry_seconds
        pause = 0.01
        has_pieces = True
        while True:
            try:
                if not has_pieces:
                    await self._make_pieces()
                return await self._write(items)
            except asyncpg.CheckViolationError as error:
                if loop.time() > deadline:
                    raise Unavailable(f"no piece of the log holds this moment: {error}") from error
                has_pieces = False
            except Unavailable:
                if loop.time() + pause > deadline:
                    raise
                await asyncio.sleep(pause)
                pause = min(pause * 2, 0.5)

    async def _write(self, items: list[Item]) -> list[Result | Exception]:
        if not items[0].atomic:
            async with self._database.connection() as connection:
                results = await write(connection, items, self._now(), lazy=True)
            await self._disk.wait()
            return results
        async with self._database.connection() as connection:
            transaction = connection.transaction()
            await transaction.start()
            try:
                result = await self._write_whole(connection, items[0])
            except BaseException:
                await transaction.rollback()
                raise
            if isinstance(result, Result) and is_whole(items[0], result):
                await transaction.commit()
            else:
                await transaction.rollback()
            return [result]

    async def _write_whole(self, connection: Connection, item: Item) -> Result | Exception:
        """Write an atomic item within a transaction, records last."""
        left = item.records
        if left and await recording.is_written(connection, SQL, item.id):
            left = ()
        (result,) = await write(connection, [item], self._now())
        if left and isinstance(result, Result) and is_whole(item, result):
            await recording.write_records(connection, SQL, left, self._now())
        return result

    async def _sync(self) -> None:
        async with self._database.connection() as connection:
            await connection.execute(SQL["sync"])

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
        queue = await self._known_queue(group.queue)
        arguments = (self._now(), group.number, owner, room.messages, room.bytes, known)
        if queue.settings.ordered:
            return await self._claimed(group, "claim_ordered", *arguments, partition, known=known)
        return await self._claimed(group, "claim", *arguments, known=known)

    async def mark(self, marks: Sequence[Mark]) -> Sequence[int]:
        return await self._marks.mark(marks)

    async def _mark(self, marks: Sequence[Mark]) -> list[int]:
        async with self._database.connection() as connection:
            return await write_marks(connection, marks)

    async def due(
        self, group: Group, owner: str, room: Room = ROOM, *, partition: str | None = None
    ) -> Claimed:
        Space(room)
        return await self._claimed(
            group, "take_over", self._now(), group.number, owner, room.messages, room.bytes,
            None, None, [], partition,
        )  # fmt: skip

    async def heartbeat(self, owner: str | Sequence[str]) -> None:
        owners = check_owners(owner)
        async with self._database.connection() as connection:
            await connection.execute(SQL["heartbeat"], owners, self._now())

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
        silent = _micros(silent_seconds)
        return await self._claimed(
            group, "take_over", self._now(), group.number, owner, room.messages, room.bytes,
            list(of), silent, list(besides), None,
        )  # fmt: skip

    async def recall(self, group: Group, tokens: Sequence[int]) -> list[Claim]:
        wanted = check_tokens(tokens)
        async with self._database.connection() as connection:
            await _check_group(connection, group)
            rows = await connection.fetch(SQL["recall"], group.number, wanted)
        queue = await self._known_queue(group.queue)
        return recalled([claim_of_row(group.number, row) for row in rows], queue.name)

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
        return await seize(self._database, SQL, group, owner, wanted, partition, held=held, now=self._now())

    async def holding(self, group: Group, ids: Sequence[int]) -> list[Claim]:
        wanted = check_held(group, ids)
        async with self._database.connection() as connection:
            await _check_group(connection, group)
            rows = await connection.fetch(SQL["holding"], group.number, wanted)
        queue = await self._known_queue(group.queue)
        return recalled([claim_of_row(group.number, row) for row in rows], queue.name)

    async def owners(self) -> list[Owner]:
        async with self._database.connection() as connection:
            return [Owner(*row) for row in await connection.fetch(SQL["owners"])]

    async def retire(self, owner: str) -> int:
        async with self._database.transaction() as connection:
            for row in await connection.fetch(SQL["owner_groups"], owner):
                await connection.execute(SQL["lock_cursor"], row["grp"])
            count: int = await connection.fetchval(SQL["retire"], owner, self._now())
        return count

    async def stamp(self) -> str | None:
        async with self._database.connection() as connection:
            stamp: str = await connection.fetchval(SQL["stamp"])
        return stamp

    async def outlook(self, groups: Sequence[Group]) -> list[Outlook]:
        async with self._database.connection() as connection:
            rows = await connection.fetch(SQL["outlook"], [group.number for group in groups])
        return [Outlook.of(tuple(row)) for row in rows]

    async def _claimed(
        self, group: Group, statement: str, *arguments: Any, known: int | None = None
    ) -> Claimed:
        try:
            async with self._database.connection() as connection:
                rows = await connection.fetch(SQL[statement], *arguments)
        except asyncpg.PostgresError as error:
            if error.sqlstate == "FB404":
                raise unknown_group(group) from error
            raise
        next_due_at = rows.pop()["next_due_at"] if rows and rows[-1]["token"] is None else None
        if rows:
            await self._disk.wait()  # what a worker has seen must not come back as another message
        good: list[Claim] = []
        bad: list[Corrupt] = []
        for row in rows:
            claim = claim_of_row(group.number, row)
            try:
                if known is None or claim.block.first < known:
                    claim.block.check()
            except Corrupt as error:
                bad.append(await self._set_aside(claim, error))
            else:
                good.append(claim)
        return Claimed(good, bad, next_due_at)

    async def _set_aside(self, claim: Claim, error: Corrupt) -> Corrupt:
        async with self._database.connection() as connection:
            await connection.execute(SQL["set_aside"], self._now(), claim.group, claim.token)
        queue = await self._known_queue(queue_of(claim.first))
        return corrupt_block(queue.name, claim.block, error)

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
        heads, bodies_of, only = "read", "bodies", list[str]()
        if partition is not None:
            heads, bodies_of, only = "read_partition", "partition_bodies", [partition]
        space = Space(Room(messages, bytes))
        async with self._database.connection() as connection:
            head = await connection.fetchrow(SQL["head"], queue.number)
            if head is None:
                raise unknown_queue(queue.name, ())
            low = pack(queue.number, max(first, head["floor"]))
            high = pack(queue.number, SEQUENCE_MAX)
            found = await connection.fetch(SQL[heads], low, high, min(messages, 10_000), *only)
            wanted = []
            for row in found:
                if not space.fits(row["count"], row["size"]):
                    break
                wanted.append(row)
            if not wanted:
                return []
            last, ends, begins = wanted[-1]["last"], wanted[-1], wanted[0]
            rows = await connection.fetch(
                SQL[bodies_of], low, last, begins["appended_at"], ends["appended_at"], *only
            )
        await self._disk.wait()  # a reader may keep its place elsewhere: what it has seen must stay
        bodies = {row["last"]: row["body"] for row in rows}
        return [
            StoredBlock(
                row["last"] - row["count"] + 1, row["count"], row["id"].bytes, row["appended_at"],
                row["partition"], bodies[row["last"]],
            )
            for row in wanted
            if row["last"] in bodies
        ]  # fmt: skip

    async def dead_letters(self, group: Group, *, after: int = 0, limit: int = 100) -> list[DeadLetter]:
        async with self._database.connection() as connection:
            await _check_group(connection, group)
            rows = await connection.fetch(SQL["dead_letters"], group.number, after, limit)
        return [DeadLetter(*row) for row in rows]

    async def outcomes(self, group: Group, first: int, *, limit: int = 100) -> list[Outcome]:
        async with self._database.connection() as connection:
            await _check_group(connection, group)
            rows = await connection.fetch(SQL["outcomes"], group.number, first, limit)
        return [decode_outcome(*row) for row in rows]

    async def find(self, message_id: int) -> Found:
        return await find(self._database, SQL, self._now(), message_id)

    async def locate(self, queue: Queue, keys: Sequence[tuple[str, str]]) -> list[int | None]:
        digests = digests_of(queue, keys)
        async with self._database.connection() as connection:
            rows = await connection.fetch(SQL["locate"], queue.number, self._now(), digests)
        if not rows:
            raise unknown_queue(queue.name, ())
        return [row["message_id"] for row in rows[1:]]

    async def records(self, space: str, keys: Sequence[str]) -> list[Kept]:
        check_keys(space, keys)
        return await recording.read(self._database, SQL, space, keys, self._now())

    async def scan(self, space: str, prefix: str = "", *, after: str = "", limit: int = 1000) -> list[Kept]:
        check_scan(space, prefix, after, limit)
        return await recording.scan(self._database, SQL, space, prefix, after, limit=limit, now=self._now())

    async def quarantined(self, queue: Queue) -> list[StoredBlock]:
        low, high = pack(queue.number, 1), pack(queue.number, SEQUENCE_MAX)
        async with self._database.connection() as connection:
            rows = await connection.fetch(SQL["quarantined"], low, high)
        return [
            StoredBlock(first, count, block_id.bytes, appended_at, partition, body)
            for first, count, block_id, appended_at, partition, body in rows
        ]

    async def progress(self, group: Group) -> Progress:
        return await progress(self._database, SQL, self._now(), group)

    async def flows(self, group: Group, *, besides: Collection[str] | None = None) -> list[FlowCount]:
        return await flows(self._database, SQL, group, self._now(), self._flows, besides=besides)

    async def spans(
        self,
        queue: Queue,
        partitions: Sequence[str] | None = None,
        *,
        after: str | None = None,
        limit: int = 1000,
    ) -> Spans:
        check_spans(partitions, limit)
        found = await spans(self._database, SQL, queue, partitions, after=after, limit=limit)
        await self._disk.wait()  # a reader may keep its place elsewhere: what it has seen must stay
        return found

    async def lanes(self, group: Group, *, after: str | None = None, limit: int = 100) -> list[LaneStats]:
        return await lanes(self._database, SQL, group, after, check_lanes(limit))

    async def lane_count(self, queue: Queue) -> int:
        return await lane_count(self._database, SQL, queue)

    async def stats(
        self, *, numbers: Sequence[int] | None = None, after: int = 0, limit: int | None = None
    ) -> Stats:
        check_queues(numbers, after, limit)
        return await stats(self._database, SQL, self._now(), numbers=numbers, after=after, limit=limit)

    # Dead letters

    async def redrive(self, group: Group, ids: Sequence[int]) -> list[int]:
        return await change_letters(self._database, SQL["redrive"], self._now(), group, ids)

    async def purge(self, group: Group, ids: Sequence[int]) -> list[int]:
        return await change_letters(self._database, SQL["purge"], self._now(), group, ids)

    async def restore(self, group: Group, ids: Sequence[int]) -> list[int]:
        return await change_letters(self._database, SQL["restore"], self._now(), group, ids)

    # Two steps

    async def stage(self, stage: str, appends: Sequence[Append]) -> None:
        check_stage_name(stage)
        offers = [staging.Offer(a, await self._known_queue(a.queue), self._limits) for a in appends]
        async with self._database.connection() as connection:
            await staging.stage(connection, SQL, stage, offers, self._now())

    async def publish(
        self, stage: str, ids: Sequence[bytes], *, records: Sequence[Record] = (), replayed: bool = False
    ) -> Receipt:
        check_publish(stage, ids)
        check_records(records)
        await self._make_pieces()
        return await staging.publish(
            self._database, SQL, stage, ids, records,
            limits=self._limits, now=self._now(), replayed=replayed,
        )  # fmt: skip

    # Upkeep

    async def trim(self) -> Trimmed:
        await self._make_pieces()
        return await trim(
            self._database,
            SQL,
            self._now(),
            remember_us=self._remember_us,
            outcome_keep_us=self._outcome_keep_us,
        )

    def hang_up(self) -> None:
        self._database.hang_up()

    async def sweep(self, limit: int = 10_000) -> int:
        """Move messages that forebay.push() left in the inbox into blocks; how many there were."""
        await self._make_pieces()
        return await sweep(self._database, SQL, self._limits, now=self._now(), limit=limit)

    async def inbox_rejected(self, after: int = 0, limit: int = 100) -> list[RejectedRow]:
        return await inbox_rejected(self._database, SQL, after, limit)

    # Odds

    def _now(self) -> int | None:
        """The time, where a clock is given; otherwise the database knows it."""
        return None if self._clock is None else self._clock.now()

    async def _make_pieces(self) -> None:
        async with self._database.connection() as connection:
            await connection.execute(SQL["make_pieces"], self._now())

    def _cache(self, queue: Queue) -> Queue:
        self._queues[queue.number] = queue, monotonic()
        return queue


async def _near(connection: Connection, name: str) -> list[str]:
    """Names to compare an unknown one with."""
    return [row["name"] for row in await connection.fetch(SQL["near_names"], name, NEAR_NAMES)]


async def _check_group(connection: Connection, group: Group) -> None:
    if not await connection.fetchval(SQL["group_exists"], group.number):
        raise unknown_group(group)


async def _delete_group(connection: Connection, number: int) -> bool:
    await connection.execute(SQL["lock_cursor"], number)
    await connection.execute(SQL["delete_claims"], number)  # before the tally's lock, like settling
    await connection.execute(SQL["lock_tally"], number)
    existed = await connection.fetchval(SQL["delete_group"], number) is not None
    for part in ("cursor", "tally", "lanes", "dead_letters", "outcomes"):
        await connection.execute(SQL[f"delete_{part}"], number)
    return existed


def _json(settings: QueueSettings) -> str:
    return msgspec.json.encode(settings).decode()


def _micros(seconds: float) -> int:
    return int(seconds * _SECOND)
