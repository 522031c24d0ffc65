"""Steps of the tests on PostgreSQL: a user's own connection, waiting until somebody waits."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import asyncpg

if TYPE_CHECKING:
    Connection = asyncpg.Connection[asyncpg.Record]

WAITERS = """
    SELECT count(*) FROM pg_stat_activity
    WHERE datname = current_database() AND wait_event_type = 'Lock'
"""


@asynccontextmanager
async def connected(dsn: str, **options: Any) -> AsyncIterator["Connection"]:
    """A plain connection, as a user of the database has it."""
    connection = await asyncpg.connect(dsn, **options)
    try:
        yield connection
    finally:
        await connection.close()


async def until_waiting(connection: "Connection", count: int = 1) -> None:
    """Return once so many sessions of the database wait for a lock; ask outside a transaction."""
    async with asyncio.timeout(20):
        while await connection.fetchval(WAITERS) < count:
            pass
