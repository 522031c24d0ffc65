"""A task of a flow that writes to a queue: its rows are staged by the sink's own code."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import msgspec
import pyarrow as pa

from forebay.spark.logs import face
from forebay.spark.publishing import BadRows
from forebay.spark.sink import Plan

ANSWER: Final = "place INT, ids BINARY, rows BIGINT, refusal STRING"
_ARROW: Final = pa.schema(
    [("place", pa.int32()), ("ids", pa.binary()), ("rows", pa.int64()), ("refusal", pa.string())]
)


class StagingFailed(RuntimeError):  # noqa: N818 - it never leaves a flow
    """Rows could not be staged, and it isn't the rows: whoever judges goes by its name."""


class StageTask(msgspec.Struct, frozen=True):
    """What Spark's `mapInArrow` calls, once for a task; its answer is the ids of the blocks, in order."""

    plan: Plan
    stage: str

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Stage all rows of the task, then say under which ids."""
        from pyspark import TaskContext  # noqa: PLC0415 - only in a task

        from forebay.spark.staging import Staging  # noqa: PLC0415 - likewise

        context = TaskContext.get()
        assert context is not None, "outside of a task"
        place = context.partitionId()
        options = self.plan.options
        staging = Staging(
            face(self.plan.opener, options.url, **options.credentials), self.plan, self.stage, place
        )
        reading = _Reading(batches)
        refusal = None
        try:
            staging.write(reading)
        except BadRows as error:
            refusal = str(error)  # for the driver: a task that is repeated is refused again
        except Exception as error:
            if reading.failed:
                raise
            raise StagingFailed(f"{type(error).__name__}: {error}") from error
        answer = {
            "place": place, "ids": b"".join(staging.ids), "rows": staging.rows, "refusal": refusal,
        }  # fmt: skip
        yield pa.RecordBatch.from_pylist([answer], schema=_ARROW)


class _Reading:
    """The rows of a task, and whether reading them failed: then it wasn't the staging."""

    def __init__(self, batches: Iterable[pa.RecordBatch]) -> None:
        self._batches = batches
        self.failed = False

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        try:
            yield from self._batches
        except Exception:
            self.failed = True
            raise
