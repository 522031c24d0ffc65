"""Baselines with a row per message: what a queue in a database usually is."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter
from types import TracebackType
from typing import Final, Literal, Self

import apsw
import asyncpg

from benchmarks.drive import append_rate
from benchmarks.payloads import BATCH, PUSHERS, Batch, fresh_ids

_TABLE: Final = """
    CREATE TABLE IF NOT EXISTS {table} (
        id             bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        transaction_id text UNIQUE,
        payload        bytea NOT NULL,
        created_at     timestamptz NOT NULL DEFAULT now()
    )
"""
_INSERT: Final = """
    INSERT INTO {table} (transaction_id, payload)
    SELECT * FROM unnest($1::text[], $2::bytea[])
"""
_SQLITE_TABLE: Final = """
    CREATE TABLE message_row (
        id             INTEGER PRIMARY KEY,
        transaction_id TEXT UNIQUE,
        payload        BLOB NOT NULL,
        created_at     REAL NOT NULL DEFAULT (unixepoch('subsec'))
    )
"""
_SQLITE_INSERT: Final = "INSERT INTO message_row (transaction_id, payload) VALUES (?, ?)"

How = Literal["insert", "copy"]


class PostgresRows:
    """Tables in PostgreSQL, and a connection for each pusher."""

    def __init__(self, dsn: str, pushes: Sequence[Batch]) -> None:
        self._dsn = dsn
        self._pushes = pushes
        self._connections: list[asyncpg.Connection[asyncpg.Record]] = []

    async def __aenter__(self) -> Self:
        self._connections = [await asyncpg.connect(self._dsn) for _ in range(PUSHERS)]
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await asyncio.gather(*(connection.close() for connection in self._connections))

    async def append(self, seconds: float, how: How, *, with_ids: bool) -> float:
        """Push, each batch in a transaction of its own, into the table of those who push this way.

        Like the log, and like any queue that remembers ids, a table keeps what it has been given.
        """
        table = f"{how}_{'with' if with_ids else 'without'}_ids"
        await self._connections[0].execute(_TABLE.format(table=table))
        insert = _INSERT.format(table=table)

        async def push(pusher: int, turn: int) -> None:
            payloads = self._pushes[turn % len(self._pushes)].payloads
            ids = fresh_ids() if with_ids else [None] * BATCH
            connection = self._connections[pusher]
            if how == "insert":
                await connection.execute(insert, ids, payloads)
            else:
                await connection.copy_records_to_table(
                    table,
                    records=zip(ids, payloads, strict=True),
                    columns=("transaction_id", "payload"),
                )

        return await append_rate(push, seconds)


def sqlite_append(path: Path, pushes: Sequence[Batch], seconds: float) -> float:
    """Push into a new file from one thread, each batch in a transaction of its own.

    SQLite has one writer at a time: more pushers would only wait for each other.
    """
    connection = apsw.Connection(str(path))
    try:
        for statement in ("PRAGMA journal_mode = WAL", "PRAGMA synchronous = FULL", _SQLITE_TABLE):
            connection.execute(statement)
        count = 0
        start = perf_counter()
        while perf_counter() - start < seconds:
            payloads = pushes[count // BATCH % len(pushes)].payloads
            connection.execute("BEGIN IMMEDIATE")
            connection.executemany(_SQLITE_INSERT, zip(fresh_ids(), payloads, strict=True))
            connection.execute("COMMIT")
            count += BATCH
        return count / (perf_counter() - start)
    finally:
        connection.close()
