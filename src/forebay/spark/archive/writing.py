"""A task of the archive: reads a stretch of one queue from the log, and writes it as Parquet, day by day.

Invariants: what is written is what the log has, in its order; what it doesn't have any more, or can't read,
is told as a hole, never left out in silence; a second attempt writes files of its own, and of two attempts
one is named by a manifest.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec
import pyarrow as pa

from forebay.log.seam import Log
from forebay.log.values import Group, Outcome, Queue, StoredBlock
from forebay.model import Corrupt, sequence_of
from forebay.spark.archive.manifest import DataFile, day_of
from forebay.spark.archive.parquet import APPENDED_AT, SCHEMA_MESSAGES, FileWriter, arrow_schema
from forebay.spark.arrow import Piece, Shape, appended_at, gather
from forebay.spark.logs import Face, Opener, face
from forebay.spark.tables import outcome_rows

PAGE_MESSAGES: Final = 10_000
PAGE_BYTES: Final = 8 << 20
OUTCOMES_MAX: Final = 10_000
"""Entries of the outcome log that are read for a block and a group."""
_AT_ONCE: Final = 16

DROPPED: Final = "dropped before it was archived"

Placed = tuple[StoredBlock, Piece]
"""A block, and its messages that are archived."""


class RangeTask(msgspec.Struct, frozen=True, kw_only=True):
    """A stretch of a queue to be archived: from `first` up to `end`, which is not included."""

    opener: Opener
    url: str
    credentials: dict[str, str]
    root: str
    queue: Queue
    groups: list[Group]
    """Whose outcomes are archived."""
    first: int
    end: int
    file_bytes_max: int


class Hole(msgspec.Struct, frozen=True):
    """Messages of a stretch that could not be archived."""

    first: int
    last: int
    reason: str


class RangeDone(msgspec.Struct, frozen=True):
    """What a task has written."""

    queue: str
    first: int
    end: int
    files: list[DataFile]
    holes: list[Hole]


def write_range(task: RangeTask) -> RangeDone:
    """Archive a stretch."""
    return _Range(task, face(task.opener, task.url, **task.credentials)).run()


class _Range:
    def __init__(self, task: RangeTask, opened: Face) -> None:
        self._task = task
        self._face = opened
        self._shape = Shape(SCHEMA_MESSAGES)
        self._done = RangeDone(task.queue.name, task.first, task.end, [], [])

    def run(self) -> RangeDone:
        """Write everything."""
        part: _Part | None = None
        try:
            for page in self._pages():
                for run in _runs(self._placed(page)):
                    if part is not None and not part.takes(run[0][1]):
                        self._done.files.extend(part.close())
                        part = None
                    part = part or _Part(self._task, self._shape, day_of(run[0][1].appended_at))
                    part.add([piece for _, piece in run], self._outcomes([stored for stored, _ in run]))
            if part is not None:
                self._done.files.extend(part.close())
                part = None
        finally:
            if part is not None:
                part.drop()
        return self._done

    def _pages(self) -> Iterator[list[StoredBlock]]:
        """The blocks that are there; what isn't is a hole."""
        log, task, at = self._face.log, self._task, self._task.first
        while at < task.end:
            room = min(PAGE_MESSAGES, task.end - at)
            found = self._face(log.read(task.queue, at, messages=room, bytes=PAGE_BYTES))
            page = [block for block in found if sequence_of(block.first) < task.end]
            for block in page:
                if sequence_of(block.first) > at:
                    self._done.holes.append(Hole(at, sequence_of(block.first) - 1, DROPPED))
                at = sequence_of(block.last) + 1
            if not page:
                self._done.holes.append(Hole(at, task.end - 1, DROPPED))
                return
            yield page

    def _placed(self, blocks: Sequence[StoredBlock]) -> Iterator[Placed]:
        """Blocks and what of them lies in the stretch; they may go beyond it at both ends."""
        task = self._task
        for stored in blocks:
            first = sequence_of(stored.first)
            low, end = max(first, task.first), min(sequence_of(stored.last) + 1, task.end)
            try:
                block = stored.decode(task.queue.name)
            except Corrupt as error:
                self._done.holes.append(Hole(low, end - 1, f"can't be read: {error.message}"))
                continue
            if (low, end) != (first, first + stored.count):
                block = block.slice(low - first, end - first)
            yield stored, Piece(task.queue.name, low, stored.accepted_at, block, stored.appended_at)

    def _outcomes(self, blocks: Sequence[StoredBlock]) -> list[pa.RecordBatch]:
        task, schema = self._task, arrow_schema("outcomes")
        rows = []
        for group in task.groups:
            for outcomes in self._face(read_outcomes(self._face.log, group, blocks)):
                for outcome in outcomes:
                    rows += [row for row in outcome_rows(task.queue, group, outcome) if self._has(row["seq"])]
        rows.sort(key=lambda row: (row["seq"], row["at"]))
        return [pa.RecordBatch.from_pylist(rows, schema=schema)] if rows else []

    def _has(self, seq: int) -> bool:
        return self._task.first <= seq < self._task.end


class _Part:
    """Messages of one day that go to one file, and their outcomes to another."""

    def __init__(self, task: RangeTask, shape: Shape, day: str) -> None:
        self._task = task
        self._shape = shape
        self._day = day
        self._messages: FileWriter | None = None
        self._outcomes: FileWriter | None = None
        self._first = self._last = self._since = self._until = 0

    def takes(self, piece: Piece) -> bool:
        """Whether it goes to the same file: the same day, without a hole, and there is room."""
        if self._messages is None:
            return False
        room = self._messages.size < self._task.file_bytes_max
        return room and piece.first == self._last + 1 and day_of(piece.appended_at) == self._day

    def add(self, pieces: Sequence[Piece], outcomes: Sequence[pa.RecordBatch]) -> None:
        """Write messages and their outcomes."""
        root, queue = Path(self._task.root), self._task.queue.name
        if self._messages is None:
            self._messages = FileWriter(root, "messages", queue, self._day)
            self._first, self._since = pieces[0].first, pieces[0].appended_at
        for group in gather(pieces):
            taken = appended_at(group, APPENDED_AT.type)
            self._messages.write(self._shape.batch(group).append_column(APPENDED_AT, taken))
        self._last, self._until = end_of(pieces[-1]) - 1, pieces[-1].appended_at
        for batch in outcomes:
            self._outcomes = self._outcomes or FileWriter(root, "outcomes", queue, self._day)
            self._outcomes.write(batch)

    def close(self) -> list[DataFile]:
        """Name the files."""
        places = (self._first, self._last, self._since, self._until)
        writers = [each for each in (self._messages, self._outcomes) if each is not None]
        return [writer.close(*places) for writer in writers]

    def drop(self) -> None:
        """Forget them."""
        for writer in (self._messages, self._outcomes):
            if writer is not None:
                writer.drop()


def _runs(placed: Iterable[Placed]) -> Iterator[list[Placed]]:
    """Blocks of one day that follow each other without a hole."""
    run: list[Placed] = []
    for stored, piece in placed:
        if run:
            day, first_day = day_of(piece.appended_at), day_of(run[0][1].appended_at)
            if piece.first != end_of(run[-1][1]) or day != first_day:
                yield run
                run = []
        run.append((stored, piece))
    if run:
        yield run


def end_of(piece: Piece) -> int:
    """The sequence number after its last message."""
    return piece.first + len(piece.block)


async def read_outcomes(log: Log, group: Group, blocks: Sequence[StoredBlock]) -> list[list[Outcome]]:
    """The outcome log's entries on each block."""
    found: list[list[Outcome]] = []
    for at in range(0, len(blocks), _AT_ONCE):
        calls = [log.outcomes(group, block.first, limit=OUTCOMES_MAX) for block in blocks[at : at + _AT_ONCE]]
        found += await asyncio.gather(*calls)
    return found
