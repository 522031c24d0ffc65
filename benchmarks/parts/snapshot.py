"""The cycle in PostgreSQL beside a session that sits idle in a transaction with an old snapshot.

What is dead cannot be vacuumed for as long as such a snapshot lives, and many queues in databases
slow down to a crawl. Each turn has a fresh queue; the snapshot lives as long as its turn.
"""

from functools import partial
from itertools import count
from statistics import median

import asyncpg

from benchmarks.bench import Bench, checkpoint
from benchmarks.blocks import BlockQueue
from benchmarks.drive import cycle_rate, interleave, ratios, turns_of, typical
from benchmarks.payloads import batches
from benchmarks.verdict import Figures
from forebay.log.postgres import PostgresLog


async def run(bench: Bench) -> Figures:
    """Measure with and without, in turns."""
    pushes, names, pace = batches(), count(1), bench.pace
    with bench.part("idle_in_transaction", turns_of(2, pace.snapshot_rounds)):
        async with bench.database() as dsn, PostgresLog(dsn) as log:

            async def without(seconds: float) -> float:
                queue = await BlockQueue.make(log, f"q{next(names)}", pushes)
                return await cycle_rate(queue.push, queue.finish, 1, seconds)

            async def beside(seconds: float) -> float:
                idler = await asyncpg.connect(dsn)
                try:
                    await idler.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
                    await idler.fetch("SELECT last FROM forebay.block LIMIT 1")
                    return await without(seconds)
                finally:
                    await idler.close()

            rates = await interleave(
                {"without_snapshot": without, "with_snapshot": beside},
                pace.snapshot_rounds,
                pace.snapshot_seconds,
                bench.note,
                partial(checkpoint, dsn),
            )
    by_round = ratios(rates, "with_snapshot", "without_snapshot")
    return {
        **{f"{name}_per_second": typical(rates[name]) for name in rates},
        "ratio": median(by_round),
        "ratio_by_round": by_round,
    }
