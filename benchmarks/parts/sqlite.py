"""The log in SQLite, synced at every commit: appends against a row per message, and the whole cycle.

16 pushers with batches of 100; the rows come from one thread, which writes a batch per transaction.
Every turn has a new file.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from statistics import median

from benchmarks.bench import Bench
from benchmarks.blocks import BlockQueue
from benchmarks.drive import append_rate, cycle_rate, interleave, ratios, turns_of, typical
from benchmarks.payloads import batches
from benchmarks.rows import sqlite_append
from benchmarks.verdict import Figures, meets_quiet_target
from forebay.log.sqlite import SqliteLog


async def run(bench: Bench) -> Figures:
    """Measure, in rounds."""
    pushes, numbers, pace = batches(), count(1), bench.pace

    @asynccontextmanager
    async def fresh_queue() -> AsyncIterator[BlockQueue]:
        with bench.folder() as folder:
            async with SqliteLog(folder / "log.db") as log:
                yield await BlockQueue.make(log, f"q{next(numbers)}", pushes)

    async def blocks(seconds: float) -> float:
        async with fresh_queue() as queue:
            return await append_rate(queue.push, seconds)

    async def rows(seconds: float) -> float:
        with bench.folder() as folder:
            return await asyncio.to_thread(sqlite_append, folder / "rows.db", pushes, seconds)

    async def blocks_cycle(seconds: float) -> float:
        async with fresh_queue() as queue:
            return await cycle_rate(queue.push, queue.finish, 1, seconds)

    contestants = {"blocks": blocks, "rows": rows, "blocks_cycle": blocks_cycle}
    with bench.part("sqlite", turns_of(len(contestants), pace.rounds)):
        rates = await interleave(contestants, pace.rounds, pace.seconds, bench.note)
    by_round = ratios(rates, "blocks", "rows")
    return {
        **{f"{name}_per_second": typical(rates[name]) for name in rates},
        "ratio": median(by_round),
        "ratio_by_round": by_round,
        "quiet_target_met": meets_quiet_target(typical(rates["blocks"])),
    }
