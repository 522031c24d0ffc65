"""What is in reach: bodies that were encoded before, inserted sixteen at a time into a table of their own.

No queue does less than this for a push that is one row: nothing is encoded, no id is remembered, nothing has
a number without gaps. How far blocks are from it is what all of that costs; how far it is from rows, how far
blocks could come on this machine.
"""

from collections.abc import Sequence
from time import perf_counter
from types import TracebackType
from typing import Final, Self

import asyncpg

from benchmarks.payloads import BATCH, PUSHERS, Batch
from forebay.model import Block, encode

_TABLE: Final = """
    CREATE TABLE ready_body (
        id   bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        body bytea NOT NULL
    );
    ALTER TABLE ready_body ALTER COLUMN body SET STORAGE EXTERNAL
"""
_INSERT: Final = "INSERT INTO ready_body (body) SELECT unnest($1::bytea[])"


class ReadyBodies:
    """A table of bodies, and one connection."""

    def __init__(self, dsn: str, pushes: Sequence[Batch]) -> None:
        self._dsn = dsn
        self._bodies = [encode(Block.of(push.payloads)) for push in pushes]
        self._connection: asyncpg.Connection[asyncpg.Record]

    async def __aenter__(self) -> Self:
        self._connection = await asyncpg.connect(self._dsn)
        await self._connection.execute(_TABLE)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._connection.close()

    async def append(self, seconds: float) -> float:
        """Insert for a time, each sixteen pushes in a transaction of their own; messages per second."""
        start, pushed = perf_counter(), 0
        while perf_counter() - start < seconds:
            at = pushed % len(self._bodies)
            await self._connection.execute(_INSERT, self._bodies[at : at + PUSHERS])
            pushed += PUSHERS
        return pushed * BATCH / (perf_counter() - start)
