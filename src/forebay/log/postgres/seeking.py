"""Where groups of PostgreSQL begin, and how they go on from another place.

That is one transaction. The cursor's lock keeps blocks from being dropped and claims from changing hands;
the locks on the claims keep them from being settled. Blocks that are appended meanwhile change nothing: they
lie behind the place.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from forebay.log.claiming import unknown_group
from forebay.log.registry import unknown_queue
from forebay.log.seeking import Reckoning, kept_position
from forebay.log.values import Group, Position, Sought, Start
from forebay.model import SEQUENCE_MAX, pack, sequence_of

if TYPE_CHECKING:
    import asyncpg

    from forebay.log.postgres.database import Connection, Database


async def start_position(connection: Connection, sql: Mapping[str, str], queue: int, start: Start) -> int:
    """The sequence number at which a group begins."""
    head = await connection.fetchrow(sql["head"], queue)
    if head is None:
        raise unknown_queue(f"number {queue}", ())
    low: int = head["floor"]
    high: int = head["next"]
    if isinstance(start, Position):
        return kept_position(start, low, high)
    if isinstance(start, str):
        return low if start == "earliest" else high
    # Times rise with sequence numbers: halve the range until the first block at or after it is left.
    while low < high:
        row = await _block_from(connection, sql, queue, (low + high) // 2)
        assert row is not None
        if row["appended_at"] < start:
            low = sequence_of(row["last"]) + 1
        else:
            first = sequence_of(row["last"]) - row["count"] + 1
            high = max(first if first < high else low, low)
    return low


async def seek(
    database: Database, sql: Mapping[str, str], group: Group, start: Start, now: int | None, *, dry_run: bool
) -> Sought:
    """Move a group; see the seam."""
    number, queue = group.number, group.queue
    async with database.transaction() as connection:
        await connection.execute(sql["lock_cursor"], number)
        before = await connection.fetchrow(sql["seeking_group"], number)
        if before is None:
            raise unknown_group(group)
        place = await start_position(connection, sql, queue, start)
        await connection.execute(sql["lock_claims"], number)
        reckoning = await _reckon(connection, sql, before, place)
        if not dry_run:
            dead = await connection.fetchval(sql["bury_again"], number, now)
            await connection.execute(sql["delete_claims"], number)
            await connection.execute(sql["delete_lanes"], number)
            await connection.execute(sql["seek"], number, place, reckoning.earlier_change)
            row = await _block_from(connection, sql, queue, place)
            since = 0 if row is None else row["appended_at"]
            await connection.execute(sql["move_cursor"], number, place, since, reckoning.claimed_change)
            await connection.execute(sql["count_letters"], number, dead, reckoning.skipped)
    held = Group(number, queue, before["name"], before["start"], before["sought"])
    return reckoning.sought(held, dry_run=dry_run)


async def _reckon(
    connection: Connection, sql: Mapping[str, str], before: asyncpg.Record, place: int
) -> Reckoning:
    """Count, while nothing of it changes."""
    number, queue, start = before["number"], before["queue"], before["start"]
    left = await connection.fetchrow(sql["left_by_claims"], number, pack(queue, place))
    assert left is not None
    since = max(place, start)
    claimed = max(0, before["position"] - since)
    if before["ordered"]:
        claimed = await connection.fetchval(
            sql["claimed_since"], number, pack(queue, since), pack(queue, SEQUENCE_MAX)
        )
    upcoming = max(before["next"], place)  # it may have grown since
    return Reckoning(
        start=start,
        place=place,
        upcoming=upcoming,
        ready=before["earlier"] + upcoming - start - before["claimed"] - before["skipped"],
        claimed=claimed,
        returned=left["returned"],
        dropped=left["dropped"],
    )


async def _block_from(
    connection: Connection, sql: Mapping[str, str], queue: int, sequence: int
) -> asyncpg.Record | None:
    return await connection.fetchrow(sql["block_from"], pack(queue, sequence), pack(queue, SEQUENCE_MAX))
