"""Where groups of PostgreSQL begin, and how they go on from another place.

That is one transaction. The cursor's lock keeps blocks from being dropped and claims from changing hands;
the locks on the claims keep them from being settled. Blocks that are appended meanwhile change nothing: they
lie behind the place.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from forebay.log.claiming import unknown_group
from forebay.log.postgres.rows import group_of_row
from forebay.log.registry import unknown_queue
from forebay.log.seeking import Reckoning, kept_position, no_reader
from forebay.log.values import DeadLetter, Group, Position, Sought, Start
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
    async with database.transaction() as connection:
        before, reckoning = await _enter(connection, sql, group, start)
        if not dry_run:
            dead = await connection.fetchval(sql["bury_again"], group.number, now)
            await connection.execute(sql["delete_claims"], group.number)
            await _go_on(connection, sql, group, reckoning)
            await connection.execute(sql["count_letters"], group.number, dead, reckoning.skipped)
    return reckoning.sought(group_of_row(before), dry_run=dry_run)


async def advance(
    database: Database,
    sql: Mapping[str, str],
    group: Group,
    to: int,
    *,
    dead: Sequence[DeadLetter],
    now: int | None,
) -> int:
    """Book what lies before a place as done, or as dead; see the seam."""
    async with database.connection() as connection:
        standing = await connection.fetchrow(sql["seeking_group"], group.number)
    if standing is None:
        raise unknown_group(group)
    if to <= standing["start"]:  # where it began, or has come to: it has left nothing before that
        return 0
    async with database.transaction() as connection:
        before, reckoning = await _enter(connection, sql, group, Position(to))
        if reckoning.skipped:
            if dead and await connection.fetchval(sql["worker_claim"], group.number):
                raise no_reader(group)
            fresh, again = await _bury(connection, sql, before, dead, now)
            await connection.execute(sql["delete_worker_claims"], group.number)
            await _go_on(connection, sql, group, reckoning)
            done = reckoning.skipped - fresh - again
            await connection.execute(sql["count_done"], group.number, done, fresh)
            if again:
                await connection.execute(sql["count_letters"], group.number, 0, again)
    return reckoning.skipped


async def _bury(
    connection: Connection,
    sql: Mapping[str, str],
    before: asyncpg.Record,
    dead: Sequence[DeadLetter],
    now: int | None,
) -> tuple[int, int]:
    """Keep letters of messages that the group has not come to; how many are new, and how many are not."""
    if not dead:
        return 0, 0
    ordered, queue = before["ordered"], before["queue"]
    row = await connection.fetchrow(
        sql["bury_read"],
        before["number"],
        now,
        pack(queue, before["start"] if ordered else before["position"]),
        [letter.message_id for letter in dead],
        [letter.reason.replace("\0", "\N{REPLACEMENT CHARACTER}") for letter in dead],
        [letter.attempts for letter in dead],
        [letter.body for letter in dead],
        [letter.message().partition if ordered else None for letter in dead],
    )
    assert row is not None
    return row["fresh"], row["again"]


async def _enter(
    connection: Connection, sql: Mapping[str, str], group: Group, start: Start
) -> tuple[asyncpg.Record, Reckoning]:
    """The group as it is, until the transaction ends, and what it means for it to go on from there."""
    await connection.execute(sql["lock_cursor"], group.number)
    before = await connection.fetchrow(sql["seeking_group"], group.number)
    if before is None:
        raise unknown_group(group)
    place = await start_position(connection, sql, group.queue, start)
    await connection.execute(sql["lock_claims"], group.number)
    return before, await _reckon(connection, sql, before, place)


async def _go_on(connection: Connection, sql: Mapping[str, str], group: Group, reckoning: Reckoning) -> None:
    """Move the cursor of a group without claims; the caller books what is skipped."""
    number, place = group.number, reckoning.place
    await connection.execute(sql["delete_lanes"], number)
    await connection.execute(sql["seek"], number, place, reckoning.earlier_change)
    row = await _block_from(connection, sql, group.queue, place)
    since = 0 if row is None else row["appended_at"]
    await connection.execute(sql["move_cursor"], number, place, since, reckoning.claimed_change)


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
