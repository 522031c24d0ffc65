"""The whole cycle in PostgreSQL: append, claim and settle of blocks against pgmq.

16 pushers with batches of 100 on both sides, and consumers at the same time. pgmq reads and archives
batches of 100 with 1, 2, 4 or 8 readers; its best counts.
"""

from functools import partial
from itertools import count
from statistics import median

from benchmarks.bench import Bench, checkpoint
from benchmarks.blocks import BlockQueue
from benchmarks.drive import Turn, best, cycle_rate, interleave, ratios, turns_of, typical
from benchmarks.payloads import batches
from benchmarks.pgmq import READERS, Pgmq
from benchmarks.verdict import Figures
from forebay.log.postgres import PostgresLog


async def run(bench: Bench) -> Figures:
    """Measure, in rounds."""
    pushes, names, pace = batches(), count(1), bench.pace
    rivals = {f"pgmq_{readers}_readers": readers for readers in READERS}
    with bench.part("cycle", turns_of(1 + len(rivals), pace.rounds)):
        async with (
            bench.database() as dsn,
            PostgresLog(dsn) as log,
            Pgmq(dsn, pushes) as pgmq,
        ):

            async def blocks(seconds: float) -> float:
                queue = await BlockQueue.make(log, f"q{next(names)}", pushes)
                return await cycle_rate(queue.push, queue.finish, 1, seconds)

            turns: dict[str, Turn] = {"blocks": blocks}
            for name, readers in rivals.items():
                turns[name] = partial(pgmq.cycle, readers=readers)
            rates = await interleave(
                turns,
                pace.rounds,
                pace.seconds,
                bench.note,
                partial(checkpoint, dsn),
            )
    rival = best(rates, list(rivals))
    by_round = ratios(rates, "blocks", rival)
    return {
        **{f"{name}_per_second": typical(rates[name]) for name in rates},
        "rival": rival,
        "rival_source": pgmq.source,
        "ratio": median(by_round),
        "ratio_by_round": by_round,
    }
