"""Where everything is in PostgreSQL, at one moment: counters, and the open claims."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from forebay.log.delays import DelayedBlocks, count_delayed
from forebay.log.postgres.rows import group_stats_of_row, queue_of_row
from forebay.log.values import GroupStats, QueueStats, Stats

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
