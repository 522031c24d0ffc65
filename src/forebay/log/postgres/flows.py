"""What a group has not claimed, or what came back, by flow: at one moment, from columns of blocks."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from forebay.log import flow_stretches
from forebay.log.claiming import unknown_group
from forebay.log.delays import delayed_flows
from forebay.log.flow_stretches import BlockFlows, FlowGap, FlowMemory
from forebay.log.flows import FlowGroup, FlowTally, Returned
from forebay.log.postgres.counting import delayed_of
from forebay.log.postgres.writing import from_bits
from forebay.log.values import FlowCount, Group
from forebay.model import SEQUENCE_MAX, pack

if TYPE_CHECKING:
    from forebay.log.postgres.database import Connection, Database


async def flows(
    database: Database,
    sql: Mapping[str, str],
    group: Group,
    now: int | None,
    memory: FlowMemory,
    *,
    besides: Collection[str] | None,
) -> list[FlowCount]:
    """Count by flow, and read the blocks that were claimed in part, where their column doesn't say enough."""
    while True:
        async with database.transaction(isolation="repeatable_read", readonly=True) as connection:
            tally = await _unclaimed(connection, sql, group, memory)
            if tally is not None:
                await _add_returns(connection, sql, group, now, tally)
                held = [] if besides is None else await _held(connection, sql, group, besides)
                return tally.counts() + held


async def _unclaimed(
    connection: Connection, sql: Mapping[str, str], group: Group, memory: FlowMemory
) -> FlowTally | None:
    """Count what is unclaimed, or learn a part of it where it is much."""
    cursor = await connection.fetchrow(sql["flow_cursor"], group.number)
    if cursor is None:
        raise unknown_group(group)
    ordered, start, position, position_at = cursor
    position, end = pack(group.queue, position), pack(group.queue, SEQUENCE_MAX)
    if ordered:
        places = (pack(group.queue, start), position, end, position_at)
        return await _lane_flows(connection, sql, group, places)
    plan = memory.get(group.number).plan(position, position_at, end)
    read = plan.fold([await _block_flows(connection, sql, gap) for gap in plan.gaps])
    memory.keep(group.number, read.known)
    if read.tally is not None and read.cut is not None:
        await _add_cut(connection, sql, read.tally, read.cut)
    return read.tally


async def _block_flows(connection: Connection, sql: Mapping[str, str], gap: FlowGap) -> list[BlockFlows]:
    rows = await connection.fetch(
        sql["block_flows"], gap.first, gap.last, gap.since, flow_stretches.PAGE_BLOCKS
    )
    return [BlockFlows(*row) for row in rows]


async def _lane_flows(
    connection: Connection, sql: Mapping[str, str], group: Group, places: tuple[int, ...]
) -> FlowTally:
    tally = FlowTally()
    for row in await connection.fetch(sql["lane_flows"], group.number, *places):
        found = FlowGroup(*row)
        if not tally.add_group(found):
            await _add_cut(connection, sql, tally, found)
    return tally


async def _add_cut(
    connection: Connection, sql: Mapping[str, str], tally: FlowTally, found: FlowGroup
) -> None:
    body = await connection.fetchval(sql["body"], found.cut, found.oldest_at)
    tally.add_body(body, found.unclaimed, found.oldest_at)


async def _add_returns(
    connection: Connection, sql: Mapping[str, str], group: Group, now: int | None, tally: FlowTally
) -> None:
    """Leave out what is delayed, and add what came back."""
    at: int = now or await connection.fetchval(sql["now"])
    delayed = await delayed_of(connection, sql, [group.queue], at, every=True)
    if rows := delayed.get(group.number):  # a row for each block: they may be many
        tally.hold_back(await asyncio.to_thread(delayed_flows, rows, at))
    alone: list[int] = []
    for column, count, since, token in await connection.fetch(sql["returned_flows"], group.number, now):
        if token is None:
            tally.add_alike(column, count, since)
        else:
            alone.append(token)
    await _add_returned(connection, sql, group, tally, alone)


async def _held(
    connection: Connection, sql: Mapping[str, str], group: Group, besides: Collection[str]
) -> list[FlowCount]:
    """What other owners have claimed and not handed out."""
    tally, alone = FlowTally(), list[int]()
    rows = await connection.fetch(sql["held_flows"], group.number, list(besides))
    for column, blocks, left, since, token in rows:
        if token is None:
            tally.add_held(column, blocks, left, since)
        else:
            alone.append(token)
    await _add_returned(connection, sql, group, tally, alone)
    return tally.counts(is_held=True)


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
