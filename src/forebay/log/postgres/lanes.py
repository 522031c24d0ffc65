"""The partitions of an ordered queue in PostgreSQL: listed and counted from name to name of the index."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from forebay.log.claiming import unknown_group
from forebay.log.registry import unknown_queue
from forebay.log.values import Group, LaneStats, Queue, Span, Spans
from forebay.model import SEQUENCE_MAX, pack

if TYPE_CHECKING:
    from forebay.log.postgres.database import Database


async def lanes(
    database: Database, sql: Mapping[str, str], group: Group, after: str | None, limit: int
) -> list[LaneStats]:
    """Return partitions by name, as a group sees them."""
    async with database.transaction(isolation="repeatable_read", readonly=True) as connection:
        row = await connection.fetchrow(sql["lane_group"], group.number)
        if row is None:
            raise unknown_group(group)
        if not row["ordered"]:
            return []
        start, floor = pack(group.queue, row["start"]), pack(group.queue, row["floor"])
        span = (floor, pack(group.queue, SEQUENCE_MAX))
        rows = await connection.fetch(sql["lanes"], group.number, start, *span, after or "", after, limit)
    return [LaneStats(**row) for row in rows]


async def spans(
    database: Database,
    sql: Mapping[str, str],
    queue: Queue,
    partitions: Sequence[str] | None,
    *,
    after: str | None,
    limit: int,
) -> Spans:
    """Return from where to where partitions are kept: the named ones, or all of them by name."""
    async with database.transaction(isolation="repeatable_read", readonly=True) as connection:
        row = await connection.fetchrow(sql["span_queue"], queue.number)
        if row is None:
            raise unknown_queue(queue.name, ())
        if not row["ordered"]:
            return Spans(row["appended_at"], [])
        span = (pack(queue.number, row["floor"]), pack(queue.number, SEQUENCE_MAX))
        if partitions is None:
            named = await connection.fetch(sql["span_names"], *span, after or "", after, limit)
            partitions = [name["partition"] for name in named]
        rows = await connection.fetch(sql["spans"], list(partitions), *span)
    return Spans(row["appended_at"], [Span(**found) for found in rows])


async def lane_count(database: Database, sql: Mapping[str, str], queue: Queue) -> int:
    """Return how many partitions have messages."""
    async with database.connection() as connection:
        row = await connection.fetchrow(sql["queue_found"], queue.number)
        if row is None:
            raise unknown_queue(queue.name, ())
        if not row["ordered"]:
            return 0
        span = (pack(queue.number, row["floor"]), pack(queue.number, SEQUENCE_MAX))
        count: int = await connection.fetchval(sql["lane_count"], *span)
    return count
