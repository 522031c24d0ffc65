"""The sink: executors stage blocks, the driver publishes them, once.

A task stages what it makes of its rows under a name that no other run has, and tells the driver the ids of
its blocks. Attempts that fail, or lose against another, told nobody, and what they staged is never seen. Then
the driver publishes the blocks of all tasks in one transaction: see `forebay.spark.publishing`.

This module is imported anew for each batch of a stream, in a process that lives for its commit: what only
tasks need is imported by them.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from forebay.model import Rejected, mint
from forebay.spark.logs import Face, Opener, face
from forebay.spark.publishing import Staged, forget, publish_once
from forebay.spark.sink_options import SinkOptions, check_columns, sink_options

if TYPE_CHECKING:
    from pyarrow import RecordBatch
    from pyspark.sql.types import StructType

    from forebay.contract import QueueContract

_BATCH_ID: Final = "streaming.sql.batchId"
_QUERY_ID: Final = "sql.streaming.queryId"

logger = logging.getLogger(__name__)


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """One write, as the driver plans it and its tasks carry it out."""

    opener: Opener
    options: SinkOptions
    run: str
    """A name that no other run of the same write has."""
    contract: QueueContract | None = None
    contract_version: str | None = None


class Message(WriterCommitMessage):
    """What a task tells the driver."""

    def __init__(self, staged: Staged) -> None:
        self.staged = staged


class BatchSink(DataSourceArrowWriter):
    """`df.write.format("forebay")`."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan

    def write(self, iterator: Iterator[RecordBatch]) -> Message:
        """Stage the rows of one task."""
        options, run = self._plan.options, self._plan.run
        app, version = options.txn_app_id, options.txn_version
        return _staged(self._plan, iterator, app or f"job-{run}", version or 0, None, keeps=app is not None)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Publish what the tasks staged."""
        _publish(self._plan, messages)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Forget what they staged."""
        _abort(self._plan, messages)


class StreamSink(DataSourceStreamArrowWriter):
    """`df.writeStream.format("forebay")`."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan

    def write(self, iterator: Iterator[RecordBatch]) -> Message:
        """Stage the rows of one task of one batch.

        The query's id lives as long as its checkpoint, and so do the numbers of batches.
        """
        query, batch = _property(_QUERY_ID), _property(_BATCH_ID)
        app = self._plan.options.txn_app_id or query
        return _staged(self._plan, iterator, app, int(batch), query, keeps=True)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Publish what the tasks staged, unless this batch was published before."""
        assert all(m.staged.version == batchId for m in messages if isinstance(m, Message)), "another batch"
        _publish(self._plan, messages)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: ARG002 - Spark's
        """Forget what they staged."""
        _abort(self._plan, messages)


def plan_write(
    opener: Opener, options: Mapping[str, str], schema: StructType, *, overwrite: bool, stream: bool
) -> Plan:
    """Check everything that can be known before rows move."""
    if overwrite:
        text = "a queue can't be overwritten" if not stream else "a queue can't be written in complete mode"
        raise Rejected(
            text, hint="use mode append: a queue is added to" if not stream else "use outputMode append"
        )
    read = sink_options(options, stream=stream)
    contract, version = _contract(read)
    check_columns(schema, read, None if contract is None else field_columns(contract))
    return Plan(opener=opener, options=read, run=mint().hex(), contract=contract, contract_version=version)


def _contract(options: SinkOptions) -> tuple[QueueContract | None, str | None]:
    if options.contract is None:
        return None, None
    from forebay.contract import read_contract  # noqa: PLC0415 - it brings YAML

    contract = read_contract(options.contract)
    for queue in contract.queues:
        if queue.name == options.queue:
            return queue, contract.version
    names = ", ".join(queue.name for queue in contract.queues)
    text = f"the contract {options.contract} has no queue {options.queue!r}"
    raise Rejected(text, hint=f"it has {names}")


def field_columns(contract: QueueContract) -> list[str]:
    """The columns of a contract's fields, called as a reader calls them."""
    from forebay.spark.columns import column_name  # noqa: PLC0415 - only with a contract

    return [column_name(field.name) for field in contract.fields]


def _staged(
    plan: Plan, batches: Iterator[RecordBatch], app: str, version: int, query: str | None, *, keeps: bool
) -> Message:
    from forebay.spark.staging import Staging  # noqa: PLC0415 - only tasks need Arrow

    place = _partition_id()
    stage = f"spark/{app}/{version}/{plan.run}"
    staging = Staging(_log(plan), plan, stage, place)
    try:
        staging.write(batches)
        refusal = None
    except Rejected as error:
        refusal = error  # for the driver to raise: a task that is repeated is refused again
    return Message(
        Staged(
            app=app,
            version=version,
            query=query,
            stage=stage,
            place=place,
            ids=b"".join(staging.ids),
            keeps=keeps,
            rows=staging.rows,
            bad=staging.bad.count,
            named=staging.bad.named,
            refusal=refusal,
        )
    )


def _publish(plan: Plan, messages: Sequence[WriterCommitMessage | None]) -> None:
    opened = _log(plan)
    opened(publish_once(opened.log, _told(messages)))


def _abort(plan: Plan, messages: Sequence[WriterCommitMessage | None]) -> None:
    """What can't be forgotten now is swept by retention; the error that matters is the one that led here."""
    try:
        if told := _told(messages):
            opened = _log(plan)
            opened(forget(opened.log, [task.stage for task in told]))
    except Exception:
        logger.exception("what was staged could not be forgotten; retention removes it")


def _log(plan: Plan) -> Face:
    return face(plan.opener, plan.options.url, **plan.options.credentials)


def _told(messages: Sequence[WriterCommitMessage | None]) -> list[Staged]:
    return [message.staged for message in messages if isinstance(message, Message)]


def _task() -> Any:
    from pyspark import TaskContext  # noqa: PLC0415 - only in a task

    context = TaskContext.get()
    assert context is not None, "outside of a task"
    return context


def _property(name: str) -> str:
    value: str | None = _task().getLocalProperty(name)
    assert value is not None, f"Spark did not say {name}"
    return value


def _partition_id() -> int:
    number: int = _task().partitionId()
    return number
