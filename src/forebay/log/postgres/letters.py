"""Dead letters in PostgreSQL: handed out again, taken off the list, listed again.

Each is a function of `functions.sql`, and a transaction that waits for the disk.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import asyncpg

from forebay.log.claiming import check_letters, unknown_group
from forebay.log.values import Group

if TYPE_CHECKING:
    from forebay.log.postgres.database import Database


async def change_letters(
    database: Database, statement: str, now: int | None, group: Group, ids: Sequence[int]
) -> list[int]:
    """Run a verb on dead letters; return the ids that it changed."""
    wanted = check_letters(ids)
    try:
        async with database.connection() as connection:
            changed: list[int] = await connection.fetchval(statement, now, group.number, wanted)
    except asyncpg.PostgresError as error:
        if error.sqlstate == "FB404":
            raise unknown_group(group) from error
        raise
    return changed
