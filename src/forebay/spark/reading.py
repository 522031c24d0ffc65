"""Messages read once: planned as stretches of queues, fetched by the executors in pages.

Invariants: every message of a stretch is read once, or an error says which are gone; a page is fetched while
the one before it is converted, and no more than these two are held.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from forebay.log.values import Queue, StoredBlock
from forebay.model import Corrupt, sequence_of
from forebay.spark.arrow import Piece, Shape
from forebay.spark.bodies import decode_plain
from forebay.spark.columns import contract_of
from forebay.spark.filters import PartitionFilter
from forebay.spark.logs import Face, Opener, face
from forebay.spark.offsets import Stretch, split
from forebay.spark.options import Options
from forebay.spark.ranges import Kept, data_loss, ends, kept_queues, starts, subscribed
from forebay.spark.skipping import skip

if TYPE_CHECKING:
    from forebay.spark.archive.reading import Span

PAGE_MESSAGES: Final = 20_000
PAGE_BYTES: Final = 8 << 20
"""What is fetched at once, in messages and in bytes as they are stored."""


class Task(InputPartition):
    """What one task reads: a stretch of one queue."""

    def __init__(self, queue: Queue, first: int, end: int) -> None:
        super().__init__(None)
        self.queue = queue
        self.first = first
        self.end = end


class Reading:
    """What all who read stretches share; it goes to the executors."""

    def __init__(self, opener: Opener, options: Options, schema: StructType) -> None:
        self.opener = opener
        self.options = options
        self._schema = schema
        self._contract = None if options.contract is None else contract_of(options)
        self._filter = PartitionFilter.of(options)

    def face(self) -> Face:
        """The log, open in this process."""
        return face(self.opener, self.options.url, **self.options.credentials)

    def shape(self) -> Shape:
        """How batches are made."""
        return Shape(self._schema, self._contract, strict=self.options.onUndecodable == "fail")

    def spanning(self, stretches: Iterable[Stretch], kept: Mapping[str, Kept]) -> list[InputPartition]:
        """Stretches as tasks, those that the archive has before those of the log, queue by queue."""
        found: list[InputPartition] = []
        for stretch in stretches:
            each = kept[stretch.queue]
            edge = max(stretch.first, min(stretch.end, each.live))
            if each.span is not None and stretch.first < edge:
                found += self._archived(each.span, each.queue, stretch.first, edge)
            found += self.tasks([Stretch(stretch.queue, edge, stretch.end)], kept)
        return found

    def _archived(self, span: Span, queue: Queue, first: int, end: int) -> list[InputPartition]:
        from forebay.spark.archive.reading import tasks  # noqa: PLC0415 - who has no archive needs none of it

        for low, high in span.lost(first, end):
            _lost(self.face(), queue, low, high, loud=self.options.failOnDataLoss)
        return [*tasks(span, span.files, first, end)]

    def tasks(self, stretches: Iterable[Stretch], kept: Mapping[str, Kept]) -> list[Task]:
        """Stretches as tasks."""
        parts = split(list(stretches), self.options.minPartitions)
        return [Task(kept[part.queue].queue, part.first, part.end) for part in parts]

    def batches(self, task: InputPartition) -> Iterator[pa.RecordBatch]:
        """What a task reads. A read without any task has one that names no queue."""
        if self.options.archive is not None and not isinstance(task, Task):
            from forebay.spark.archive.reading import (  # noqa: PLC0415 - who has no archive needs none of it
                ArchiveTask,
                read_messages,
            )

            if isinstance(task, ArchiveTask):
                return read_messages(task, self.shape(), self._filter)
        if not isinstance(task, Task):
            return iter(())
        loud, archive = self.options.failOnDataLoss, self.options.archive
        pieces = read_pieces(self.face(), task, loud=loud, archive=archive)
        return self.shape().batches(pieces, None if self._filter is None else self._filter.keep)


class MessageReader(DataSourceReader):
    """A batch of messages, from one or several queues.

    It has no `pushFilters`: Spark 4.3 keeps the filters of one query for all later ones of the DataFrame, and
    refuses a reader that has the method in a session without a setting.
    """

    def __init__(self, opener: Opener, options: Options, schema: StructType) -> None:
        self._reading = Reading(opener, options, schema)

    def partitions(self) -> list[InputPartition]:
        """Plan: where each queue begins and ends now, and cut into tasks."""
        face, options = self._reading.face(), self._reading.options
        kept = subscribed(kept_queues(face), options)
        first, end = starts(face, kept, options, default="earliest"), ends(face, kept, options)
        stretches = [Stretch(name, first[name], max(first[name], end[name])) for name in sorted(kept)]
        if options.archive is not None:
            return self._reading.spanning(stretches, kept)
        return [*self._reading.tasks(stretches, kept)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Fetch one task's messages."""
        return self._reading.batches(partition)


def read_pieces(face: Face, task: Task, *, loud: bool, archive: str | None = None) -> Iterator[Piece]:
    """The messages of a stretch, block by block. What is gone is an error, if `loud`, or else counted.

    With an `archive`, what is gone may have been archived since the read was planned.
    """
    at, name = task.first, task.queue.name
    for stored in _blocks(face, task):
        first, end = sequence_of(stored.first), min(sequence_of(stored.last) + 1, task.end)
        if first > at:
            yield from _elsewhere(face, task.queue, at, first, archive, loud=loud)
        low, at = max(at, first), end
        try:
            block = stored.decode_by(decode_plain, name)
        except Corrupt as error:
            if loud:
                raise
            skip(face, task.queue, low, end, f"{end - low} messages: {error}", reason="damaged")
            continue
        if low > first or end - first < len(block):
            block = block.slice(low - first, end - first)
        yield Piece(name, low, stored.accepted_at, block)
    if at < task.end:
        yield from _elsewhere(face, task.queue, at, task.end, archive, loud=loud)


def _blocks(face: Face, task: Task) -> Iterator[StoredBlock]:
    """The blocks of a stretch that are there; the next page is under way while one is worked on."""

    def fetch(first: int) -> Future[list[StoredBlock]] | None:
        if first >= task.end:
            return None
        room = min(PAGE_MESSAGES, task.end - first)
        return face.begin(face.log.read(task.queue, first, messages=room, bytes=PAGE_BYTES))

    answer = fetch(task.first)
    try:
        while answer is not None:
            page = [block for block in face.wait(answer) if sequence_of(block.first) < task.end]
            answer = fetch(sequence_of(page[-1].last) + 1 if page else task.end)
            yield from page
    finally:
        if answer is not None:
            answer.cancel()


def _elsewhere(
    face: Face, queue: Queue, first: int, end: int, archive: str | None, *, loud: bool
) -> Iterator[Piece]:
    """What the log has no more, from the archive; else it is lost."""
    if archive is not None:
        from forebay.spark.archive.reading import since_archived  # noqa: PLC0415 - only with one

        found = since_archived(archive, queue.name, queue.number, first, end)
        if found is not None:
            yield from found
            return
    _lost(face, queue, first, end, loud=loud)


def _lost(face: Face, queue: Queue, first: int, end: int, *, loud: bool) -> None:
    error = data_loss(queue.name, first, end)
    if loud:
        raise error
    skip(face, queue, first, end, error.message)
