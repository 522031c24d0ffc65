"""Records in PostgreSQL: written last in the transaction of their commit, read in one round trip."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final
from uuid import UUID

from forebay.log.postgres.writing import ids_between
from forebay.log.records import prefix_end, version_conflict
from forebay.log.values import Kept, Record

if TYPE_CHECKING:
    from forebay.log.postgres.database import Connection, Database

TRIMMED_ROWS: Final = 1_000
"""How many records one transaction removes."""


async def is_written(connection: Connection, sql: Mapping[str, str], commit_id: bytes) -> bool:
    """Whether a commit with records was written before; until the transaction ends no other can be.

    Comes before all locks of the commit. Without it a commit that is sent again while the first is under way
    would find its own records changed.
    """
    since, _ = ids_between([commit_id])
    known: bool = await connection.fetchval(sql["enter_write"], UUID(bytes=commit_id), since)
    return known


async def write_records(
    connection: Connection, sql: Mapping[str, str], records: Sequence[Record], now: int | None
) -> None:
    """Write all of them; VersionConflict, for the transaction to be rolled back, if one may not be."""
    refused = await connection.fetchrow(
        sql["write_records"],
        now,
        [record.space for record in records],
        [record.key for record in records],
        [record.value for record in records],
        [record.expires_at for record in records],
        [record.version for record in records],
    )
    if refused is not None:
        raise version_conflict(records[refused["place"] - 1], refused["found"])


async def read(
    database: Database, sql: Mapping[str, str], space: str, keys: Sequence[str], now: int | None
) -> list[Kept]:
    """Return the records that are there, in the order of the keys."""
    async with database.connection() as connection:
        rows = await connection.fetch(sql["records"], space, list(keys), now)
    return [Kept(*row) for row in rows]


async def scan(
    database: Database,
    sql: Mapping[str, str],
    space: str,
    prefix: str,
    after: str,
    *,
    limit: int,
    now: int | None,
) -> list[Kept]:
    """Return records by key."""
    bounds = (max(prefix, after), prefix_end(prefix), after)
    async with database.connection() as connection:
        rows = await connection.fetch(sql["scan_records"], space, *bounds, now, limit)
    return [Kept(*row) for row in rows]


async def trim(database: Database, sql: Mapping[str, str], at: int) -> int:
    """Remove records that have expired, but for those that somebody writes just now; how many there were."""
    total, removed = 0, TRIMMED_ROWS
    while removed == TRIMMED_ROWS:
        async with database.connection() as connection:
            removed = await connection.fetchval(sql["trim_records"], at, TRIMMED_ROWS)
        total += removed
    return total
