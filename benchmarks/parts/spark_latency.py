"""How long micro-batches take, from queue to queue, by a stream without actions.

Once by a stream whose place is in its checkpoint alone, and once with a group: then the end of every batch
is written to the log before it is run, and the group follows.
"""

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Final

from benchmarks.bench import Bench
from benchmarks.parts.spark_session import running
from benchmarks.payloads import large_events
from benchmarks.verdict import Figures
from forebay import Append, Message, open_log

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

AIM_MS: Final = 250.0
WARM_BATCHES: Final = 3
KINDS: Final[Mapping[str, Mapping[str, str]]] = {"": {}, "group_": {"groupId": "g"}}
"""What queues and figures begin with, and what the stream is told."""


async def run(bench: Bench) -> Figures:
    """Measure ten batches of one message for each round, by either stream."""
    with bench.part("latency", len(KINDS)):
        async with bench.database() as dsn:
            async with open_log(dsn) as log:
                for kind in KINDS:
                    for name in ("in", "out"):
                        await log.create_queue(f"{kind}{name}")
            with bench.folder() as folder:
                return await asyncio.to_thread(_latencies, bench, dsn, folder)


def _latencies(bench: Bench, dsn: str, folder: Path) -> Figures:
    figures: dict[str, bool | float] = {"aim_ms": AIM_MS}
    with running() as spark:
        for kind, told in KINDS.items():
            with bench.note(f"{kind}batches"):
                options = {"url": dsn, "queue": f"{kind}in", "startingOffsets": "earliest", **told}
                rows = spark.readStream.format("forebay").options(**options).load().select("value")
                writing = rows.writeStream.format("forebay").options(url=dsn, queue=f"{kind}out")
                query = writing.option("checkpointLocation", str(folder / f"{kind}checkpoint")).start()
                took = _pushed(dsn, f"{kind}in", query, WARM_BATCHES + 10 * bench.pace.rounds)
            figures |= _figures(kind, sorted(took[WARM_BATCHES:]))
    return figures


def _pushed(dsn: str, name: str, query: "StreamingQuery", count: int) -> list[float]:
    """Push messages one by one, each when the one before is through, and end the query."""
    from forebay.spark.logs import Face  # noqa: PLC0415 - only with the spark extra

    opened = Face(open_log, dsn)
    try:
        queue = opened(opened.log.queue(name))
        append = [Append.of(queue, [Message(event)]) for event in large_events(count)]
        return _took(query, count, lambda n: opened(opened.log.commit([append[n]])))
    finally:
        query.stop()
        opened.close()


def _took(query: "StreamingQuery", count: int, push: Callable[[int], object]) -> list[float]:
    took: list[float] = []
    seen = -1
    for number in range(count):
        push(number)
        query.processAllAvailable()
        for progress in query.recentProgress:
            if progress["batchId"] > seen and progress["numInputRows"]:
                seen = progress["batchId"]
                took.append(progress["durationMs"]["triggerExecution"])
    return took


def _figures(kind: str, took: list[float]) -> dict[str, bool | float]:
    return {
        f"{kind}batch_p50_ms": float(median(took)), f"{kind}batch_p90_ms": float(took[len(took) * 9 // 10]),
        f"{kind}aim_met": median(took) < AIM_MS,
    }  # fmt: skip
