"""Claims that an owner gives back in PostgreSQL, by the clock of the database."""

from __future__ import annotations

import asyncio

from forebay.log.postgres import PostgresLog
from forebay.log.values import Append
from forebay.model import Message

PARTITIONS = 4
BLOCKS = 100
"""Of each partition, with one message each."""


async def test_all_that_is_given_back_is_due_at_one_time_and_comes_in_order(
    postgres_dsn: str,
) -> None:
    async with PostgresLog(postgres_dsn) as log:
        queue = await log.create_queue("orders", {"ordered": True})
        group = await log.create_group(queue, "workers")
        for n in range(BLOCKS):
            names = [f"p{i}" for i in range(PARTITIONS)]
            await asyncio.gather(*(log.commit([Append.of(queue, [Message(b"%d" % n, p)])]) for p in names))
        held = [claim.first for claim in (await log.claim(group, "first")).claims]
        assert len(held) == PARTITIONS * BLOCKS
        assert await log.retire("first") == len(held)
        again = await log.due(group, "second")
        assert [claim.first for claim in again.claims] == sorted(held)
