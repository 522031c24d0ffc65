"""pgmq as a contestant: its own SQL where it can be fetched, and ours in its manner where not.

The wheel `pgmq` on the package index carries the extension's SQL file. It is fetched once with pip,
checked against a pinned digest and kept in the virtual environment; nothing of it is installed
but the SQL, into the benchmark's own database.
"""

import asyncio
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from hashlib import sha256
from importlib import resources
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import asyncpg

from benchmarks.drive import cycle_rate
from benchmarks.payloads import BATCH, PUSHERS, Batch

READERS: Final = (1, 2, 4, 8)
"""How many readers are tried; the best counts."""

_WHEEL: Final = "pgmq-1.1.4-py3-none-any.whl"
_DIGEST: Final = "4d9e7aa517295669d46a11d3d13106efbdc738d0e127d84c567b6d4c936e7d1d"
_FETCH_SECONDS: Final = 60
_VISIBLE_AGAIN_SECONDS: Final = 300

_SEND: Final = "SELECT pgmq.send_batch($1, $2::jsonb[])"
_READ: Final = "SELECT msg_id, message FROM pgmq.read($1, $2, $3)"
_ARCHIVE: Final = "SELECT pgmq.archive($1, $2::bigint[])"


def load_sql() -> tuple[str, str]:
    """Return the SQL to install, and what it is."""
    wheel = _wheel()
    if wheel is None:
        ours = resources.files("benchmarks") / "pgmq.sql"
        return ours.read_text(encoding="utf-8"), "equivalent of pgmq, as it could not be fetched"
    with zipfile.ZipFile(wheel) as archive:
        version = archive.read("pgmq/sql/VERSION").decode().strip()
        return archive.read("pgmq/sql/pgmq.sql").decode(), f"pgmq {version}"


def _wheel() -> Path | None:
    folder = Path(sys.prefix) / "share" / "forebay-benchmarks"
    wheel = folder / _WHEEL
    if not _is_intact(wheel):
        name, version, *_ = _WHEEL.split("-")
        options = ["--quiet", "--disable-pip-version-check", "--no-deps", "--only-binary=:all:"]
        command = [sys.executable, "-m", "pip", "download", *options, f"{name}=={version}"]
        try:
            subprocess.run(  # noqa: S603 - a fixed command
                [*command, "--dest", str(folder)],
                check=True,
                capture_output=True,
                timeout=_FETCH_SECONDS,
            )
        except (OSError, subprocess.SubprocessError):
            return None
    return wheel if _is_intact(wheel) else None


def _is_intact(wheel: Path) -> bool:
    return wheel.exists() and sha256(wheel.read_bytes()).hexdigest() == _DIGEST


class Pgmq:
    """A connection for each pusher and for each reader, to a database with pgmq in it."""

    def __init__(self, dsn: str, pushes: Sequence[Batch]) -> None:
        self._dsn = dsn
        self._pushes = pushes
        self._pushers: list[asyncpg.Connection[asyncpg.Record]] = []
        self._readers: list[asyncpg.Connection[asyncpg.Record]] = []
        self._turns = 0
        self.source = ""

    async def __aenter__(self) -> Self:
        sql, self.source = await asyncio.to_thread(load_sql)
        self._pushers = [await asyncpg.connect(self._dsn) for _ in range(PUSHERS)]
        self._readers = [await asyncpg.connect(self._dsn) for _ in range(max(READERS))]
        await self._pushers[0].execute(sql)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await asyncio.gather(*(c.close() for c in (*self._pushers, *self._readers)))

    async def cycle(self, seconds: float, readers: int) -> float:
        """Send, read and archive batches of a fresh queue, which is dropped afterwards."""
        self._turns += 1
        queue = f"turn_{self._turns}"
        await self._pushers[0].execute("SELECT pgmq.create($1)", queue)

        async def push(pusher: int, turn: int) -> None:
            texts = self._pushes[turn % len(self._pushes)].texts
            await self._pushers[pusher].fetch(_SEND, queue, texts)

        async def finish(reader: int) -> int:
            connection = self._readers[reader]
            rows = await connection.fetch(_READ, queue, _VISIBLE_AGAIN_SECONDS, BATCH)
            if rows:
                await connection.fetch(_ARCHIVE, queue, [row["msg_id"] for row in rows])
            return len(rows)

        rate = await cycle_rate(push, finish, readers, seconds)
        await self._pushers[0].execute("SELECT pgmq.drop_queue($1)", queue)
        return rate
