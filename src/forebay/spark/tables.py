"""Tables about queues: their books, their dead letters, what happened to each message.

A table is read as it is at that moment, page by page; `queue`, `subscribe`, `subscribePattern` and `groupId`
narrow it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec
import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from forebay.log.seam import Log
from forebay.log.values import DeadLetter, Group, Outcome, Queue, QueueStats, StoredBlock
from forebay.model import bitmap, pack, sequence_of, to_datetime
from forebay.spark.columns import HEADERS, choose
from forebay.spark.logs import Face, Opener, face
from forebay.spark.offsets import Stretch, split
from forebay.spark.options import Options, Tables
from forebay.spark.ranges import kept_queues, subscribed
from forebay.spark.skipping import skipped
from forebay.spark.table_columns import TABLES

PAGE: Final = 1_000
_AT_ONCE: Final = 16
"""Blocks whose outcomes are asked for at once."""

_TYPES: Final[dict[str, DataType]] = {
    kind.simpleString(): kind
    for kind in (
        StringType(),
        BooleanType(),
        IntegerType(),
        LongType(),
        BinaryType(),
        TimestampType(),
        HEADERS.dataType,
    )
}


def table_columns(table: Tables) -> StructType:
    """All columns of a table."""
    columns = (column.split(" ") for column in TABLES[table].split(", "))
    return StructType([StructField(name, _TYPES[kind]) for name, kind in columns])


def table_schema(options: Options) -> StructType:
    """The columns of a table by these options."""
    assert options.table is not None, "it is a table"
    return choose(table_columns(options.table), options.columns)


class TableTask(InputPartition):
    """What one task reads: all of a small table, or a part of what one group has of a queue."""

    def __init__(
        self, queue: Queue | None = None, group: Group | None = None, first: int = 1, end: int = 1
    ) -> None:
        super().__init__(None)
        self.queue = queue
        self.group = group
        self.first = first
        self.end = end


class TableReader(DataSourceReader):
    """One of the tables."""

    def __init__(self, opener: Opener, options: Options, schema: StructType) -> None:
        self._opener = opener
        self._options = options
        self._schema = schema

    def _face(self) -> Face:
        return face(self._opener, self._options.url, **self._options.credentials)

    def _queues(self) -> list[QueueStats]:
        found = kept_queues(self._face())
        names = subscribed(found, self._options)
        return [each for each in found if each.queue.name in names]

    def partitions(self) -> list[InputPartition]:
        """One task for a small table; one for each group, or for a part of its queue, for a large one."""
        table = self._options.table
        if table in ("queues", "ledger", "skipped"):
            return [TableTask()]
        tasks: list[InputPartition] = []
        kept = subscribed(kept_queues(self._face()), self._options) if self._options.archive else {}
        for each in self._queues():
            span = kept[each.queue.name].span if self._options.archive else None
            if span is not None and table == "outcomes":
                from forebay.spark.archive.reading import tasks as archived  # noqa: PLC0415 - only with one

                tasks += archived(span, span.outcomes, span.archived.start, span.archived.next)
                each = msgspec.structs.replace(each, floor=max(each.floor, span.archived.next))  # noqa: PLW2901 - what is left of it
            parts = [Stretch(each.queue.name, each.floor, each.next)]
            for group in self._groups(each):
                cut = split(parts) if table == "outcomes" else parts
                tasks.extend(TableTask(each.queue, group, part.first, part.end) for part in cut)
        return tasks

    def _groups(self, queue: QueueStats) -> list[Group]:
        wanted = self._options.groupId
        return [each.group for each in queue.groups if wanted in (None, each.group.name)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read one task's rows, a batch for each page."""
        schema = to_arrow_schema(self._schema, timezone="UTC")
        if self._options.archive is not None and not isinstance(partition, TableTask):
            from forebay.spark.archive.reading import ArchiveTask, read_rows  # noqa: PLC0415 - only with one

            if isinstance(partition, ArchiveTask):
                yield from read_rows(partition, schema, self._options.groupId)
        elif isinstance(partition, TableTask):
            for rows in self._pages(partition):
                if rows:
                    wanted = [{name: row[name] for name in schema.names} for row in rows]
                    yield pa.RecordBatch.from_pylist(wanted, schema=schema)

    def _pages(self, task: TableTask) -> Iterator[list[dict[str, Any]]]:
        if task.queue is None or task.group is None:
            yield from self._small()
        elif self._options.table == "dead":
            yield from _dead_pages(self._face(), task.queue, task.group)
        else:
            yield from _outcome_pages(self._face(), task.queue, task.group, task)

    def _small(self) -> Iterator[list[dict[str, Any]]]:
        if self._options.table == "queues":
            return self._queue_rows()
        return self._ledger_rows() if self._options.table == "ledger" else self._skipped_rows()

    def _queue_rows(self) -> Iterator[list[dict[str, Any]]]:
        yield [
            {
                "queue": each.queue.name,
                "number": each.queue.number,
                "ordered": each.queue.settings.ordered,
                "paused": each.queue.settings.paused,
                "created_at": to_datetime(each.queue.created_at),
                "first_seq": each.floor,
                "next_seq": each.next,
                "messages": each.next - each.floor,
                "groups": len(each.groups),
                "settings": msgspec.json.encode(each.queue.settings).decode(),
            }
            for each in self._queues()
        ]

    def _ledger_rows(self) -> Iterator[list[dict[str, Any]]]:
        face = self._face()
        stats = face(face.log.stats())
        names = subscribed(stats.queues, self._options)
        at = to_datetime(stats.at)
        yield [
            {
                **{name: getattr(books, name) for name in _COUNTED},
                "queue": each.queue.name,
                "group": books.group.name,
                "at": at,
                "lag": books.unclaimed + books.held + books.deferred,
            }
            for each in stats.queues
            if each.queue.name in names
            for books in each.groups
            if self._options.groupId in (None, books.group.name)
        ]

    def _skipped_rows(self) -> Iterator[list[dict[str, Any]]]:
        yield [
            {
                "queue": each.queue,
                "first_seq": each.first,
                "last_seq": each.last,
                "messages": each.last - each.first + 1,
                "reason": each.reason,
                "at": to_datetime(each.at),
            }
            for each in skipped(self._face())
            if self._options.matches(each.queue)
        ]


_COUNTED: Final = (
    "accepted", "ready", "delayed", "held", "deferred", "done", "dead", "purged", "expired", "corrupt",
    "spooled", "handed", "due", "difference",
)  # fmt: skip


def _dead_pages(face: Face, queue: Queue, group: Group) -> Iterator[list[dict[str, Any]]]:
    after = 0
    while page := face(face.log.dead_letters(group, after=after, limit=PAGE)):
        after = page[-1].message_id
        yield [_dead_row(queue, group, letter) for letter in page]


def _dead_row(queue: Queue, group: Group, letter: DeadLetter) -> dict[str, Any]:
    message = letter.message()
    return {
        "queue": queue.name,
        "group": group.name,
        "seq": sequence_of(letter.message_id),
        "message_id": letter.message_id,
        "died_at": to_datetime(letter.died_at),
        "reason": letter.reason,
        "attempts": letter.attempts,
        "partition": message.partition,
        "key": message.transaction_id,
        "value": message.payload,
        "headers": list(message.headers.items()) if message.headers else None,
    }


def _outcome_pages(face: Face, queue: Queue, group: Group, task: TableTask) -> Iterator[list[dict[str, Any]]]:
    """What the outcome log has on the blocks of a stretch; each message is told by the task that has it."""
    at = task.first
    while at < task.end:
        page = face(face.log.read(queue, at, messages=PAGE, bytes=PAGE << 10))
        page = [block for block in page if sequence_of(block.first) < task.end]
        if not page:
            return
        at = sequence_of(page[-1].last) + 1
        for outcomes in face(_outcomes(face.log, group, page)):
            rows = [row for outcome in outcomes for row in outcome_rows(queue, group, outcome)]
            yield [row for row in rows if task.first <= row["seq"] < task.end]


async def _outcomes(log: Log, group: Group, blocks: Sequence[StoredBlock]) -> list[list[Outcome]]:
    found: list[list[Outcome]] = []
    for i in range(0, len(blocks), _AT_ONCE):
        calls = [log.outcomes(group, block.first, limit=PAGE) for block in blocks[i : i + _AT_ONCE]]
        found += await asyncio.gather(*calls)
    return found


def outcome_rows(queue: Queue, group: Group, outcome: Outcome) -> Iterator[dict[str, Any]]:
    """An entry of the outcome log, a row for each message."""
    first, at = sequence_of(outcome.first), to_datetime(outcome.at)

    def row(offset: int, what: str, **more: Any) -> dict[str, Any]:
        return {
            "queue": queue.name,
            "group": group.name,
            "seq": first + offset,
            "message_id": pack(queue.number, first + offset),
            "at": at,
            "outcome": what,
            "attempts": None,
            "reason": None,
            "due_at": None,
            "worker": outcome.worker or None,
        } | more

    for name, bits in (("done", outcome.done), ("expired", outcome.expired)):
        for offset in bitmap.indexes(bits):
            yield row(offset, name)
    for deferral in outcome.deferred:
        due_at = to_datetime(deferral.due_at)
        for offset in range(deferral.offset, deferral.offset + deferral.count):
            yield row(offset, "deferred", attempts=deferral.attempts, due_at=due_at)
    for offset, reason, attempts in outcome.dead:
        yield row(offset, "dead", attempts=attempts, reason=reason)
