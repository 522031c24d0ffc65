"""The rich series on Spark: what a refresh takes when little is new, beside the original's aggregation.

As many deliveries as `spark_messages` are in one queue, nine of ten of them done. The fold sees them once.
Then each round pushes a thousand messages and finishes a thousand, and the next round of the fold is
measured: from its plan to its series, and what PostgreSQL says that its statements took. The original
aggregates a table of as many deliveries, on the same server.
"""

import asyncio
import re
import time
from pathlib import Path
from statistics import median
from typing import Final

import asyncpg

from benchmarks.bench import Bench, checkpoint
from benchmarks.parts.spark_session import running
from benchmarks.verdict import Figures
from forebay.app.opening import open_log
from forebay.log.seam import Log
from forebay.log.values import Append, Death, Deferral, Group, Queue, Room
from forebay.model import Message, bitmap

BLOCK: Final = 1_000
_EVERY: Final = 10
_SECONDS_MAX: Final = 1_800.0
_DURATION: Final = re.compile(rb"duration: ([0-9.]+) ms")
_ROWS: Final = """
CREATE TABLE deliveries AS SELECT
    n AS id, 'p' || n % 20 AS project, 'e' || n % 200 AS endpoint, 't' || n % 12 AS event_type,
    's' || n % 7 AS source, 'o' || n % 20 AS organisation, 200 AS code,
    CASE WHEN n % 10 = 0 THEN 'Scheduled' ELSE 'Success' END AS status,
    now() - n * interval '1 millisecond' AS created_at
FROM generate_series(1, $1::int) AS n
"""
_AGE: Final = "extract(epoch FROM now() - min(created_at)) FROM deliveries WHERE status <> 'Success'"
_COUNT: Final = "count(*) FROM deliveries"
_AGGREGATIONS: Final = (
    f"SELECT project, source, status, {_COUNT} GROUP BY 1, 2, 3",
    f"SELECT project, source, {_AGE} GROUP BY 1, 2",
    f"SELECT project, endpoint, status, event_type, source, organisation, {_COUNT} GROUP BY 1, 2, 3, 4, 5, 6",
    f"SELECT project, endpoint, source, {_AGE} GROUP BY 1, 2, 3",
    f"SELECT project, endpoint, status, code, {_COUNT} GROUP BY 1, 2, 3, 4",
)
"""The five families, as the original asks for them. Its tables are wider, and it joins three more."""


async def run(bench: Bench) -> Figures:
    """Fold, and aggregate, on one PostgreSQL."""
    count = bench.pace.spark_messages
    with bench.part("rich refresh", bench.pace.rounds + 3):
        async with bench.database() as dsn:
            with bench.note(f"{count:,} deliveries"):
                await _fill(dsn, count)
            with bench.note("the original's aggregation"):
                original_ms = await _original(dsn, count, bench.pace.rounds)
            with bench.folder() as folder:
                return await asyncio.to_thread(_rounds, bench, dsn, folder, original_ms)


async def _fill(dsn: str, count: int) -> None:
    async with open_log(dsn) as log:
        queue = await log.create_queue("shop.orders")
        group = await log.create_group(queue, "mail")
        for begin in range(0, count, 10 * BLOCK):
            blocks = range(begin, min(count, begin + 10 * BLOCK), BLOCK)
            await log.commit([Append.of(queue, _messages(first)) for first in blocks])
        await _finish(log, group, count * 9 // 10)
    await checkpoint(dsn)


def _messages(first: int) -> list[Message]:
    return [
        Message(
            b"x" * 200,
            headers={
                "project": f"p{n % 20}", "endpoint": f"e{n % 200}", "event_type": f"t{n % 12}",
                "source": f"s{n % 7}", "organisation_id": f"o{n % 20}",
            },
        )
        for n in range(first, first + BLOCK)
    ]  # fmt: skip


async def _finish(log: Log, group: Group, count: int) -> None:
    """Finish messages: one of each block is dead, one comes back in an hour."""
    while count > 0:
        claims = (await log.claim(group, "bench", Room(min(count, 10 * BLOCK)))).claims
        if not claims:
            return
        settlements = []
        for claim in claims:
            letter = Death(0, "503", 1, Message(b"x"))
            done = bitmap.minus(bitmap.full(claim.count), bitmap.of([0, 1], claim.count))
            later = int(time.time() * 1_000_000) + 3_600_000_000
            back = Deferral(1, later, 1)
            settlements.append(claim.settle(done=done, code=200, dead=(letter,), deferred=(back,)))
            count -= claim.count
        await log.commit(settlements=settlements)


async def _original(dsn: str, count: int, rounds: int) -> float:
    """How long the five aggregations take together, in ms."""
    connection = await asyncpg.connect(dsn)
    try:
        await connection.execute(_ROWS.replace("$1::int", str(count)))
        await connection.execute("ANALYZE deliveries")
        taken = []
        for _ in range(rounds + 1):
            began = time.perf_counter()
            for aggregation in _AGGREGATIONS:
                await connection.fetch(aggregation)
            taken.append(time.perf_counter() - began)
        return median(taken[1:]) * 1000
    finally:
        await connection.close()


def _rounds(bench: Bench, dsn: str, folder: Path, original_ms: float) -> Figures:
    from forebay.observe.labels import LabelSettings  # noqa: PLC0415 - only with the spark extra
    from forebay.spark.snapshot.job import FoldJob  # noqa: PLC0415 - likewise
    from pyspark_forebay import SnapshotSource  # noqa: PLC0415 - likewise

    asyncio.run(_written_down(dsn))
    taken, database, folded = list[float](), list[float](), list[int]()
    with running() as spark:
        job = FoldJob(
            spark, SnapshotSource, dsn, str(folder / "fold"), labels=LabelSettings(), interval_seconds=1.0
        )
        began = time.monotonic()
        job.start()
        found = job.after(-1, _SECONDS_MAX)
        first, number = time.monotonic() - began, found.number
        for i in range(bench.pace.rounds + 2):  # two of them warm up
            with bench.note(f"round {i + 1} of {bench.pace.rounds + 2}"):
                number = job.after(number, _SECONDS_MAX).number
                begin = bench.server.log.stat().st_size
                asyncio.run(_work(dsn))
                found = job.after(number, _SECONDS_MAX)
                while not found.folded:
                    found = job.after(found.number, _SECONDS_MAX)
                if i > 1:
                    taken.append(found.done_at - found.at / 1_000_000)
                    database.append(_durations(bench.server.log, begin))
                    folded.append(found.folded)
                number = found.number
        job.stop()
    return {
        "series": float(found.document.series),
        "first_seconds": round(first, 1),
        "refresh_seconds": round(median(taken), 2),
        "refresh_seconds_max": round(max(taken), 2),
        "slices": float(found.slices),
        "slices_folded": float(median(folded)),
        "database_ms": round(median(database), 1),
        "original_ms": round(original_ms, 1),
        "database_ratio": round(original_ms / max(0.1, median(database)), 1),
    }


async def _work(dsn: str) -> None:
    """A thousand messages come, and a thousand are done."""
    async with open_log(dsn) as log:
        queue: Queue = await log.queue("shop.orders")
        (group,) = await log.groups(queue)
        await log.commit([Append.of(queue, _messages(0))])
        await _finish(log, group, BLOCK)


async def _written_down(dsn: str) -> None:
    """Have PostgreSQL write down how long statements of new sessions in a database take."""
    name = dsn.rsplit("/", 1)[1]
    connection = await asyncpg.connect(dsn)
    try:
        await connection.execute(f'ALTER DATABASE "{name}" SET log_duration = on')
    finally:
        await connection.close()


def _durations(log: Path, begin: int) -> float:
    """What was written down from there on, in ms: also the pushes, and rounds in between; rather too much."""
    with log.open("rb") as file:
        file.seek(begin)
        return sum(float(found) for found in _DURATION.findall(file.read()))
