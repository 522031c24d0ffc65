"""Where everything is in PostgreSQL, at one moment: counters, and the open claims."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from forebay.log.claiming import unknown_group
from forebay.log.delays import DelayedBlocks, count_delayed
from forebay.log.postgres.rows import group_of_row, group_stats_of_row, queue_of_row
from forebay.log.postgres.writing import from_bits
from forebay.log.values import Group, GroupStats, OpenRun, Progress, QueueStats, Stats
from forebay.model import sequence_of

if TYPE_CHECKING:
    from forebay.log.postgres.database import Connection, Database


async def delayed_of(
    connection: Connection, sql: Mapping[str, str], queues: Sequence[int], now: int, *, every: bool = False
) -> dict[int, list[DelayedBlocks]]:
    """What is known of blocks of which groups have something that is delayed, by group."""
    found: dict[int, list[DelayedBlocks]] = {}
    for group, *columns in await connection.fetch(sql["delayed_stats"], now, queues, every):
        found.setdefault(group, []).append(DelayedBlocks(*columns))
    return found


async def progress(database: Database, sql: Mapping[str, str], now: int | None, group: Group) -> Progress:
    """How far a group has come, in one snapshot."""
    async with database.transaction(isolation="repeatable_read", readonly=True) as connection:
        row = await connection.fetchrow(sql["progress_group"], group.number)
        if row is None:
            raise unknown_group(group)
        at = now or await connection.fetchval(sql["now"])
        lanes = await connection.fetch(sql["progress_lanes"], group.number) if row["ordered"] else ()
        claims = await connection.fetch(sql["progress_claims"], group.number)
        dead = await connection.fetch(sql["progress_dead"], group.number)
    return Progress(
        at=at,
        group=group_of_row(row),
        earlier=row["earlier"],
        purged=row["purged"],
        next=row["next"],
        floor=row["floor"],
        position=row["start"] if row["ordered"] else row["position"],
        lanes={name: sequence_of(position) for name, position in lanes},
        open=[
            OpenRun(token, first, count, from_bits(done), from_bits(handed), *rest)
            for token, first, count, done, handed, *rest in claims
        ],
        dead=[(message_id, died_at) for message_id, died_at in dead],
    )


async def stats(
    database: Database,
    sql: Mapping[str, str],
    now: int | None,
    *,
    numbers: Sequence[int] | None,
    after: int,
    limit: int | None,
) -> Stats:
    """Count, in one snapshot; `now` is the database's own time unless it is given."""
    async with database.transaction(isolation="repeatable_read", readonly=True) as connection:
        if numbers is None:
            wanted = [row["number"] for row in await connection.fetch(sql["queue_page"], after, limit)]
        else:
            wanted = sorted({number for number in numbers if number > after})
        queues = (await connection.fetch(sql["queue_stats"], wanted))[:limit]
        groups = await connection.fetch(sql["group_stats"], wanted)
        at = now or await connection.fetchval(sql["now"])
        claims = {row["grp"]: row for row in await connection.fetch(sql["claim_stats"], at, wanted)}
        delayed = await delayed_of(connection, sql, wanted, at)
    upcoming = {row["number"]: row["next"] for row in queues}
    by_queue: dict[int, list[GroupStats]] = {number: [] for number in upcoming}
    for row in groups:
        if row["queue"] in upcoming:
            late = count_delayed(delayed.get(row["number"], ()), at)
            group = group_stats_of_row(row, upcoming[row["queue"]], claims.get(row["number"]), late)
            by_queue[row["queue"]].append(group)
    return Stats(
        at,
        [
            QueueStats(
                queue=queue_of_row(row), next=row["next"], floor=row["floor"], groups=by_queue[row["number"]]
            )
            for row in queues
        ],
    )
