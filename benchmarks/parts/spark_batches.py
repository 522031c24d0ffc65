"""Reading and writing queues on Spark, beside Spark's own JDBC, and beside the limits of its Arrow path.

The messages are the same for all: JSON events of about 250 bytes, with transaction ids where they are read;
in blocks of 1,000 on our side, a row each on the other. All take turns in one session. What is read goes to
Spark's sink `noop`; what is written comes from Parquet files.
"""

import asyncio
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, Final

import asyncpg

from benchmarks.bench import Bench, checkpoint
from benchmarks.parts.spark_session import JAR, jdbc_options, running
from benchmarks.payloads import known_id, large_events
from benchmarks.verdict import Figures
from forebay import Append, Message, open_log
from forebay.model import Block

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BLOCK: Final = 1_000
EVENTS: Final = 50_000
"""Different ones: far more than a block has, so that nothing is compressed by meeting itself again."""
PARTITIONS: Final = 4
WARM_ROUNDS_MAX: Final = 2
"""Before they count: Java compiles what runs often, and Python processes are started."""
MISSING: Final = f"no JDBC driver at {JAR}: apt-get install libpostgresql-jdbc-java"
_COLUMNS: Final = "seq bigint PRIMARY KEY, partition text, key text, value bytea, created_at timestamptz"
_TABLE: Final = f"CREATE TABLE rows ({_COLUMNS})"


async def read(bench: Bench) -> Figures:
    """Batch read of all messages, in rounds."""
    count = bench.pace.spark_messages
    with bench.part("read", 3 * (bench.pace.rounds + _warm_rounds(bench)) + 1):
        async with bench.database() as dsn:
            with bench.folder() as folder:
                with bench.note(f"{count:,} messages"):
                    await _fill(dsn, folder / "ready.arrow", count)
                    await checkpoint(dsn)
                return await asyncio.to_thread(_read_rounds, bench, dsn, folder / "ready.arrow", count)


def _read_rounds(bench: Bench, dsn: str, ready: Path, count: int) -> Figures:
    from benchmarks.parts.spark_arrow import FORMAT, ReadySource  # noqa: PLC0415 - only with the spark extra

    ours, limit, theirs, warm = [], [], [], _warm_rounds(bench)
    with running() as spark:
        spark.dataSource.register(ReadySource)
        for number in range(bench.pace.rounds + warm):
            with bench.note(f"ours, round {number}"):
                frame = (
                    spark.read.format("forebay").options(url=dsn, queue="q", minPartitions=PARTITIONS).load()
                )
                ours.append(count / _drained(frame))
            with bench.note(f"Arrow alone, round {number}"):
                limit.append(count / _drained(spark.read.format(FORMAT).load(str(ready))))
            if JAR.exists():
                with bench.note(f"JDBC, round {number}"):
                    theirs.append(count / _drained(_jdbc(spark, dsn, count)))
    return _compared(ours[warm:], limit[warm:], theirs[warm:])


def _warm_rounds(bench: Bench) -> int:
    return min(WARM_ROUNDS_MAX, bench.pace.rounds)


def _jdbc(spark: "SparkSession", dsn: str, count: int) -> "DataFrame":
    bounds = {"partitionColumn": "seq", "lowerBound": "1", "upperBound": str(count + 1)}
    asked = {**jdbc_options(dsn), "dbtable": "rows", "numPartitions": str(PARTITIONS), "fetchsize": "10000"}
    return spark.read.format("jdbc").options(**asked, **bounds).load()


def _drained(frame: "DataFrame") -> float:
    began = time.perf_counter()
    frame.write.format("noop").mode("overwrite").save()
    return time.perf_counter() - began


# The messages


def _pages(count: int, size: int) -> Iterator[list[Message]]:
    """All messages, so many at a time; the same whenever it is asked."""
    events = large_events(min(count, EVENTS))
    for at in range(1, count + 1, size):
        numbers = range(at, min(at + size, count + 1))
        yield [Message(events[n % len(events)], f"p{n % 100}", known_id(n)) for n in numbers]


async def _fill(dsn: str, ready: Path, count: int) -> None:
    """The same messages in a queue, as rows, and as batches in a file."""
    from benchmarks.parts.spark_arrow import write_ready  # noqa: PLC0415 - only with the spark extra

    now, first = datetime.now(UTC), 1
    connection = await asyncpg.connect(dsn)
    try:
        await connection.execute(_TABLE)
        async with open_log(dsn) as log:
            queue = await log.create_queue("q", {"dedupe_seconds": 0})
            for page in _pages(count, 50 * BLOCK):
                blocks = [page[at : at + BLOCK] for at in range(0, len(page), BLOCK)]
                await log.commit([Append.of(queue, block) for block in blocks])
                rows = [(n, m.partition, m.transaction_id, m.payload, now) for n, m in enumerate(page, first)]
                await connection.copy_records_to_table("rows", records=rows)
                first += len(page)
        await connection.execute("ANALYZE rows")
    finally:
        await connection.close()
    write_ready(ready, "q", map(Block.of, _pages(count, BLOCK)), int(now.timestamp() * 1e6))


async def write(bench: Bench) -> Figures:
    """Append of all messages, in rounds; ids are left out, since a table has no dedupe either."""
    count = bench.pace.spark_messages
    with bench.part("write", 3 * (bench.pace.rounds + _warm_rounds(bench)) + 1):
        async with bench.database() as dsn:
            async with open_log(dsn) as log:
                await log.create_queue("q", {"dedupe_seconds": 0})
            connection = await asyncpg.connect(dsn)
            try:
                await connection.execute(_TABLE.replace(" PRIMARY KEY", ""))
            finally:
                await connection.close()
            with bench.folder() as folder:
                with bench.note(f"{count:,} messages"):
                    _write_parquet(folder, count)
                return await asyncio.to_thread(_write_rounds, bench, dsn, folder, count)


def _write_parquet(folder: Path, count: int) -> None:
    """Rows for a table, a file for each Spark partition; Spark reads them faster than any sink writes."""
    import pyarrow as pa  # noqa: PLC0415 - only with the spark extra
    from pyarrow import parquet  # noqa: PLC0415 - likewise

    schema = pa.schema([("seq", pa.int64()), ("partition", pa.string()), ("key", pa.string()),
                        ("value", pa.binary()), ("created_at", pa.timestamp("us", "UTC"))])  # fmt: skip
    now, first = datetime.now(UTC), 1
    for page in _pages(count, -(-count // PARTITIONS)):
        size = len(page)
        columns: list[Sequence[Any]] = [
            range(first, first + size), [m.partition for m in page], [None] * size,
            [m.payload for m in page], [now] * size,
        ]  # fmt: skip
        arrays = [pa.array(column, kind) for column, kind in zip(columns, schema.types, strict=True)]
        table = pa.Table.from_arrays(arrays, schema=schema)
        parquet.write_table(table, folder / f"{first}.parquet", compression="none", use_dictionary=False)
        first += size


def _write_rounds(bench: Bench, dsn: str, folder: Path, count: int) -> Figures:
    from benchmarks.parts.spark_arrow import SINK, ThrownAway  # noqa: PLC0415 - only with the spark extra

    ours, limit, theirs, warm = [], [], [], _warm_rounds(bench)
    with running() as spark:
        spark.dataSource.register(ThrownAway)
        rows = spark.read.parquet(str(folder))
        messages = rows.select("partition", "key", "value")
        for number in range(bench.pace.rounds + warm):
            asyncio.run(checkpoint(dsn))  # as in all rounds that write to PostgreSQL
            with bench.note(f"ours, round {number}"):
                ours.append(count / _saved(messages, "forebay", {"url": dsn, "queue": "q"}))
            with bench.note(f"Arrow alone, round {number}"):
                limit.append(count / _saved(messages, SINK, {}))
            if JAR.exists():
                with bench.note(f"JDBC, round {number}"):
                    table = {**jdbc_options(dsn), "dbtable": "rows", "batchsize": "10000"}
                    theirs.append(count / _saved(rows, "jdbc", table))
    return _compared(ours[warm:], limit[warm:], theirs[warm:])


def _saved(frame: "DataFrame", form: str, options: dict[str, str]) -> float:
    began = time.perf_counter()
    frame.write.format(form).options(**options).mode("append").save()
    return time.perf_counter() - began


def _compared(ours: list[float], limit: list[float], theirs: list[float]) -> Figures:
    """What was measured, and how each compares with each, round by round."""
    found = {
        "per_second": median(ours),
        "arrow_limit_per_second": median(limit),
        "arrow_limit_ratio": _ratio(ours, limit),
    }
    if not theirs:
        return {**found, "jdbc": MISSING}
    return {
        **found,
        "jdbc_per_second": median(theirs),
        "ratio": _ratio(ours, theirs),
        "limit_to_jdbc_ratio": _ratio(limit, theirs),
    }


def _ratio(ours: list[float], others: list[float]) -> float:
    return median(one / other for one, other in zip(ours, others, strict=True))
