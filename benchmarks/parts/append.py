"""Appends to PostgreSQL: blocks against a row per message, 16 pushers, batches of 100.

Pushes of blocks are repeatable by their block id, those of rows by a unique transaction id; that is
the ratio that counts. Blocks whose messages have transaction ids, and rows without, are there to
compare; and bodies that lie ready, for what is in reach at all.
"""

from functools import partial
from itertools import count
from statistics import median
from typing import Final

from benchmarks.bench import Bench, checkpoint
from benchmarks.blocks import BlockQueue
from benchmarks.bodies import ReadyBodies
from benchmarks.drive import Turn, append_rate, best, interleave, ratios, turns_of, typical
from benchmarks.payloads import batches
from benchmarks.rows import How, PostgresRows
from benchmarks.verdict import Figures, meets_quiet_target
from forebay.log.postgres import PostgresLog

_CONTESTANTS: Final = 6


async def run(bench: Bench) -> Figures:
    """Measure, in rounds."""
    pushes, names, pace = batches(), count(1), bench.pace
    with bench.part("append", turns_of(_CONTESTANTS, pace.rounds)):
        async with (
            bench.database() as dsn,
            PostgresLog(dsn) as log,
            PostgresRows(dsn, pushes) as rows,
            ReadyBodies(dsn, pushes) as ready,
        ):

            def blocks(*, with_ids: bool) -> Turn:
                async def turn(seconds: float) -> float:
                    name = f"q{next(names)}"
                    queue = await BlockQueue.make(log, name, pushes, with_ids=with_ids)
                    return await append_rate(queue.push, seconds)

                return turn

            def table(how: How, *, with_ids: bool) -> Turn:
                return partial(rows.append, how=how, with_ids=with_ids)

            rates = await interleave(
                {
                    "blocks": blocks(with_ids=False),
                    "blocks_with_ids": blocks(with_ids=True),
                    "rows_insert": table("insert", with_ids=True),
                    "rows_copy": table("copy", with_ids=True),
                    "rows_copy_without_ids": table("copy", with_ids=False),
                    "ready_bodies": ready.append,
                },
                pace.rounds,
                pace.seconds,
                bench.note,
                partial(checkpoint, dsn),
            )
    rival = best(rates, ["rows_insert", "rows_copy"])
    by_round = ratios(rates, "blocks", rival)
    return {
        **{f"{name}_per_second": typical(rates[name]) for name in rates},
        "rival": rival,
        "ratio": median(by_round),
        "ratio_by_round": by_round,
        "ratio_with_ids": median(ratios(rates, "blocks_with_ids", rival)),
        "ratio_without_ids": median(ratios(rates, "blocks", "rows_copy_without_ids")),
        "limit_ratio": median(ratios(rates, "ready_bodies", rival)),
        "quiet_target_met": meets_quiet_target(typical(rates["blocks"])),
    }
