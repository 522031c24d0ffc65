"""Record batches, and what becomes of them: for the tests of the sink's rows."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import pyarrow as pa

from forebay.contract import Format
from forebay.log.values import Queue, QueueSettings
from forebay.model import Block, Limits, Message, check_block, decode, encode
from forebay.spark.bad_rows import Faults
from forebay.spark.rows import Page, blocks_of, fold_page, page_of

TYPES: Final = {
    "value": pa.binary(),
    "queue": pa.string(),
    "partition": pa.string(),
    "key": pa.string(),
    "headers": pa.map_(pa.string(), pa.string()),
    "start_time": pa.timestamp("us", "UTC"),
}
QUEUES: Final[Mapping[str, Queue]] = {
    "plain": Queue(1, "plain", QueueSettings(), 0),
    "other": Queue(2, "other", QueueSettings(), 0),
    "lanes": Queue(3, "lanes", QueueSettings(ordered=True), 0),
}
NOON: Final = datetime(2026, 1, 31, 12, tzinfo=UTC)


def batch(**columns: Sequence[Any]) -> pa.RecordBatch:
    """A record batch as Spark hands it over."""
    arrays = [pa.array(given, TYPES[name]) for name, given in columns.items()]
    return pa.record_batch(arrays, names=list(columns))


def judged(
    *batches: pa.RecordBatch,
    queue: str | None = None,
    typed: Format | None = None,
    limits: Limits | None = None,
) -> tuple[Page, Faults]:
    """The page of some batches, and what is wrong with its rows."""
    page, misfits = page_of(0, batches, queue, typed)
    page, faults = fold_page(page, QUEUES, limits or Limits(), typed)
    return page, faults | misfits


def written(
    *batches: pa.RecordBatch, queue: str | None = None, limits: Limits | None = None
) -> list[tuple[str, Block]]:
    """The blocks of some good batches, as they come back from bytes."""
    page, faults = judged(*batches, queue=queue, limits=limits)
    assert faults == {}
    found = list(blocks_of(page, queue, QUEUES, limits or Limits()))
    for _, block in found:
        check_block(block, limits or Limits())
    return [(target.name, decode(encode(block))) for target, block in found]


def messages(blocks: Sequence[tuple[str, Block]]) -> list[tuple[str, Message]]:
    """What is in blocks, with the queue that it goes to."""
    return [(name, message) for name, block in blocks for message in block]
