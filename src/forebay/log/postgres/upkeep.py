"""Retention in PostgreSQL: pieces by time are dropped whole; row by row goes only what is small.

A piece that somebody reads just now is left for the next round: dropping waits a moment at most, so
that it never stands in the way of writers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from forebay.log.postgres import records
from forebay.log.values import Trimmed
from forebay.model import Unavailable

if TYPE_CHECKING:
    from forebay.log.postgres.database import Database

LOCK_WAIT = "SET LOCAL lock_timeout = '300ms'"


async def trim(
    database: Database,
    sql: Mapping[str, str],
    now: int | None,
    *,
    remember_us: int,
    outcome_keep_us: int,
) -> Trimmed:
    """One round of retention."""
    async with database.connection() as connection:
        at: int = now or await connection.fetchval(sql["now"])
        windows = {
            "receipt": remember_us,
            "outcome": outcome_keep_us,
            "dedupe": await connection.fetchval(sql["dedupe_max"], float(remember_us)),
        }
        old = {
            parent: await connection.fetch(sql["pieces"], parent, at - window)
            for parent, window in {"block": 0, **windows}.items()
        }
    dropped = {"block": 0, "receipt": 0, "outcome": 0, "dedupe": 0}
    postponed = 0
    for parent, pieces in old.items():
        for done, piece in enumerate(pieces):
            try:
                dropped[parent] += await _drop(database, sql, parent, piece["lower"], now)
            except Unavailable:  # each of them would wait for the same lock, and hold up writers
                postponed += len(pieces) - done
                break
    async with database.connection() as connection:
        await connection.execute(sql["sweep_heads"])
        await connection.execute(sql["sweep_cursors"])
        await connection.execute(sql["sweep_tallies"])
        await connection.execute(sql["drop_stages"], at - remember_us)
        await connection.execute(sql["drop_owners"], at - remember_us)
        await connection.execute(sql["trim_letters"], at - remember_us)
        await connection.execute(sql["trim_delayed"], at)
    expired = await records.trim(database, sql, at)
    return Trimmed(blocks=dropped["block"], receipts=dropped["receipt"], postponed=postponed, records=expired)


async def _drop(database: Database, sql: Mapping[str, str], parent: str, lower: int, now: int | None) -> int:
    async with database.transaction() as connection:
        await connection.execute(LOCK_WAIT)
        if parent == "block":
            return await connection.fetchval(sql["drop_blocks"], now, lower) or 0
        rows: int = await connection.fetchval(sql["drop_piece"], parent, lower)
        return rows
