"""What every part of a benchmark is given: a pace, a PostgreSQL of its own, a folder, a progress bar."""

import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import asyncpg
import msgspec
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from tests.servers.forebay import ForebayServer
from tests.servers.postgres import PostgresServer
from tests.servers.valkey import ValkeyServer

POSTGRES_FLAVOUR: Final = "wheel-18"
POSTGRES_SETTINGS: Final = {
    "shared_buffers": "256MB",
    # A checkpoint comes before each round, about as often as with default settings under this load,
    # and never in the middle of somebody's turn.
    "checkpoint_timeout": "1h",
    "max_wal_size": "8GB",
    "min_wal_size": "2GB",
}
"""On top of fsync, synchronous_commit and full_page_writes, which are on. The same for all."""


class Pace(msgspec.Struct, frozen=True, kw_only=True):
    """How long everything takes."""

    rounds: int = 5
    seconds: float = 2.0
    """Of a turn."""
    snapshot_rounds: int = 6
    snapshot_seconds: float = 5.0
    """Of a turn beside an old snapshot."""
    backlog_rounds: int = 8
    backlog_steps: int = 10
    """Of a round: each appends, claims and settles 50 blocks."""
    backlog_messages: tuple[int, int] = (10_000, 10_000_000)
    store_messages: int = 400_000
    """Taken and finished in a turn of the store."""
    store_waits: int = 1_000
    """Tasks whose way from put to take is measured."""
    cold_messages: tuple[int, int] = (10_000, 5_000_000)
    http_messages: int = 200_000
    """Taken and finished in a turn over HTTP."""
    http_pending: int = 1_000_000
    """That wait while the server's memory is looked at."""
    spool_messages: int = 1_000_000
    """In one file of the spool, which is read while memory is looked at; in many that are recovered."""
    replay_messages: int = 400_000
    """In the spool when a replay begins."""
    queen_messages: int = 100_000
    """Popped and acknowledged by a client of Queen's."""
    spark_messages: int = 1_000_000
    """Read and written by Spark in a turn."""
    spark_events: int = 2_000_000
    """In the files of a bulk replay."""
    queues: int = 50_000
    """That are idle beside the one that is used."""
    partitions: int = 200_000
    """Of one queue, each with a message that waits."""
    scrape_messages: tuple[int, int] = (1_000, 5_000_000)
    """That wait while metrics are scraped, and while their snapshot is made."""


FULL: Final = Pace()
QUICK: Final = Pace(
    rounds=1,
    seconds=0.4,
    snapshot_rounds=1,
    snapshot_seconds=0.4,
    backlog_rounds=1,
    backlog_steps=1,
    backlog_messages=(10_000, 200_000),
    store_messages=20_000,
    store_waits=50,
    cold_messages=(10_000, 100_000),
    http_messages=5_000,
    http_pending=20_000,
    spool_messages=20_000,
    replay_messages=10_000,
    queen_messages=2_000,
    spark_messages=20_000,
    spark_events=40_000,
    queues=2_000,
    partitions=2_000,
    scrape_messages=(1_000, 100_000),
)


class Bench:
    """Opened with `with`; the server is started when it is first asked for, and ends with it."""

    def __init__(self, pace: Pace, progress: Progress) -> None:
        self.pace = pace
        self._progress = progress
        self._part: tuple[TaskID, str] | None = None
        self._open = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._open.close()

    @cached_property
    def server(self) -> PostgresServer:
        """The PostgreSQL of this run."""
        return self._open.enter_context(PostgresServer(POSTGRES_FLAVOUR, settings=POSTGRES_SETTINGS))

    @cached_property
    def valkey(self) -> ValkeyServer:
        """The Valkey of this run."""
        return self._open.enter_context(ValkeyServer("wheel"))

    @asynccontextmanager
    async def database(self) -> AsyncIterator[str]:
        """Give the address of an empty database, which is dropped afterwards."""
        dsn = self.server.create_database()
        try:
            yield dsn
        finally:
            self.server.drop_database(dsn)

    @contextmanager
    def folder(self) -> Iterator[Path]:
        """Give an empty folder on the disk that PostgreSQL is on too."""
        with tempfile.TemporaryDirectory(prefix="forebay-bench-") as name:
            yield Path(name)

    @contextmanager
    def forebay(self, store: str, **sections: Any) -> Iterator[ForebayServer]:
        """Give a server in a process of its own, on a store, with these sections in its file."""
        with ForebayServer(store, sections=sections) as server:
            yield server

    @contextmanager
    def part(self, name: str, steps: int) -> Iterator[None]:
        """Show a part of so many steps on the progress bar."""
        task = self._progress.add_task(name, total=steps)
        self._part = (task, name)
        try:
            yield
        finally:
            self._progress.update(task, description=name, completed=steps)
            self._part = None

    @contextmanager
    def note(self, text: str) -> Iterator[None]:
        """Show one step of the part, and count it when it is over."""
        if self._part is None:
            yield
            return
        task, name = self._part
        self._progress.update(task, description=f"{name}: {text}")
        yield
        self._progress.advance(task)


def progress_bar() -> Progress:
    """Make a bar on standard error, which shows nothing where that is no terminal."""
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    console = Console(stderr=True)
    return Progress(*columns, console=console, disable=not console.is_terminal)


async def checkpoint(dsn: str) -> None:
    """Have the server write out what it holds."""
    connection = await asyncpg.connect(dsn)
    try:
        await connection.execute("CHECKPOINT")
    finally:
        await connection.close()
