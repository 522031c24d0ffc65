"""Reading a queue across its archive and the log: up to the manifest's `next` from Parquet, then live.

Which file has what is decided once, as a query is planned. Retention may go on meanwhile: what it drops is
what the archive has, and that is read from there. Files that compacting replaces stay for a while.

Invariants: every message is read once, by one side; what the archive never got is a gap, which is an error or
a warning like anything else that is gone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql.datasource import InputPartition

from forebay.model import Block, Message, Misconfigured
from forebay.spark.archive.folder import ArchiveFolder
from forebay.spark.archive.manifest import Archived, DataFile, Gap, Manifest
from forebay.spark.archive.parquet import APPENDED_AT
from forebay.spark.arrow import BATCH_ROWS_MAX, Piece, Shape
from forebay.spark.filters import PartitionFilter

_TASK_BYTES: Final = 64 << 20
"""What one task reads of files, about."""


class Span(msgspec.Struct, frozen=True):
    """What the archive has of one queue."""

    root: str
    archived: Archived
    files: list[DataFile]
    outcomes: list[DataFile]
    gaps: list[Gap]

    def first_since(self, time: int) -> int | None:
        """The first archived message that the log took at a time or later; None where none is that late."""
        for file in self.files:
            if file.until >= time:
                if file.since >= time:
                    return file.first
                path = Path(self.root) / file.path
                # Files of before there was a column for it have it as `created_at`.
                known = APPENDED_AT.name in pq.read_schema(path).names
                column = APPENDED_AT.name if known else "created_at"
                times = pq.read_table(path, columns=["seq", column])
                late = pc.greater_equal(times[column].cast(pa.int64()), time)
                return int(pc.min(times["seq"].filter(late)).as_py())
        return None

    def lost(self, first: int, end: int) -> list[tuple[int, int]]:
        """What of a stretch is in no file: first, and end, which is not included."""
        cut = [(max(gap.first, first), min(gap.last + 1, end)) for gap in self.gaps]
        return [(low, high) for low, high in cut if low < high]


class ArchiveTask(InputPartition):
    """Files that one task reads, and which of their messages."""

    def __init__(self, root: str, files: Sequence[DataFile], first: int, end: int) -> None:
        super().__init__(None)
        self.root = root
        self.files = list(files)
        self.first = first
        self.end = end


def spans(path: str, numbers: Mapping[str, int]) -> dict[str, Span]:
    """What the archive at a path has of these queues, which are named with their numbers."""
    folder = ArchiveFolder(path)
    manifest = folder.require()
    found = {}
    for name, number in numbers.items():
        if (archived := manifest.queues.get(name)) is None:
            continue
        if archived.number != number:
            text = f"the archive {path} is of another log: its queue {name!r} isn't this one"
            raise Misconfigured(text, hint="name the archive of this log")
        found[name] = _span(folder, manifest, name, archived)
    return found


def _span(folder: ArchiveFolder, manifest: Manifest, name: str, archived: Archived) -> Span:
    files, outcomes = manifest.of(name), manifest.of(name, "outcomes")
    return Span(str(folder.path), archived, files, outcomes, manifest.gaps_of(name))


def tasks(span: Span, files: Sequence[DataFile], first: int, end: int) -> list[ArchiveTask]:
    """Tasks for the files that have messages from `first` up to `end`, in order."""
    found: list[list[DataFile]] = []
    size = 0
    for file in files:
        if file.first < end and file.last >= first:
            if not found or size + file.bytes > _TASK_BYTES:
                found.append([])
                size = 0
            found[-1].append(file)
            size += file.bytes
    return [ArchiveTask(span.root, group, first, end) for group in found]


def since_archived(path: str, queue: str, number: int, first: int, end: int) -> Iterator[Piece] | None:
    """Messages that were archived while they were to be read from the log; None unless all of them were.

    Retention drops nothing that the newest manifest doesn't have, but for what is a gap in it.
    """
    span = spans(path, {queue: number}).get(queue)
    if span is None or span.archived.next < end or span.archived.start > first or span.lost(first, end):
        return None
    found = tasks(span, span.files, first, end)
    return (piece for task in found for batch in _batches(task, None, None) for piece in _pieces(batch))


def read_messages(
    task: ArchiveTask, shape: Shape, chosen: PartitionFilter | None
) -> Iterator[pa.RecordBatch]:
    """The messages of a task, as the log's would be."""
    for batch in _batches(task, None if shape.is_typed else shape.schema.names, chosen):
        if shape.is_typed:
            yield from shape.batches(_pieces(batch))
        else:
            yield batch.select(shape.schema.names).cast(shape.schema)


def read_rows(task: ArchiveTask, schema: pa.Schema, group: str | None) -> Iterator[pa.RecordBatch]:
    """The outcomes of a task, of one group or of all."""
    for batch in _batches(task, [*schema.names, "group"], None):
        kept = batch if group is None else batch.filter(pc.equal(batch["group"], group))
        if kept.num_rows:
            yield kept.select(schema.names).cast(schema)


def _batches(
    task: ArchiveTask, names: Sequence[str] | None, chosen: PartitionFilter | None
) -> Iterator[pa.RecordBatch]:
    needed = ["seq"] if chosen is None else ["seq", "partition"]
    columns = None if names is None else list(dict.fromkeys([*names, *needed]))
    for file in task.files:
        opened = pq.ParquetFile(Path(task.root) / file.path)
        try:
            groups = _row_groups(opened, task)
            for batch in opened.iter_batches(BATCH_ROWS_MAX, row_groups=groups, columns=columns):
                inside = batch.filter(_mask(batch, task, chosen))
                if inside.num_rows:
                    yield inside
        finally:
            opened.close()


def _row_groups(opened: pq.ParquetFile, task: ArchiveTask) -> list[int]:
    """Those that may have messages of the stretch, by their statistics."""
    found = []
    for number in range(opened.num_row_groups):
        place = _places(opened.metadata.row_group(number))
        if place is None or (place.min < task.end and place.max >= task.first):
            found.append(number)
    return found


def _places(group: Any) -> Any:
    """The statistics of sequence numbers."""
    columns = (group.column(index) for index in range(group.num_columns))
    return next((column.statistics for column in columns if column.path_in_schema == "seq"), None)


def _mask(batch: pa.RecordBatch, task: ArchiveTask, chosen: PartitionFilter | None) -> pa.Array:
    seq = batch["seq"]
    mask = pc.and_(pc.greater_equal(seq, task.first), pc.less(seq, task.end))
    return mask if chosen is None else pc.and_(mask, chosen.mask(batch["partition"]))


def _pieces(batch: pa.RecordBatch) -> Iterator[Piece]:
    """Messages as they were before they were archived, for the fields of their contract."""
    at = batch["created_at"].cast(pa.int64()).to_pylist()
    for row, time in zip(batch.to_pylist(), at, strict=True):
        headers = dict(row["headers"]) if row["headers"] else None
        message = Message(row["value"], row["partition"], row["key"], headers)
        yield Piece(row["queue"], row["seq"], time, Block.of([message], id=bytes(16), created_at=time))
