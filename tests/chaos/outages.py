"""The ways in which a PostgreSQL is away, each with a beginning and an end.

What they have in common: before `begin` and after `end` the database works, and nothing that it said was
committed is lost. `Stage` is what they act on: a cluster, a database of it, and the way there.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

import asyncpg
import pytest

from forebay.model.codec import MAGIC, VERSION
from tests.servers import FaultProxy, PostgresServer, Verdict

CONNECTIONS_MAX: Final = 40
"""Of the cluster, so that they can be taken away quickly; a server has 8."""
SMALL_BYTES: Final = 48 << 20
"""Of a file system that is to be full: an empty database takes up a quarter."""
_FORBID: Final = """
    CREATE FUNCTION public.refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        RAISE EXCEPTION 'could not extend file "base/1/1": No space left on device'
        USING ERRCODE = 'disk_full', HINT = 'Check free disk space.';
    END $$;
    CREATE TRIGGER full_disk BEFORE INSERT ON forebay.block
    FOR EACH ROW EXECUTE FUNCTION public.refuse();
"""
_ALLOW: Final = "DROP TRIGGER full_disk ON forebay.block; DROP FUNCTION public.refuse();"
_HUNT: Final = """
    SELECT pg_terminate_backend(pid) FROM pg_stat_activity
    WHERE backend_type = 'client backend' AND pid <> ALL($1::int[])
"""
_COUNT: Final = "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'"


@dataclass
class Stage:
    """One database, by its own address and by that of a proxy in front of it."""

    postgres: PostgresServer
    proxy: FaultProxy
    direct: str
    held: list[asyncpg.Connection[asyncpg.Record]] = field(default_factory=list)
    """Connections that nobody else can have."""

    @property
    def dsn(self) -> str:
        """The address that leads through the proxy."""
        return self.direct.replace(f":{self.postgres.port}/", f":{self.proxy.port}/")

    @asynccontextmanager
    async def admin(self) -> AsyncIterator[asyncpg.Connection[asyncpg.Record]]:
        """A connection that may write whatever the default is."""
        settings = {"default_transaction_read_only": "off"}
        connection = await asyncpg.connect(self.direct, server_settings=settings)
        try:
            yield connection
        finally:
            await connection.close()


class Outage(Protocol):
    """One way to be away."""

    async def begin(self, stage: Stage) -> None:
        """Return when the database is away."""
        ...

    async def end(self, stage: Stage) -> None:
        """Return when it is back."""
        ...


class Stopped:
    """`pg_ctl stop -m immediate`: the next start recovers from the write-ahead log."""

    async def begin(self, stage: Stage) -> None:
        await asyncio.to_thread(stage.postgres.stop_immediate)

    async def end(self, stage: Stage) -> None:
        await asyncio.to_thread(stage.postgres.start)


class Killed(Stopped):
    """The postmaster is killed with -9."""

    async def begin(self, stage: Stage) -> None:
        await asyncio.to_thread(stage.postgres.kill)


class Refused:
    """Nobody listens at its address, and open connections are reset."""

    async def begin(self, stage: Stage) -> None:
        await stage.proxy.stop()

    async def end(self, stage: Stage) -> None:
        await stage.proxy.start()


class BlackHoled:
    """Connections stay open and are accepted; no byte comes through. In the end those held back do."""

    async def begin(self, stage: Stage) -> None:
        stage.proxy.blackhole()

    async def end(self, stage: Stage) -> None:
        stage.proxy.heal()


class ReadOnly:
    """Every transaction is read-only, as on a standby, or where a provider saves what space is left."""

    async def begin(self, stage: Stage) -> None:
        await self._set(stage, "on")

    async def end(self, stage: Stage) -> None:
        await self._set(stage, "off")

    async def _set(self, stage: Stage, value: str) -> None:
        async with stage.admin() as admin:
            await admin.execute(f"ALTER SYSTEM SET default_transaction_read_only = {value}")
            await admin.execute("SELECT pg_reload_conf()")


class OutOfConnections:
    """Others have all connections: 53300, `too_many_connections`, for whoever comes."""

    async def begin(self, stage: Stage) -> None:
        admin = await asyncpg.connect(stage.direct)
        stage.held.append(admin)
        while True:
            await admin.execute(_HUNT, [held.get_server_pid() for held in stage.held])
            with suppress(asyncpg.TooManyConnectionsError):
                while True:
                    stage.held.append(await asyncpg.connect(stage.direct))
            if await admin.fetchval(_COUNT) == len(stage.held):
                return

    async def end(self, stage: Stage) -> None:
        held, stage.held = stage.held, []
        for connection in held:
            await connection.close()


class DiskFull:
    """Writes of blocks fail with what PostgreSQL says of a full disk: 53100, `disk_full`.

    A trigger says it, as a full disk can't be had everywhere; `RealDiskFull` is the real thing.
    """

    async def begin(self, stage: Stage) -> None:
        async with stage.admin() as admin:
            await admin.execute(_FORBID)

    async def end(self, stage: Stage) -> None:
        async with stage.admin() as admin:
            await admin.execute(_ALLOW)


class RealDiskFull:
    """The file system of the database is full; that of the write-ahead log isn't."""

    def __init__(self, folder: Path) -> None:
        self._filler = folder / "filler"

    async def begin(self, stage: Stage) -> None:
        async with stage.admin() as admin:
            await admin.execute("CREATE TABLE public.rest (text text)")
            fill(self._filler)
            with suppress(asyncpg.DiskFullError):
                while True:
                    await admin.execute("INSERT INTO public.rest SELECT repeat('x', 1900)")

    async def end(self, stage: Stage) -> None:
        self._filler.unlink()
        async with stage.admin() as admin:
            await admin.execute("DROP TABLE public.rest")


class Cut:
    """Every block that is written is committed, and the connection is cut before the answer."""

    async def begin(self, stage: Stage) -> None:
        stage.proxy.on_client_bytes(lose_answers_to_blocks)

    async def end(self, stage: Stage) -> None:
        stage.proxy.heal()


def lose_answers_to_blocks(chunk: bytes) -> Verdict:
    """Lose the answer to each write of a block."""
    return Verdict.LOSE_ANSWER if MAGIC + bytes([VERSION]) in chunk else Verdict.FORWARD


OUTAGES: Final[dict[str, Callable[[], Outage]]] = {
    "stopped": Stopped,
    "killed": Killed,
    "refused": Refused,
    "black-holed": BlackHoled,
    "read-only": ReadOnly,
    "out of connections": OutOfConnections,
    "disk full": DiskFull,
    "cut after commit": Cut,
}
"""Those that can be had everywhere."""


def fill(path: Path) -> None:
    """Write a file until the disk is full."""
    with suppress(OSError), path.open("wb", buffering=0) as file:
        size = 1 << 20
        while size:
            try:
                while True:
                    file.write(bytes(size))
            except OSError:
                size //= 2


@contextmanager
def small_disk(size: int = SMALL_BYTES) -> Iterator[Path]:
    """Give a file system of that size; skip where none can be mounted."""
    folder = Path(tempfile.mkdtemp(prefix="forebay-small-"))
    folder.chmod(0o755)
    options = ["-t", "tmpfs", "-o", f"size={size},mode=777", "tmpfs"]
    done = subprocess.run(["mount", *options, folder], check=False, capture_output=True, text=True)
    if done.returncode != 0:
        folder.rmdir()
        pytest.skip(f"no file system can be mounted here: {done.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)
        folder.rmdir()


@contextmanager
def database_on(postgres: PostgresServer, folder: Path) -> Iterator[str]:
    """Give the address of a database whose files are in a folder of another file system."""
    space = folder / "space"
    space.mkdir()
    if os.geteuid() == 0:  # then PostgreSQL runs under another name
        shutil.chown(space, "nobody")
    postgres.run_sql(f"CREATE TABLESPACE small LOCATION '{space}'")
    name = "small"
    try:
        postgres.run_sql(f"CREATE DATABASE {name} TABLESPACE small")
        yield postgres.dsn(name)
    finally:
        postgres.run_sql(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")
        postgres.run_sql("DROP TABLESPACE small")
