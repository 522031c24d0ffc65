"""Appends to PostgreSQL: blocks against a row per message, 16 pushers, batches of 100.

Pushes of blocks are repeatable by their block id, those of rows by a unique transaction id; that is
the ratio that counts. Whole blocks with transaction ids, and rows without, are there to compare.
"""

from itertools import count
from statistics import median
from typing import Final

from benchmarks.bench import Bench, after_checkpoint
from benchmarks.blocks import BlockQueue
from benchmarks.drive import Turn, append_rate, best, interleave, ratios, turns_of, typical
from benchmarks.payloads import Ids, batches
from benchmarks.rows import How, PostgresRows
from benchmarks.verdict import Figures, meets_quiet_target
from forebay.log.postgres import PostgresLog

_CONTESTANTS: Final = 5


async def run(bench: Bench) -> Figures:
    """Measure, in rounds."""
    pushes, names, ids = batches(), count(1), Ids()
    pace = bench.pace
    with bench.part("append", turns_of(_CONTESTANTS, pace.rounds)):
        async with (
            bench.database() as dsn,
            PostgresLog(dsn) as log,
            PostgresRows(dsn, pushes) as rows,
        ):

            def blocks(block_ids: Ids | None) -> Turn:
                async def turn(seconds: float) -> float:
                    queue = await BlockQueue.make(log, f"q{next(names)}", pushes, ids=block_ids)
                    return await append_rate(queue.push, seconds)

                return after_checkpoint(dsn, turn)

            def table(how: How, row_ids: Ids | None) -> Turn:
                return after_checkpoint(dsn, lambda seconds: rows.append(seconds, how, row_ids))

            rates = await interleave(
                {
                    "blocks": blocks(None),
                    "blocks_with_ids": blocks(ids),
                    "rows_insert": table("insert", ids),
                    "rows_copy": table("copy", ids),
                    "rows_copy_without_ids": table("copy", None),
                },
                pace.rounds,
                pace.seconds,
                bench.note,
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
        "quiet_target_met": meets_quiet_target(typical(rates["blocks"])),
    }
