"""A flow that calls a function at every tick, and writes what it returns: each tick once at most.

The number of the tick is a record, written in the transaction that publishes. A tick that fails is noted in
it, too, and tried again as long as its time lasts, up to the flow's `max_attempts`; it is not made up for
later. Rows that fail are published beside the others, as dead letters (see `failed`).
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec
from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from forebay.log.seam import VersionConflict
from forebay.log.values import Record
from forebay.model import ForebayError, SystemClock, mint, to_datetime
from forebay.spark.columns import HEADERS, MESSAGE
from forebay.spark.flows.batch import Made, make, staging
from forebay.spark.flows.failed import FailedRows
from forebay.spark.flows.functions import function
from forebay.spark.flows.keeping import Moved, made_queue
from forebay.spark.flows.numbers import FlowNumbers
from forebay.spark.flows.place import SPACE
from forebay.spark.flows.rowwise import RowError, value_of
from forebay.spark.flows.running import Surroundings
from forebay.spark.flows.values import FlowSpec, QueueSink, TimedSource
from forebay.spark.publishing import patiently

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS: StructType = StructType([*MESSAGE.fields, HEADERS])
"""The columns of rows that don't come from a queue."""


class Tick(msgspec.Struct, frozen=True):
    """What the record of a timed flow says."""

    tick: int
    rows: int
    at: int
    failures: int = 0
    """How often it was tried and failed; 0 when it is done."""


class TimedFlow:
    """What a timed flow does at a tick."""

    def __init__(
        self, spark: SparkSession, flow: FlowSpec, surroundings: Surroundings, numbers: FlowNumbers
    ) -> None:
        assert isinstance(flow.source, TimedSource), "a timed flow"
        assert isinstance(flow.sink, QueueSink), "its rows go to a queue"
        self._spark = spark
        self._flow = flow
        self._queue = flow.sink.queue
        self._call = function(flow.source.function)
        self._around = surroundings
        self._numbers = numbers
        self._face = surroundings.face()
        self._face(made_queue(self._face.log, self._queue))
        self._failed = FailedRows(self._face.log, flow)
        self._face(self._failed.bury())

    def __call__(self, tick: int) -> None:
        """Do what is to be done at a tick, unless it was done, or failed as often as it may."""
        began = time.monotonic()
        known, version = self._face(self._known())
        if known.tick > tick or (known.tick == tick and not self._may_try(known.failures)):
            return
        stage = f"flow/{self._flow.name}/{mint().hex()}"
        try:
            made, rows = self._made(stage)
        except Exception:
            failures = known.failures + 1 if known.tick == tick else 1
            self._note(Tick(tick, 0, SystemClock().now(), failures), version)
            raise
        ids = [*made.ids, *self._face(self._failed.stage(stage, made.dead, rows))]
        record = self._record(Tick(tick, made.rows, SystemClock().now()), version)
        try:
            self._face(patiently(lambda: self._face.log.publish(stage, ids, records=[record])))
        except VersionConflict as error:
            raise Moved(f"another program did tick {tick} of flow {self._flow.name!r}") from error
        if made.dead:
            self._face(self._failed.bury())
        self._numbers.batch(len(rows), made.rows, len(made.dead), time.monotonic() - began)

    def _may_try(self, failures: int) -> bool:
        """Whether a tick that failed so often is tried again; who runs a flow once has asked for it."""
        return failures > 0 and (self._flow.once or failures < self._flow.max_attempts)

    async def _known(self) -> tuple[Tick, int]:
        """What the record says, and its version."""
        kept = await patiently(lambda: self._face.log.records(SPACE, [self._key]))
        if not kept:
            return Tick(-1, 0, 0), 0
        return msgspec.json.decode(kept[0].value, type=Tick), kept[0].version

    def _note(self, tick: Tick, version: int) -> None:
        """Note a failure; where that can't be done, the tick is tried once more."""
        with suppress(ForebayError):
            self._face(self._face.log.commit(records=[self._record(tick, version)]))

    @property
    def _key(self) -> str:
        return f"{self._flow.name}/tick"

    def _record(self, tick: Tick, version: int) -> Record:
        return Record(SPACE, self._key, msgspec.json.encode(tick), version=version)

    def _made(self, stage: str) -> tuple[Made, Sequence[Mapping[str, Any]]]:
        rows = self._rows()
        if not rows:
            return Made((), ()), rows
        write = staging(self._around.plan(self._queue), stage, self._flow)
        return make(frame_of(self._spark, rows), self._flow, 1, len(rows) + 1, write), rows

    def _rows(self) -> Sequence[Mapping[str, Any]]:
        takes = bool(inspect.signature(self._call).parameters)
        found = self._call(self._spark) if takes else self._call()
        if isinstance(found, DataFrame):
            return [row.asDict() for row in found.collect()]
        return [row if isinstance(row, Mapping) else {"value": row} for row in _listed(found)]


def _listed(found: Any) -> Iterable[Any]:
    if found is None:
        return []
    return [found] if isinstance(found, Mapping | str | bytes) else found


def frame_of(spark: SparkSession, rows: Iterable[Mapping[str, Any]]) -> DataFrame:
    """Rows as a DataFrame like one that is read from a queue; they are numbered from 1."""
    now = to_datetime(SystemClock().now())
    known = frozenset(ROWS.names)
    listed = []
    for number, row in enumerate(rows, 1):
        if odd := [name for name in row if name not in known]:
            raise RowError(f"there is no column {odd[0]!r}; a row has {', '.join(sorted(known))}")
        whole = {"queue": None, "partition": "", "key": None, "created_at": now, "headers": None, **row}
        listed.append(
            tuple(
                {**whole, "value": value_of(whole.get("value")), "seq": number}[name] for name in ROWS.names
            )
        )
    return spark.createDataFrame(listed, ROWS)
