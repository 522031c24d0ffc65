"""Rows of PostgreSQL as the values of the seam."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from forebay.log.postgres.writing import from_bits
from forebay.log.values import Claim, Group, GroupStats, Queue, QueueSettings, StoredBlock

if TYPE_CHECKING:
    import asyncpg


def queue_of_row(row: asyncpg.Record) -> Queue:
    """A queue; settings come as JSON text."""
    settings = msgspec.json.decode(row["settings"], type=QueueSettings, strict=False)
    return Queue(row["number"], row["name"], settings, row["created_at"])


def group_of_row(row: asyncpg.Record) -> Group:
    """A group."""
    return Group(row["number"], row["queue"], row["name"], row["start"], row["sought"])


def claim_of_row(group: int, row: asyncpg.Record) -> Claim:
    """A claim with its block."""
    (token, first, count, done, handed, attempts, start_time, prev_start_time,
     last, block_count, block_id, appended_at, partition, body, _) = row  # fmt: skip
    block = StoredBlock(last - block_count + 1, block_count, block_id.bytes, appended_at, partition, body)
    return Claim(
        token, group, first, count, from_bits(done), from_bits(handed), attempts, start_time,
        prev_start_time, block,
    )  # fmt: skip


def group_stats_of_row(
    row: asyncpg.Record, upcoming: int, claims: asyncpg.Record | None, delayed: int
) -> GroupStats:
    """A group's counters and open claims; `upcoming` is the queue's next sequence number."""
    accepted = row["earlier"] + upcoming - row["start"]
    return GroupStats(
        group=group_of_row(row),
        accepted=accepted,
        ready=accepted - row["claimed"] - row["skipped"] - delayed,
        held=claims["held"] if claims else 0,
        deferred=claims["deferred"] if claims else 0,
        done=row["done"],
        dead=row["dead"],
        purged=row["purged"],
        expired=row["expired"] + row["skipped"],
        corrupt=row["corrupt"],
        handed=claims["handed"] if claims else 0,
        due=claims["due"] if claims else 0,
        delayed=delayed,
    )
