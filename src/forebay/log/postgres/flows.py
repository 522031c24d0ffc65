"""What a group has not claimed, or what came back, by flow: at one moment, from columns of blocks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from forebay.log.claiming import unknown_group
from forebay.log.delays import delayed_flows
from forebay.log.flows import FlowGroup, FlowTally, Returned
from forebay.log.postgres.counting import delayed_of
from forebay.log.postgres.writing import from_bits
from forebay.log.values import FlowCount, Group
from forebay.model import SEQUENCE_MAX, pack

if TYPE_CHECKING:
    import asyncpg

    from forebay.log.postgres.database import Connection, Database


async def flows(database: Database, sql: Mapping[str, str], group: Group, now: int | None) -> list[FlowCount]:
    """Count by flow, and read the blocks that were claimed in part, where their column doesn't say enough."""
    tally = FlowTally()
    async with database.transaction(isolation="repeatable_read", readonly=True) as connection:
        for row in await _groups(connection, sql, group):
            found = FlowGroup(*row)
            if not tally.add_group(found):
                body = await connection.fetchval(sql["body"], found.cut, found.oldest_at)
                tally.add_body(body, found.unclaimed, found.oldest_at)
        at: int = now or await connection.fetchval(sql["now"])
        delayed = await delayed_of(connection, sql, [group.queue], at, every=True)
        tally.hold_back(delayed_flows(delayed.get(group.number, ()), at))
        alone: list[int] = []
        for column, count, since, token in await connection.fetch(sql["returned_flows"], group.number, now):
            if token is None:
                tally.add_alike(column, count, since)
            else:
                alone.append(token)
        await _add_returned(connection, sql, group, tally, alone)
    return tally.counts()


async def _add_returned(
    connection: Connection, sql: Mapping[str, str], group: Group, tally: FlowTally, tokens: Sequence[int]
) -> None:
    """Count claims by the bodies of their blocks, each of which is read once."""
    rows = await connection.fetch(sql["returned_claims"], tokens) if tokens else ()
    for key, is_letter, begin, count, done, since, block_at in rows:
        claim, body = Returned((key, is_letter), begin, count, from_bits(done), since), b""
        if not tally.knows(claim):
            place = (sql["letter_body"], group.number, key) if is_letter else (sql["body"], key, block_at)
            body = await connection.fetchval(*place)
        tally.add_returned(claim, body)


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
