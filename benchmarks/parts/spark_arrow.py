"""The limits of Spark's Arrow path: batches that lie ready in a file, and a sink that throws batches away.

Nothing is fetched, decoded, converted or written: no source in Python hands over these rows faster, and no
sink in Python takes them faster.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceWriter,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from forebay.model import Block
from forebay.spark.arrow import Piece, Shape
from forebay.spark.columns import READ

FORMAT: Final = "ready"
SINK: Final = "thrown_away"
TASKS: Final = 4


class ReadySource(DataSource):
    """What `format("ready")` is, once it is registered; the option `path` names the file."""

    @classmethod
    def name(cls) -> str:
        """What follows `format(...)`."""
        return FORMAT

    def schema(self) -> StructType:
        """The columns of messages."""
        return READ

    def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002 - Spark's
        """What hands over the file."""
        return ReadyReader(self.options["path"])


class ReadyReader(DataSourceReader):
    """Hands over the batches of a file, which is mapped into memory."""

    def __init__(self, path: str) -> None:
        self._path = path

    def partitions(self) -> list[InputPartition]:
        """So many tasks, each with every so many-th batch."""
        return [InputPartition(number) for number in range(TASKS)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The batches of one task."""
        file = pa.ipc.open_file(pa.memory_map(self._path))
        for number in range(partition.value, file.num_record_batches, TASKS):
            yield file.get_batch(number)


class ThrownAway(DataSource):
    """What `format("thrown_away")` is, once it is registered."""

    @classmethod
    def name(cls) -> str:
        """What follows `format(...)`."""
        return SINK

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:  # noqa: ARG002, FBT001 - Spark's
        """What takes the rows."""
        return ThrowingWriter()


class ThrowingWriter(DataSourceArrowWriter):
    """Takes batches, and looks at none of them."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Take the batches of one task."""
        for _ in iterator:
            pass
        return WriterCommitMessage()


def write_ready(path: Path, queue: str, blocks: Iterable[Block], at: int) -> None:
    """Write messages as the batches that a read of the queue hands over; the log took all of them `at`."""
    shape = Shape(READ)
    with pa.ipc.new_file(path, shape.schema) as out:
        for batch in shape.batches(_pieces(queue, blocks, at)):
            out.write_batch(batch)


def _pieces(queue: str, blocks: Iterable[Block], at: int) -> Iterator[Piece]:
    first = 1
    for block in blocks:
        yield Piece(queue, first, at, block)
        first += len(block)
