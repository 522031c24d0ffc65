"""Claims that are given to another owner, whoever has them, to do by hand what workers don't.

One transaction. The cursor's lock keeps claims from changing hands meanwhile; what is being settled at the
same time is settled, or not, before it has another owner.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import asyncpg

from forebay.log.claiming import unknown_group

if TYPE_CHECKING:
    from forebay.log.postgres.database import Database
    from forebay.log.values import Group


async def seize(  # noqa: PLR0917 - what is asked of whom
    database: Database,
    sql: Mapping[str, str],
    group: Group,
    owner: str,
    ids: Sequence[int],
    partition: str | None,
    *,
    held: bool,
    now: int | None,
) -> int:
    """Give claims to an owner; see the seam."""
    try:
        async with database.transaction() as connection:
            await connection.execute(sql["enter_group"], now, group.number, owner)
            return len(await connection.fetch(sql["seize"], group.number, owner, ids, partition, held))
    except asyncpg.PostgresError as error:
        if error.sqlstate == "FB404":
            raise unknown_group(group) from error
        raise
