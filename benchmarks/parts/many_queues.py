"""The same work on a server with few queues and on one with very many: each queue costs what it is used for.

The idle queues are written straight into the log, since to make them one by one would take minutes.
"""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from itertools import count
from os import sysconf
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any, Final

import asyncpg
import msgspec

from benchmarks.bench import Bench
from benchmarks.httpload import HttpConnection, request
from benchmarks.verdict import Figures
from forebay.log.postgres import PostgresLog
from forebay.log.seam import Log
from forebay.log.sqlite import SqliteLog
from forebay.store.store import LogStore
from tests.servers.forebay import ForebayServer

FEW: Final = 10
_IDLE_SECONDS: Final = 6.0
"""Longer than the period of the store's rounds."""
_PAGE: Final = 1_000
_SQLITE: Final = """
WITH RECURSIVE made (n) AS (SELECT ?1 UNION ALL SELECT n + 1 FROM made WHERE n < ?2)
INSERT INTO queue
SELECT n, 'idle-' || n, settings, created_at, 1, 1, 1, 0, 0 FROM made, queue WHERE number = 1;
"""
_SQLITE_GROUPS: Final = """
INSERT INTO consumer_group (queue, name, start, position)
SELECT number, 'workers', 1, 1 FROM queue WHERE number >= ?1;
"""
_POSTGRES: Final = (
    """INSERT INTO forebay.queue (number, name, settings, ordered, dedupe_us, created_at)
    SELECT n, 'idle-' || n, settings, ordered, dedupe_us, created_at
    FROM generate_series($1::int, $2::int) AS n, forebay.queue WHERE number = 1""",
    """INSERT INTO forebay.head SELECT n, 1, 0 FROM generate_series($1::int, $2::int) AS n""",
    """INSERT INTO forebay.consumer_group (queue, name, start, created_at)
    SELECT n, 'workers', 1, 0 FROM generate_series($1::int, $2::int) AS n""",
    *(
        """INSERT INTO forebay.TABLE SELECT (jsonb_populate_record(
            NULL::forebay.TABLE, to_jsonb(t) || jsonb_build_object('grp', g.number))).*
        FROM forebay.consumer_group AS g, forebay.TABLE AS t
        WHERE g.queue BETWEEN $1 AND $2 AND t.grp = 1""".replace("TABLE", table)
        for table in ("cursor", "tally")
    ),
)
"""What a queue without messages has there: its rows are those of the first one."""


class Site:
    """A server and what is measured of it."""

    def __init__(self, server: ForebayServer, connection: HttpConnection) -> None:
        self.server = server
        self.connection = connection
        self.creations: list[float] = []
        self.works: list[float] = []
        self._numbers = count()

    async def ask(self, method: str, path: str, body: bytes = b"", *, expected: int = 200) -> bytes:
        """The body of an answer, which must have the expected status."""
        return await self.connection.ask(request(path, body, method=method), expected)

    async def create(self) -> None:
        """Make a queue, and note how long it took."""
        began = perf_counter()
        await self.ask("PUT", f"/v1/queues/new-{next(self._numbers)}", b"{}", expected=201)
        self.creations.append(perf_counter() - began)

    async def work(self) -> None:
        """Push a message, take it and finish it, and note how long it took."""
        began = perf_counter()
        await self.ask("POST", "/v1/queues/orders/messages", b'[{"payload":1}]', expected=201)
        taken = msgspec.json.decode(await self.ask("POST", "/v1/queues/orders/take", b'{"count":1}'))
        leases = [{"id": task["id"], "lease": task["lease"]} for task in taken["tasks"]]
        await self.ask("POST", "/v1/settle", msgspec.json.encode({"done": leases}))
        self.works.append(perf_counter() - began)

    def cpu_seconds(self) -> float:
        """What its process has used."""
        fields = Path(f"/proc/{self.server.pid}/stat").read_text(encoding="utf-8").rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / sysconf("SC_CLK_TCK")


async def run_sqlite(bench: Bench) -> Figures:
    """On two SQLite files."""
    with bench.folder() as folder:
        stores = {}
        for name, queues in (("few", FEW), ("many", bench.pace.queues)):
            path = folder / f"{name}.db"
            await seed(SqliteLog(path))
            await asyncio.to_thread(fill_sqlite, path, queues)
            stores[name] = f"sqlite:///{path}"
        return await _compare(bench, "sqlite", stores["few"], stores["many"])


async def run_postgres(bench: Bench) -> Figures:
    """On two databases of one PostgreSQL."""
    async with bench.database() as few, bench.database() as many:
        for dsn, queues in ((few, FEW), (many, bench.pace.queues)):
            await seed(PostgresLog(dsn))
            await fill_postgres(dsn, queues)
        return await _compare(bench, "postgres", few, many)


async def seed(log: Log) -> None:
    """Make the queue that is used, the first one."""
    async with LogStore(log) as store:
        await store.create_queue("orders")


def fill_sqlite(path: Path, queues: int) -> None:
    """Write idle queues into a file, up to that number."""
    connection = sqlite3.connect(path)
    with connection:
        connection.execute(_SQLITE, (2, queues))
        connection.execute(_SQLITE_GROUPS, (2,))
    connection.close()


async def fill_postgres(dsn: str, queues: int) -> None:
    """Write idle queues into a database, up to that number."""
    connection = await asyncpg.connect(dsn)
    try:
        for statement in _POSTGRES:
            await connection.execute(statement, 2, queues)
        await connection.execute("ANALYZE")
    finally:
        await connection.close()


async def _compare(bench: Bench, name: str, few_url: str, many_url: str) -> Figures:
    pace = bench.pace
    async with serving(bench, few_url) as few, serving(bench, many_url) as many:
        with bench.part(name, pace.rounds + 2):
            for number in range(pace.rounds):
                with bench.note(f"round {number + 1} of {pace.rounds}"):
                    for site in (few, many):
                        await repeat_for(pace.seconds / 2, site.create)
                        await repeat_for(pace.seconds / 2, site.work)
            with bench.note("idle"):
                used = await idle_cpu([few, many])
            with bench.note("all books"):
                ledger_seconds, ledger_bytes, stall = await _read_books(many)
    return {
        "queues": float(pace.queues),
        "create_per_second": round(1 / median(many.creations), 1),
        "create_ratio": round(median(few.creations) / median(many.creations), 2),
        "push_and_take_ms": round(median(many.works) * 1000, 2),
        "push_and_take_ratio": round(median(many.works) / median(few.works), 2),
        "idle_cpu_percent": used[1],
        "idle_cpu_percent_few": used[0],
        "ledger_seconds": round(ledger_seconds, 2),
        "ledger_mb": round(ledger_bytes / 1e6, 1),
        "stall_ms": round(stall * 1000, 1),
    }


@asynccontextmanager
async def serving(bench: Bench, url: str, **sections: Any) -> AsyncIterator[Site]:
    """A server on a log, with these sections in its configuration."""
    holder = bench.forebay(url, **sections)
    server = await asyncio.to_thread(holder.__enter__)
    connection = await HttpConnection.open(server.port)
    try:
        yield Site(server, connection)
    finally:
        connection.close()
        await asyncio.to_thread(holder.__exit__, None, None, None)


async def idle_cpu(sites: Sequence[Site]) -> list[float]:
    """What servers that nobody asks use of a core, in percent."""
    before = [site.cpu_seconds() for site in sites]
    await asyncio.sleep(_IDLE_SECONDS)
    used = [site.cpu_seconds() - b for site, b in zip(sites, before, strict=True)]
    return [round(100 * seconds / _IDLE_SECONDS, 1) for seconds in used]


async def repeat_for(seconds: float, work: Callable[[], Awaitable[None]]) -> None:
    """Do something again and again for so many seconds."""
    until = perf_counter() + seconds
    while perf_counter() < until:
        await work()


async def _read_books(site: Site) -> tuple[float, int, float]:
    """Read the books of all queues: how long it took, how many bytes, how long others had to wait."""
    other = await HttpConnection.open(site.server.port)
    stalls: list[float] = []

    async def knock() -> None:
        while True:
            began = perf_counter()
            await other.ask(request("/healthz", method="GET"))
            stalls.append(perf_counter() - began)
            await asyncio.sleep(0.005)

    knocking = asyncio.create_task(knock())
    began, size = perf_counter(), 0
    after: int | None = 0
    while after is not None:
        page = await site.ask("GET", f"/v1/ledger?after={after}&limit={_PAGE}")
        size += len(page)
        after = msgspec.json.decode(page)["next"]
    took = perf_counter() - began
    knocking.cancel()
    await asyncio.gather(knocking, return_exceptions=True)
    other.close()
    return took, size, max(stalls)
