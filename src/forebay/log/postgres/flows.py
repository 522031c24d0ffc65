"""What a group has not claimed, by flow: at one moment, from columns of blocks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from forebay.log.claiming import unknown_group
from forebay.log.flows import FlowGroup, FlowTally
from forebay.log.values import FlowCount, Group
from forebay.model import SEQUENCE_MAX, pack

if TYPE_CHECKING:
    import asyncpg

    from forebay.log.postgres.database import Connection, Database


async def flows(database: Database, sql: Mapping[str, str], group: Group) -> list[FlowCount]:
    """Count by flow, and read the blocks that were claimed in part, where their column doesn't say enough."""
    tally = FlowTally()
    async with database.transaction(isolation="repeatable_read", readonly=True) as connection:
        for row in await _groups(connection, sql, group):
            found = FlowGroup(*row)
            if not tally.add_group(found):
                body = await connection.fetchval(sql["body"], found.cut, found.oldest_at)
                tally.add_body(body, found.unclaimed, found.oldest_at)
    return tally.counts()


async def _groups(connection: Connection, sql: Mapping[str, str], group: Group) -> list[asyncpg.Record]:
    cursor = await connection.fetchrow(sql["flow_cursor"], group.number)
    if cursor is None:
        raise unknown_group(group)
    ordered, start, position, position_at = cursor
    position, end = pack(group.queue, position), pack(group.queue, SEQUENCE_MAX)
    if not ordered:
        return await connection.fetch(sql["flows"], position, end, position_at)
    start = pack(group.queue, start)
    return await connection.fetch(sql["lane_flows"], group.number, start, position, end, position_at)
