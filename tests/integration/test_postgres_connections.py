"""Connections that are used all the time stay at hand; nobody waits for one that lies there."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import asyncpg
import pytest

from forebay.log.postgres.database import HELD_MAX, Database, in_our_words
from forebay.model import Unavailable

if TYPE_CHECKING:
    from forebay.log.postgres.database import Connection

CONNECTIONS = HELD_MAX  # so that all of them could lie there while somebody waits at the pool
OURS = """
    SELECT count(*) FROM pg_stat_activity WHERE application_name = 'forebay' AND datname = current_database()
"""
SPANS = dict.fromkeys(("block", "receipt", "outcome", "dedupe"), 86_400_000_000)


@pytest.fixture
async def database(postgres_dsn: str) -> AsyncIterator[Database]:
    """Give a database with few connections."""
    opened = Database(postgres_dsn, connections_max=CONNECTIONS, timeout_seconds=10)
    await opened.open(SPANS)
    try:
        yield opened
    finally:
        await opened.close()


async def pid_of(connection: Connection) -> int:
    """Which process of the server is at the other end."""
    return int(await connection.fetchval("SELECT pg_backend_pid()"))


async def pid(database: Database) -> int:
    """Which one is at the other end of the next connection."""
    async with database.connection() as connection:
        return await pid_of(connection)


async def test_who_comes_next_has_the_same_connection(database: Database) -> None:
    assert len({await pid(database) for _ in range(5)}) == 1


async def test_whoever_waits_gets_what_is_given_back(database: Database) -> None:
    async with AsyncExitStack() as all_of_them:
        used = [await all_of_them.enter_async_context(database.connection()) for _ in range(CONNECTIONS)]
        pids = {await pid_of(connection) for connection in used}
        waiting = [asyncio.create_task(pid(database)) for _ in range(3 * CONNECTIONS)]
        await asyncio.sleep(0)
    assert len(pids) == CONNECTIONS
    assert {await task for task in waiting} <= pids
    assert await pid(database) in pids


async def test_one_that_is_lost_while_it_lies_there_is_not_handed_out(
    database: Database, postgres_dsn: str
) -> None:
    lost = await pid(database)
    other = await asyncpg.connect(postgres_dsn)
    try:
        await other.execute("SELECT pg_terminate_backend($1, 5000)", lost)
    finally:
        await other.close()
    found = None
    while found is None:  # whoever is quicker than the news is told to try again, as ever
        try:
            found = await pid(database)
        except Unavailable:
            continue
    assert found != lost


async def test_one_that_lies_there_for_long_is_not_trusted(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = await pid(database)
    monkeypatch.setattr("forebay.log.postgres.database.HELD_SECONDS", -1.0)
    assert await pid(database) != before


async def test_closing_closes_what_lies_there(database: Database, postgres_dsn: str) -> None:
    async with database.connection(), database.connection(), database.connection():
        pass
    await database.close()
    other = await asyncpg.connect(postgres_dsn)
    try:
        while await other.fetchval(OURS):
            pass
    finally:
        await other.close()
    with pytest.raises(Unavailable):
        await pid(database)


CLOSED = "unable to perform operation on <TCPTransport closed=True reading=False 0x5>; the handler is closed"
"""What uvloop says of a connection that was reset, when it is written to."""


async def test_a_connection_that_was_reset_before_it_was_written_to_is_unavailable(
    database: Database,
) -> None:
    lost = 0

    async def lose() -> None:
        nonlocal lost
        async with database.connection() as connection:
            lost = await pid_of(connection)
            raise RuntimeError(CLOSED)

    with pytest.raises(Unavailable, match="the handler is closed"):
        await lose()
    assert await pid(database) != lost  # nobody gets that one again


def test_other_faults_of_ours_are_not_laid_at_its_door() -> None:
    with pytest.raises(RuntimeError, match="a bug"), in_our_words():
        raise RuntimeError("a bug")
