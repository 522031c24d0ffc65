"""What Spark reads in each round: the slices that there are, with what the log says of their groups.

The offset of a round is its time and the slices that it folded, so that the next one can say which are
gone. A round that is run again looks at the log anew: what is folded depends on the log, not on the round.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec
import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import ReadLimit
from pyspark.sql.types import BinaryType, IntegerType, LongType, StringType, StructField, StructType

from forebay.log.seam import Log
from forebay.observe.labels import LabelSettings
from forebay.spark.keeping import settle_in
from forebay.spark.logs import face
from forebay.spark.snapshot.image import encode_image
from forebay.spark.snapshot.survey import Survey, survey

if TYPE_CHECKING:
    from forebay.spark.logs import Opener

__all__ = ["TASKS", "SnapshotSource"]

TASKS: Final = StructType(
    [
        StructField("number", IntegerType(), nullable=False),
        StructField("place", LongType(), nullable=False),
        StructField("queue", StringType()),
        StructField("image", BinaryType()),
        StructField("at", LongType(), nullable=False),
        StructField("purged", BinaryType(), nullable=False),
    ]
)
"""`place` numbers the slices of a queue; without an `image` a slice is gone, and forgotten."""


class _Offset(msgspec.Struct, frozen=True):
    """A round that was planned."""

    round: int = 0
    """The time when it was planned, in µs; later than that of the round before."""
    slices: dict[str, list[int]] = {}
    """By the number of a queue."""

    def places(self) -> set[tuple[int, int]]:
        return {(int(number), place) for number, places in self.slices.items() for place in places}


class SnapshotSource(DataSource):
    """The source of rounds; whoever registers it brings the function that opens a log."""

    @staticmethod
    @abstractmethod
    def open_log(url: str) -> Log:
        """Open the log at an address."""

    @classmethod
    def name(cls) -> str:
        """What follows `format(...)`."""
        return "forebay_snapshot"

    def schema(self) -> StructType:
        """The columns of a round."""
        settle_in()
        return TASKS

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: ARG002 - it is always the same
        """A reader of rounds."""
        return Rounds(type(self).open_log, dict(self.options))


class _Rows(InputPartition):
    def __init__(self, rows: list[tuple[Any, ...]]) -> None:
        super().__init__(None)
        self.rows = rows


class Rounds(DataSourceStreamReader):
    """One round after the other, each of all slices."""

    def __init__(self, opener: Opener, options: Mapping[str, str]) -> None:
        self._opener = opener
        self._url = options["url"]
        self._credentials = {name: options[name] for name in ("key", "ca_file") if name in options}
        self._pattern = options.get("pattern", ".*")
        self._labels = msgspec.json.decode(options["labels"], type=LabelSettings)
        self._planned: tuple[int, Survey] | None = None

    def initialOffset(self) -> dict[str, Any]:
        """Before the first round."""
        return dict(msgspec.to_builtins(_Offset()))

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: ARG002 - all of it
        """The next round: there is always one."""
        found = self._look()
        slices: dict[str, list[int]] = {}
        for task in found.tasks:
            slices.setdefault(str(task.queue.number), []).append(task.place)
        # Later than the last one, whatever the log's clock says: an offset that stays is no round.
        number = max(found.at, msgspec.convert(start, _Offset).round + 1)
        self._planned = (number, found)
        return dict(msgspec.to_builtins(_Offset(number, slices)))

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """All slices of a round in one task: each is a row."""
        before, until = msgspec.convert(start, _Offset), msgspec.convert(end, _Offset)
        planned = self._planned
        found = planned[1] if planned is not None and planned[0] == until.round else self._look()
        purged = msgspec.msgpack.encode(found.purged)
        known = until.places()
        rows: dict[tuple[int, int], tuple[Any, ...]] = {
            (task.queue.number, task.place): (
                task.queue.number, task.place, task.queue.name, encode_image(task.image), found.at, purged,
            )
            for task in found.tasks
            if (task.queue.number, task.place) in known
        }  # fmt: skip
        for number, place in (before.places() | known) - rows.keys():
            rows[number, place] = (number, place, None, None, found.at, purged)
        return [_Rows(list(rows.values()))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a round."""
        assert isinstance(partition, _Rows), "it was planned here"
        schema = to_arrow_schema(TASKS, timezone="UTC")
        columns = zip(*partition.rows, strict=True) if partition.rows else [()] * len(schema)
        arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)

    def _look(self) -> Survey:
        opened = face(self._opener, self._url, **self._credentials)
        return opened(survey(opened.log, self._pattern, self._labels))
