"""A flow that reads a queue, as a streaming query.

Each batch: actions and staging in one job, then one transaction that publishes what was staged together with
the flow's place and the rows that it gave up, then the group is told. `place` and `keeping` say what that is
good for; Spark's checkpoint may be lost, or old, and nothing happens twice.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

import msgspec
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from forebay.model import mint
from forebay.spark.flows.batch import Made, make, staging
from forebay.spark.flows.files import Folder
from forebay.spark.flows.keeping import Keeping, Moved
from forebay.spark.flows.notes import Notes
from forebay.spark.flows.numbers import FlowNumbers
from forebay.spark.flows.values import FlowSpec, ParquetSink, QueueSink, QueueSource
from forebay.spark.logs import Face, Opener, face
from forebay.spark.sink import Plan
from forebay.spark.sink_options import SinkOptions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_logger: Final = logging.getLogger("forebay.spark")
_ROWS_PER_TASK: Final = 5_000


class Surroundings(msgspec.Struct, frozen=True, kw_only=True):
    """What all flows of a process share."""

    opener: Opener
    url: str
    credentials: dict[str, str]
    checkpoints: Path
    folder: Path
    """Where contracts are looked for."""

    def face(self) -> Face:
        """The open log of this process."""
        return face(self.opener, self.url, **self.credentials)

    def plan(self, queue: str) -> Plan:
        """What tasks need to stage rows of a queue."""
        options = SinkOptions(url=self.url, queue=queue, **self.credentials)  # type: ignore[arg-type]  # key, ca_file
        return Plan(opener=self.opener, options=options, run=mint().hex())


class Running(Protocol):
    """A flow that was started."""

    def is_active(self) -> bool:
        """Whether it goes on."""
        ...

    def error(self) -> BaseException | None:
        """Why it doesn't; None when it was stopped, or is done."""
        ...

    def stop(self) -> None:
        """End it; what it is doing may be finished, or done again by whoever starts it next."""
        ...


class QueueFlow:
    """One start of a flow that reads a queue."""

    def __init__(
        self, spark: SparkSession, flow: FlowSpec, surroundings: Surroundings, numbers: FlowNumbers
    ) -> None:
        assert isinstance(flow.source, QueueSource), "a flow that reads a queue"
        self._flow = flow
        self._source = flow.source
        self._numbers = numbers
        self._around = surroundings
        self._face = surroundings.face()
        self._keeping = Keeping(self._face.log, flow)
        self._failed: BaseException | None = None
        self._ending = threading.Event()
        self._is_first = True
        self._face(self._keeping.begin())
        self._files = self._swept()
        self._face(self._keeping.check_kept())
        self._notes = self._own_notes()
        self._query = self._started(spark)

    def is_active(self) -> bool:
        """Whether the query goes on."""
        return bool(self._query.isActive)

    def error(self) -> BaseException | None:
        """What its batch raised, or else what Spark says."""
        if self._ending.is_set():
            return None
        return self._failed or self._query.exception()

    def stop(self) -> None:
        """Stop the query; a batch that is under way is cancelled, unless it is being published."""
        self._ending.set()
        self._query.stop()

    def _swept(self) -> Folder | None:
        """Where files go, without what others left there; None where rows go to a queue."""
        if not isinstance(self._flow.sink, ParquetSink):
            return None
        folder = Folder(self._flow, self._flow.sink, self._keeping.place)
        if self._keeping.found is not None:
            folder.sweep(self._keeping.found)
        return folder

    def _own_notes(self) -> Notes:
        """The checkpoint of this place. One that isn't at it is left, since the log says where the flow is.

        It is behind after a crash, or if the flow ran elsewhere meanwhile: what it would read again may be
        gone by now. It is ahead of a log that came out of a backup. A power failure may have spoilt it.
        """
        notes = Notes(self._folder(), self._source.queue)
        if not notes.are_at(self._keeping.place.end):
            self._face(self._keeping.start_anew())
            notes = Notes(self._folder(), self._source.queue)
        found = self._keeping.found
        if found is None or found.checkpoint != self._keeping.place.checkpoint:
            notes.drop_others()
        return notes

    def _folder(self) -> Path:
        return self._around.checkpoints / self._flow.name / self._keeping.place.checkpoint

    def _started(self, spark: SparkSession) -> StreamingQuery:
        options: dict[str, Any] = {
            "url": self._around.url,
            "queue": self._source.queue,
            "startingOffsets": json.dumps({self._source.queue: self._keeping.place.end}),
            "maxOffsetsPerTrigger": self._source.rows_max,
            "minPartitions": self._tasks(spark),
            "includeHeaders": "true",
            "failOnDataLoss": "true" if self._source.on_loss == "fail" else "false",
            **self._around.credentials,
        }
        if self._flow.contract is not None:
            options["contract"] = str(self._around.folder / self._flow.contract)
        self._notes.folder.mkdir(parents=True, exist_ok=True)
        writer = spark.readStream.format("forebay").options(**options).load().writeStream
        writer = writer.foreachBatch(self._batch).option("checkpointLocation", str(self._notes.folder))
        if self._flow.once:
            return writer.trigger(availableNow=True).start()
        return writer.trigger(processingTime=f"{round(self._flow.every * 1000)} milliseconds").start()

    def _tasks(self, spark: SparkSession) -> int:
        return max(1, min(spark.sparkContext.defaultParallelism, self._source.rows_max // _ROWS_PER_TASK))

    def _batch(self, frame: DataFrame, number: int) -> None:
        """What Spark calls with each batch."""
        if self._ending.is_set():
            raise RuntimeError("the flow is being stopped")
        try:
            self._face(self._keeping.check())
            first, end = self._keeping.place.end, self._notes.end(number)
            if end > first:
                self._do(frame, first, end)
        except BaseException as error:
            self._failed = error
            raise

    def _do(self, frame: DataFrame, first: int, end: int) -> None:
        began = time.monotonic()
        if self._is_first:  # what Spark repeats may have been published in part, as another batch
            frame = frame.filter(F.col("seq") >= first)
        lost = self._lost(first, end)
        made, stage = self._made(frame, first, end)
        self._publish(made, stage, end)
        self._is_first = False
        self._face(self._keeping.settle())
        self._numbers.batch(end - first - lost, made.rows, len(made.dead), time.monotonic() - began)
        self._numbers.lost += lost
        if lost:
            text = "flow %r skipped %d messages of queue %r, dropped before it came to them: %d to %d"
            _logger.warning(text, self._flow.name, lost, self._source.queue, first, first + lost - 1)

    def _lost(self, first: int, end: int) -> int:
        """How many messages of a batch are gone, where they may be; they are the first."""
        if self._source.on_loss == "fail":
            return 0
        return max(0, min(self._face(self._keeping.floor()), end) - first)

    def _publish(self, made: Made, stage: str, end: int) -> None:
        try:
            self._face(self._keeping.publish(stage, made.ids, end, rows=made.rows, dead=made.dead))
        except Moved:
            if self._files is not None and not self._face(self._keeping.counts()):
                self._files.withdraw()
            raise

    def _made(self, frame: DataFrame, first: int, end: int) -> tuple[Made, str]:
        sink = self._flow.sink
        stage = f"flow/{self._flow.name}/{mint().hex()}"
        if isinstance(sink, QueueSink):
            write = staging(self._around.plan(sink.queue), stage, self._flow)
            return make(frame, self._flow, first, end, write), stage
        assert self._files is not None, "a queue or files"
        made = make(frame, self._flow, first, end, self._files.writing())
        self._files.show(made, self._keeping.place.stem)
        return made, stage
