"""One batch of a flow: actions, staging, and what becomes of rows that fail.

Everything happens in one job, unless something fails that can only be tried on many rows at once: then there
is a job for each part of the batch. What parts have staged is published together, in order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

import msgspec
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from forebay.model import ID_BYTES
from forebay.spark.flows.actions import DeadRows, apply, messages
from forebay.spark.flows.blame import is_of_rows, told
from forebay.spark.flows.halving import DeadRow, RowsFail, check_dead, isolate
from forebay.spark.flows.staging import ANSWER, StageTask
from forebay.spark.flows.values import FlowSpec
from forebay.spark.sink import Plan

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class Part(msgspec.Struct, frozen=True):
    """What one job made of some rows."""

    ids: tuple[bytes, ...] = ()
    """Of the blocks that it staged, in order."""
    files: tuple[str, ...] = ()
    """The folder that it wrote."""
    rows: int = 0
    dead: tuple[DeadRow, ...] = ()


class Made(msgspec.Struct, frozen=True):
    """What became of all rows of a batch."""

    parts: tuple[Part, ...]
    dead: tuple[DeadRow, ...]

    @property
    def ids(self) -> list[bytes]:
        """Of all blocks, in order."""
        return [block for part in self.parts for block in part.ids]

    @property
    def rows(self) -> int:
        """How many came out of it."""
        return sum(part.rows for part in self.parts)


class Write(Protocol):
    """Takes the rows that come out of the actions: runs the job."""

    def __call__(self, frame: DataFrame) -> Part:
        """Run it."""
        ...


def staging(plan: Plan, stage: str, flow: FlowSpec) -> Write:
    """Into blocks of a queue."""

    def write(frame: DataFrame) -> Part:
        task = StageTask(plan, stage)
        told_by = messages(frame, flow).mapInArrow(task, ANSWER).collect()
        answers = sorted(told_by, key=lambda answer: answer["place"])
        for answer in answers:
            if answer["refusal"] is not None:
                raise RowsFail(answer["refusal"])
        ids = [
            bytes(answer["ids"][at : at + ID_BYTES])
            for answer in answers
            for at in range(0, len(answer["ids"]), ID_BYTES)
        ]
        return Part(ids=tuple(ids), rows=sum(answer["rows"] for answer in answers))

    return write


def make(frame: DataFrame, flow: FlowSpec, first: int, end: int, write: Write) -> Made:
    """Run a batch, the rows from `first` up to `end`; rows that fail are found and left out."""

    def attempt(start: int, stop: int) -> Part:
        rows = frame if (start, stop) == (first, end) else _between(frame, start, stop)
        return _once(rows, flow, write)

    def bury(seq: int, error: RowsFail) -> DeadRow:
        action = _culprit(lambda: _between(frame, seq, seq + 1), flow)
        return DeadRow(seq, action, str(error), flow.max_attempts)

    parts, dead = isolate(first, end, attempt, bury, tries=flow.max_attempts)
    rows = {row.seq: row for part in parts for row in part.dead} | {row.seq: row for row in dead}
    check_dead(len(rows))
    return Made(tuple(parts), tuple(rows[seq] for seq in sorted(rows)))


def _between(frame: DataFrame, start: int, stop: int) -> DataFrame:
    return frame.filter((F.col("seq") >= start) & (F.col("seq") < stop))


def _once(frame: DataFrame, flow: FlowSpec, write: Write) -> Part:
    failures = frame.sparkSession.sparkContext.accumulator([], DeadRows())
    try:
        part = write(apply(frame, flow.actions, flow.max_attempts, failures))
    except RowsFail:
        raise
    except Exception as error:
        if is_of_rows(error):
            raise RowsFail(told(error)) from error
        raise
    return msgspec.structs.replace(part, dead=tuple(failures.value))


def _culprit(frame: Callable[[], DataFrame], flow: FlowSpec) -> str:
    """The first action that fails on a row: they are computed together, so each is tried without the next."""
    for count in range(1, len(flow.actions)):
        failures = frame().sparkSession.sparkContext.accumulator([], DeadRows())
        try:
            apply(frame(), flow.actions[:count], 1, failures).collect()
        except Exception as error:
            if is_of_rows(error):
                return flow.actions[count - 1].name
            raise
    return flow.last_action
