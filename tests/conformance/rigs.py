"""Rigs: one per implementation of the log, with a clock that the test moves.

A rig opens its log, opens it again where it is durable, damages what is stored, and starts afresh.
Nothing here waits for time.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import apsw
import asyncpg
import asynctnt
import msgspec

from forebay.log.memory import MemoryLog
from forebay.log.postgres import PostgresLog
from forebay.log.sqlite import SqliteLog
from forebay.log.tarantool import TarantoolLog
from forebay.model import HEADER_BYTES, ManualClock, pack, sequence_of

if TYPE_CHECKING:
    from forebay.log.seam import Log
    from forebay.log.values import Group, Queue
    from tests.servers import TarantoolServer

BEGIN = 1_800_000_000_000_000
"""When every test begins, in microseconds: some day in 2027."""
DAY = 86_400.0
REMEMBER_SECONDS = 7 * DAY
"""How long the logs under test remember ids."""

NAMES = ("memory", "sqlite", "postgres", "tarantool")
REMOTE_NAMES = ("http",)
"""Logs that are another one, somewhere else."""
DURABLE_NAMES = ("sqlite", "postgres", "tarantool")


class Rig(ABC):
    """A log under test; `log` is open between `open` and `close`."""

    name: ClassVar[str]

    def __init__(self) -> None:
        self.clock = ManualClock(BEGIN)
        self.is_open = False

    @property
    def log(self) -> Log:
        """The log, which is open."""
        assert self.is_open, "the rig is closed"
        return self._log

    def beside(self) -> Log:
        """Give the log of another process on what is stored, to be opened."""
        return self._make()

    async def open(self) -> None:
        """Open the log on what is stored."""
        self._log = self._make()
        await self._log.__aenter__()
        self.is_open = True

    async def close(self) -> None:
        """Close the log, unless it is closed."""
        if self.is_open:
            self.is_open = False
            await self._log.__aexit__(None, None, None)

    async def reopen(self) -> None:
        """Close the log and open it again."""
        await self.close()
        await self.open()

    async def fresh(self) -> None:
        """Close the log, forget what is stored, and open an empty one at the first moment."""
        await self.close()
        await self._wipe()
        self.clock.set(BEGIN)
        await self.open()

    @abstractmethod
    def _make(self) -> Log: ...

    @abstractmethod
    async def _wipe(self) -> None: ...

    @abstractmethod
    async def flip_bit(self, queue: Queue, sequence: int) -> None:
        """Damage the stored body of the block that holds a message."""

    @abstractmethod
    async def flip_letter(self, group: Group, message_id: int) -> None:
        """Damage the copy that a dead letter keeps."""


class MemoryRig(Rig):
    """The oracle itself, which must keep its own promises."""

    name = "memory"

    def _make(self) -> Log:
        self._memory = MemoryLog(clock=self.clock, remember_seconds=REMEMBER_SECONDS)
        return self._memory

    async def _wipe(self) -> None:
        pass

    async def flip_bit(self, queue: Queue, sequence: int) -> None:
        blocks = self._memory._queues[queue.number].blocks
        for index, block in enumerate(blocks):
            if sequence_of(block.first) <= sequence <= sequence_of(block.last):
                blocks[index] = msgspec.structs.replace(block, body=flipped(block.body))

    async def flip_letter(self, group: Group, message_id: int) -> None:
        kept = self._memory._groups[group.number].letters[message_id]
        kept.letter = msgspec.structs.replace(kept.letter, body=flipped(kept.letter.body))


class SqliteRig(Rig):
    """A file in a directory of the test."""

    name = "sqlite"

    def __init__(self, directory: Path) -> None:
        super().__init__()
        self._directory = directory
        self._number = 0

    @property
    def path(self) -> Path:
        """The file of the log."""
        return self._directory / f"log-{self._number}.db"

    def _make(self) -> Log:
        return SqliteLog(self.path, clock=self.clock, remember_seconds=REMEMBER_SECONDS)

    async def _wipe(self) -> None:
        self._number += 1

    async def flip_bit(self, queue: Queue, sequence: int) -> None:
        # By apsw, like the log: two builds of SQLite in one process undo each other's file locks.
        with closing(apsw.Connection(str(self.path))) as connection:
            connection.set_busy_timeout(5_000)
            found = connection.execute(
                "SELECT last, body FROM block WHERE last >= ? ORDER BY last LIMIT 1",
                [pack(queue.number, sequence)],
            ).fetchone()
            assert found is not None
            connection.execute("UPDATE block SET body = ? WHERE last = ?", [flipped(found[1]), found[0]])

    async def flip_letter(self, group: Group, message_id: int) -> None:
        with closing(apsw.Connection(str(self.path))) as connection:
            connection.set_busy_timeout(5_000)
            place = (group.number, message_id)
            found = connection.execute(
                "SELECT body FROM dead_letter WHERE group_number = ? AND message_id = ?", place
            ).fetchone()
            assert found is not None
            connection.execute(
                "UPDATE dead_letter SET body = ? WHERE group_number = ? AND message_id = ?",
                (flipped(found[0]), *place),
            )


_TABLES = """
    SELECT oid::regclass::text FROM pg_class
    WHERE relnamespace = to_regnamespace('forebay') AND relkind IN ('r', 'p') AND NOT relispartition
        AND relname NOT IN ('schema_version', 'functions', 'span', 'piece')
"""


class PostgresRig(Rig):
    """A database of the run; to start afresh its rows are deleted, which takes milliseconds.

    All in one statement, so that no order of tables has to be known. The schema and the pieces by
    time stay.
    """

    name = "postgres"

    def __init__(self, dsn: str) -> None:
        super().__init__()
        self._dsn = dsn

    def _make(self) -> Log:
        return PostgresLog(self._dsn, clock=self.clock, remember_seconds=REMEMBER_SECONDS)

    async def _wipe(self) -> None:
        connection = await asyncpg.connect(self._dsn)
        try:
            tables = await connection.fetch(_TABLES)
            deletes = (f"d{n} AS (DELETE FROM {row[0]})" for n, row in enumerate(tables))
            if tables:
                await connection.execute(f"WITH {', '.join(deletes)} SELECT 1")
        finally:
            await connection.close()

    async def flip_bit(self, queue: Queue, sequence: int) -> None:
        connection = await asyncpg.connect(self._dsn)
        try:
            row = await connection.fetchrow(
                "SELECT last, body FROM forebay.block WHERE last >= $1 ORDER BY last LIMIT 1",
                pack(queue.number, sequence),
            )
            assert row is not None
            await connection.execute(
                "UPDATE forebay.block SET body = $2 WHERE last = $1",
                row["last"],
                flipped(row["body"]),
            )
        finally:
            await connection.close()

    async def flip_letter(self, group: Group, message_id: int) -> None:
        connection = await asyncpg.connect(self._dsn)
        try:
            place = (group.number, message_id)
            body = await connection.fetchval(
                "SELECT body FROM forebay.dead_letter WHERE grp = $1 AND message_id = $2", *place
            )
            await connection.execute(
                "UPDATE forebay.dead_letter SET body = $3 WHERE grp = $1 AND message_id = $2",
                *place,
                flipped(body),
            )
        finally:
            await connection.close()


_EMPTY = """
    box.begin()
    for name, space in pairs(box.space) do
        if type(name) == 'string' and name:match('^forebay_') and name ~= 'forebay_schema' then
            for _, row in space:pairs() do
                local key = {}
                for i, part in ipairs(space.index[0].parts) do key[i] = row[part.fieldno] end
                space:delete(key)
            end
        end
    end
    box.commit()
"""
_FLIP_BLOCK = """
    local queue, sequence, at, bit_ = ...
    local row = box.space.forebay_block:select({queue, sequence}, {iterator = 'GE', limit = 1})[1]
    local place = at + math.floor((#row.body - at) / 2) + 1
    local byte = string.char(bit.bxor(row.body:byte(place), bit_))
    box.space.forebay_block:update({queue, row.last}, {{':', 'body', place, 1, byte}})
"""
_FLIP_LETTER = """
    local group, sequence, at, bit_ = ...
    local row = box.space.forebay_letter:get({group, sequence})
    local place = at + math.floor((#row.body - at) / 2) + 1
    local byte = string.char(bit.bxor(row.body:byte(place), bit_))
    box.space.forebay_letter:update({group, sequence}, {{':', 'body', place, 1, byte}})
"""


_KILLS_MAX = 5
"""Of a rig: what a machine does more often is opened again as it is, since each takes half a second."""


class TarantoolRig(Rig):
    """A server of the run; to start afresh its rows are deleted. Spaces and procedures stay.

    Before it is opened again the server is killed, and recovers what it has acknowledged.
    """

    name = "tarantool"

    def __init__(self, server: TarantoolServer) -> None:
        super().__init__()
        self._server = server
        self._kills = 0

    async def reopen(self) -> None:
        """Close the log, kill the server, and open it again."""
        await self.close()
        if self._kills < _KILLS_MAX:
            self._kills += 1
            self._server.kill()
            self._server.start()
        await self.open()

    def _make(self) -> Log:
        return TarantoolLog(self._server.url, clock=self.clock, remember_seconds=REMEMBER_SECONDS)

    async def _wipe(self) -> None:
        await self._run(_EMPTY)

    async def flip_bit(self, queue: Queue, sequence: int) -> None:
        await self._run(_FLIP_BLOCK, queue.number, sequence)

    async def flip_letter(self, group: Group, message_id: int) -> None:
        await self._run(_FLIP_LETTER, group.number, sequence_of(message_id))

    async def _run(self, script: str, *place: int) -> None:
        async with asynctnt.Connection(host="127.0.0.1", port=self._server.port) as connection:
            await connection.eval(script, [*place, HEADER_BYTES, 0x10])


def flipped(body: bytes) -> bytes:
    """The body with one bit of its content changed."""
    damaged = bytearray(body)
    damaged[HEADER_BYTES + (len(body) - HEADER_BYTES) // 2] ^= 0x10
    return bytes(damaged)


def make_rig(name: str, directory: Path, fixture: Callable[[str], Any]) -> Rig:
    """The rig of that name; a fixture is asked for only where a server is needed."""
    if name == "memory":
        return MemoryRig()
    if name == "sqlite":
        return SqliteRig(directory)
    if name == "tarantool":
        return TarantoolRig(fixture("tarantool_server"))
    return PostgresRig(fixture("rig_database"))
