"""Which messages of spool files repeat the transaction id of an earlier one: a job of its own.

Only for queues that don't find that out by themselves while they are replayed into: see `planning.deduping`.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Final, cast

from forebay.log.intake import digest_of
from forebay.model import Rejected
from forebay.spark.replay.planning import Deduping, Source, repeated
from forebay.spark.replay.staging import Entries

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

REPEATED_MAX: Final = 5_000_000
_ROWS: Final = 50_000
_SCHEMA: Final = "digest BINARY, task INT, file INT, entry INT, message INT, at BIGINT, span BIGINT"
_Row = tuple[bytes, int, int, int, int, int, int]


def find_repeated(
    spark: SparkSession, groups: Sequence[Sequence[Source]], rules: Deduping
) -> dict[str, list[tuple[int, int]]]:
    """By file: entry and message, where an earlier message has the queue, partition and transaction id.

    And was accepted within the queue's window of it, where the queue has one.
    """
    from pyspark.sql import Window  # noqa: PLC0415 - only with the spark extra
    from pyspark.sql import functions as f  # noqa: PLC0415 - likewise

    rows = [(number, pickle.dumps(list(group))) for number, group in enumerate(groups)]
    tasks = spark.createDataFrame(spark.sparkContext.parallelize(rows, len(rows)), "task INT, files BINARY")
    found = tasks.mapInArrow(_digester(rules), _SCHEMA)
    times = f.count("*").over(Window.partitionBy("digest"))
    several = found.withColumn("times", times).where("times > 1").drop("times").limit(REPEATED_MAX + 1)
    messages: list[_Row] = sorted(cast("_Row", tuple(row)) for row in several.collect())
    if len(messages) > REPEATED_MAX:
        text = f"over {REPEATED_MAX:,} messages repeat a transaction id"
        raise Rejected(text, hint="replay fewer folders at once, oldest first")
    result: dict[str, list[tuple[int, int]]] = {}
    for _, same in groupby(messages, key=itemgetter(0)):
        alike = list(same)
        places = [(row[1:5], row[5]) for row in alike]
        for task, file, entry, message in repeated(places, alike[0][6]):
            result.setdefault(groups[task][file].shown, []).append((entry, message))
    return result


def _digester(
    rules: Deduping,
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def digest(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for task, files in zip(batch["task"].to_pylist(), batch["files"].to_pylist(), strict=True):
                yield from _batches(task, pickle.loads(files), rules)  # noqa: S301 - from our own driver

    return digest


def _batches(task: int, sources: Sequence[Source], rules: Deduping) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa  # noqa: PLC0415 - in executors

    types = {"digest": pa.binary(), "task": pa.int32(), "file": pa.int32(), "entry": pa.int32()}
    schema = pa.schema({**types, "message": pa.int32(), "at": pa.int64(), "span": pa.int64()})
    rows: list[_Row] = []
    for row in _rows(task, sources, rules):
        rows.append(row)
        if len(rows) >= _ROWS:
            yield _batch(rows, schema)
            rows = []
    if rows:
        yield _batch(rows, schema)


def _batch(rows: list[_Row], schema: pa.Schema) -> pa.RecordBatch:
    import pyarrow as pa  # noqa: PLC0415 - likewise

    columns = zip(zip(*rows, strict=True), schema.types, strict=True)
    return pa.RecordBatch.from_arrays([pa.array(column, kind) for column, kind in columns], schema=schema)


def _rows(task: int, sources: Sequence[Source], rules: Deduping) -> Iterator[_Row]:
    for file, source in enumerate(sources):
        for number, (entry, _) in enumerate(Entries(source, ())):
            ids, window = entry.block.transaction_ids, rules.window(entry.queue)
            if ids is None or window is None:
                continue
            # Two queues may have the same partition and id: the digest is of all three.
            for message, transaction_id in enumerate(ids):
                if transaction_id is not None:
                    digest = digest_of(0, entry.block.partition(message), f"{entry.queue}\0{transaction_id}")
                    yield digest, task, file, number, message, entry.block.created_at, window
