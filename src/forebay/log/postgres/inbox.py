"""The inbox: messages that users pushed with SQL, swept into blocks.

A sweep is one transaction: rows leave the inbox as their blocks enter the log, so each message is
pushed exactly once, also when the answer is lost. A row that no block can hold is set aside with the
reason, alone. Rows are swept in the order of their ids, by one sweeper at a time.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec

from forebay.log.intake import Intake
from forebay.log.postgres.rows import queue_of_row
from forebay.log.postgres.writing import append_all
from forebay.log.values import Append, Queue, RejectedRow
from forebay.model import Block, Limits, Message, Rejected, UnknownQueue, body_bytes, check_block

if TYPE_CHECKING:
    import asyncpg

    from forebay.log.postgres.database import Connection, Database

BLOCK_MESSAGES = 1_000
SWEEP_BYTES = 64 << 20


async def sweep(
    database: Database, sql: Mapping[str, str], limits: Limits, *, now: int | None, limit: int
) -> int:
    """Move up to `limit` messages from the inbox into blocks; how many rows left it."""
    async with database.transaction() as connection:
        await connection.execute(sql["lock_inbox"])
        rows = await _rows(connection, sql, limit)
        # After the rows: a queue whose message is seen here is seen too, however new.
        numbers = sorted({row["queue"] for row in rows})
        found = map(queue_of_row, await connection.fetch(sql["queues_of"], numbers))
        queues = {queue.number: queue for queue in found}
        runs: dict[tuple[int, str | None], list[tuple[Message, int]]] = {}
        for row in rows:
            try:
                queue, message, size = _message(row, queues, limits)
            except Rejected as error:
                await connection.execute(sql["reject_inbox"], row["id"], str(error), now)
                continue
            partition = message.partition if queue.settings.ordered else None
            runs.setdefault((queue.number, partition), []).append((message, size))
        intakes = [
            Intake(Append.of(number, Block.of(part)), queues[number], limits)
            for (number, _), messages in runs.items()
            for part in _blocks(messages, limits)
        ]
        await append_all(connection, intakes, now)
        await connection.execute(sql["swept"], [row["id"] for row in rows])
    return len(rows)


async def inbox_rejected(
    database: Database, sql: Mapping[str, str], after: int, limit: int
) -> list[RejectedRow]:
    """What sweeps have set aside, in the order of their ids."""
    async with database.connection() as connection:
        rows = await connection.fetch(sql["inbox_rejected"], after, limit)
    return [
        RejectedRow(
            id=row["id"],
            queue=row["queue"],
            payload_bytes=row["size"],
            partition=row["partition"],
            transaction_id=row["transaction_id"],
            reason=row["reason"],
            rejected_at=row["rejected_at"],
        )
        for row in rows
    ]


async def _rows(connection: Connection, sql: Mapping[str, str], limit: int) -> list[asyncpg.Record]:
    """The oldest rows, as many as one sweep can hold in memory."""
    rows = []
    size = 0
    async for row in connection.cursor(sql["sweep_inbox"], limit):
        rows.append(row)
        size += len(row["payload"])
        if size >= SWEEP_BYTES:
            break
    return rows


def _message(row: asyncpg.Record, queues: Mapping[int, Queue], limits: Limits) -> tuple[Queue, Message, int]:
    """The message of a row, with its queue and its size in a block."""
    queue = queues.get(row["queue"])
    if queue is None:
        raise UnknownQueue("its queue was deleted")
    headers = msgspec.json.decode(row["headers"]) if row["headers"] else None
    message = Message(row["payload"], row["partition"], row["transaction_id"], headers, row["start_time"])
    block = Block.of([message])
    check_block(block, limits)
    return queue, message, body_bytes(block)


def _blocks(messages: list[tuple[Message, int]], limits: Limits) -> list[list[Message]]:
    blocks: list[list[Message]] = [[]]
    size = 0
    for message, weight in messages:
        full = len(blocks[-1]) >= min(BLOCK_MESSAGES, limits.block_messages_max)
        if blocks[-1] and (full or size + weight > limits.block_bytes_max):
            blocks.append([])
            size = 0
        blocks[-1].append(message)
        size += weight
    return blocks
