"""The inbox: messages that users pushed with SQL, swept into blocks.

A sweep is one transaction: rows leave the inbox as their blocks enter the log, so each message is
pushed exactly once, also when the answer is lost. A row that no block can hold is set aside with the
reason, alone. Rows are swept in the order of their ids.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec

from forebay.log.intake import Intake
from forebay.log.postgres.writing import append_all
from forebay.log.values import Append, Queue
from forebay.model import Block, Limits, Message, Rejected, check_block

if TYPE_CHECKING:
    import asyncpg

    from forebay.log.postgres.database import Database

BLOCK_MESSAGES = 1_000


async def sweep(
    database: Database,
    sql: Mapping[str, str],
    queues: Mapping[int, Queue],
    limits: Limits,
    *,
    now: int | None,
    limit: int,
) -> int:
    """Move up to `limit` messages from the inbox into blocks; how many rows left it."""
    async with database.transaction() as connection:
        rows = await connection.fetch(sql["sweep_inbox"], limit)
        runs: dict[tuple[int, str | None], list[Message]] = {}
        for row in rows:
            queue = queues.get(row["queue"])
            try:
                message = _message(row, limits)
            except Rejected as error:
                await connection.execute(sql["reject_inbox"], row["id"], str(error), now)
                continue
            if queue is not None:
                partition = message.partition if queue.settings.ordered else None
                runs.setdefault((queue.number, partition), []).append(message)
        intakes = [
            Intake(Append.of(number, Block.of(part)), queues[number], limits)
            for (number, _), messages in runs.items()
            for part in _blocks(messages, limits)
        ]
        await append_all(connection, intakes, now)
        await connection.execute(sql["swept"], [row["id"] for row in rows])
    return len(rows)


def _message(row: asyncpg.Record, limits: Limits) -> Message:
    headers = msgspec.json.decode(row["headers"]) if row["headers"] else None
    message = Message(row["payload"], row["partition"], row["transaction_id"], headers, row["start_time"])
    check_block(Block.of([message]), limits)
    return message


def _blocks(messages: list[Message], limits: Limits) -> list[list[Message]]:
    blocks: list[list[Message]] = [[]]
    size = 0
    for message in messages:
        weight = len(message.payload) + limits.headers_bytes_max
        full = len(blocks[-1]) >= min(BLOCK_MESSAGES, limits.block_messages_max)
        if blocks[-1] and (full or size + weight > limits.block_bytes_max):
            blocks.append([])
            size = 0
        blocks[-1].append(message)
        size += weight
    return blocks
