"""Scrapes of `/metrics` beside few messages that wait and beside very many, on PostgreSQL.

Both servers have the same queues, as many as it takes for ten thousand series. Each of fifty scrapers comes
back at once, so the figures are the worst that they can do to each other. The statements are those that
PostgreSQL writes down: while a server is left alone for some seconds, and while it is scraped for as long.
"""

import asyncio
import gzip
import re
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from itertools import islice, pairwise
from pathlib import Path
from statistics import median, quantiles
from time import perf_counter
from typing import Final

import asyncpg

from benchmarks.bench import Bench
from benchmarks.httpload import HttpConnection, connections, request
from benchmarks.parts.many_queues import fill_postgres, seed, serving
from benchmarks.verdict import Figures
from forebay.log.postgres import PostgresLog
from forebay.log.seam import Log
from forebay.log.values import Append
from forebay.model import Message

SCRAPERS: Final = 50
QUEUES: Final = 700
"""Each has 15 series."""
SERIES: Final = 10_000
_BLOCK: Final = 100
_FLOWS: Final = 20
_BLOCKS_AT_ONCE: Final = 50
_PROMETHEUS: Final = "text/plain;version=0.0.4;q=0.5,*/*;q=0.1"
_SCRAPE: Final = request("/metrics", method="GET", accept=_PROMETHEUS, encoding="gzip")
"""As Prometheus asks."""
_SERIES: Final = re.compile(rb"\nforebay_snapshot_series (\d+)")
_STATEMENT: Final = re.compile(r"LOG:  (?:statement|execute [^:]*): (.*)")
_SELDOM: Final = {"queue_snapshot": {"refresh_interval": "1h", "max_staleness": "2h"}}
"""One snapshot at the start, and then none: whatever is asked while it is scraped was asked for a scrape."""


async def fill(log: Log, messages: int) -> None:
    """Let messages of some flows wait in the first queue."""
    async with log:
        queue = await log.queue("orders")
        contents = [Message(b"x" * 50, headers={"flow": f"flow-{n % _FLOWS}"}) for n in range(_BLOCK)]
        blocks = (Append.of(queue, contents) for _ in range(messages // _BLOCK))
        while some := list(islice(blocks, _BLOCKS_AT_ONCE)):
            await log.commit(some)


async def run(bench: Bench) -> Figures:
    """Scrape both in turns; then count what reaches the database."""
    pace = bench.pace
    with bench.part("scrape", pace.rounds + 3):
        async with AsyncExitStack() as stack:
            databases = [await stack.enter_async_context(bench.database()) for _ in pace.scrape_messages]
            with bench.note("fill"):
                for dsn, messages in zip(databases, pace.scrape_messages, strict=True):
                    await seed(PostgresLog(dsn))
                    await fill_postgres(dsn, QUEUES)
                    await fill(PostgresLog(dsn), messages)
            async with AsyncExitStack() as sites:
                ports = [
                    (await sites.enter_async_context(serving(bench, dsn))).server.port for dsn in databases
                ]
                few, many = [await _fifty(sites, port) for port in ports]
                with bench.note("first snapshots"):
                    series, size, packed = await _has_snapshot(few[0])
                    await _has_snapshot(many[0])
                rounds: list[tuple[list[float], list[float]]] = []
                for number in range(pace.rounds):
                    with bench.note(f"round {number + 1} of {pace.rounds}"):
                        rounds.append((await scrape(few, pace.seconds), await scrape(many, pace.seconds)))
            with bench.note("statements"):
                idle, scraped, scrapes = await _statements(bench, databases[1])
    slowest = [(_p99(a), _p99(b)) for a, b in rounds]
    return {
        "series": float(series),
        "answer_kb": round(size / 1000, 1),
        "gzip_kb": round(packed / 1000, 1),
        "scrapers": float(SCRAPERS),
        "p50_ms": round(median(median(b) for _, b in rounds) * 1000, 1),
        "p99_ms": round(median(b for _, b in slowest) * 1000, 1),
        "p99_ms_few": round(median(a for a, _ in slowest) * 1000, 1),
        "ratio": round(median(median(b) / median(a) for a, b in rounds), 2),
        "ratio_by_round": [round(median(b) / median(a), 2) for a, b in rounds],
        "scrapes_counted": float(scrapes),
        "statements": float(sum(surplus(idle, scraped).values())),
        "statements_idle": float(idle.total()),
    }


async def scrape(scrapers: Sequence[HttpConnection], seconds: float) -> list[float]:
    """Scrape over all connections for a time; how long each took."""
    until, taken = perf_counter() + seconds, list[float]()

    async def one(connection: HttpConnection) -> None:
        while (began := perf_counter()) < until:
            await connection.ask(_SCRAPE)
            taken.append(perf_counter() - began)

    await asyncio.gather(*map(one, scrapers))
    return taken


def surplus(idle: Mapping[str, int], scraped: Mapping[str, int]) -> dict[str, int]:
    """Statements that upkeep doesn't explain, which may come once more than before, or twice as often."""
    return {text: count for text, count in scraped.items() if count > 2 * idle.get(text, 0) + 1}


def _p99(taken: Sequence[float]) -> float:
    return quantiles(taken, n=100)[-1] if len(taken) > 1 else max(taken)


async def _fifty(stack: AsyncExitStack, port: int) -> Sequence[HttpConnection]:
    opened = await connections(port, SCRAPERS)
    for each in opened:
        stack.callback(each.close)
    return opened


async def _has_snapshot(connection: HttpConnection) -> tuple[int, int, int]:
    """Wait for the first snapshot: its series, and the size of an answer, also compressed."""
    async with asyncio.timeout(600):
        while True:
            packed = await connection.ask(_SCRAPE)
            body = gzip.decompress(packed)
            found = _SERIES.search(body)
            if found is not None and int(found[1]) >= SERIES:
                return int(found[1]), len(body), len(packed)
            await asyncio.sleep(0.2)


@asynccontextmanager
async def _written_down(dsn: str) -> AsyncIterator[None]:
    """Have PostgreSQL write down all statements of new sessions in a database."""
    name = dsn.rsplit("/", 1)[1]
    connection = await asyncpg.connect(dsn)
    try:
        await connection.execute(f"ALTER DATABASE \"{name}\" SET log_statement = 'all'")
        yield
        await connection.execute(f'ALTER DATABASE "{name}" RESET log_statement')
    finally:
        await connection.close()


async def _statements(bench: Bench, dsn: str) -> tuple[Counter[str], Counter[str], int]:
    """Statements while a server is left alone, and while it is scraped; and how often it was."""
    seconds = max(2.0, 2 * bench.pace.seconds)
    async with _written_down(dsn), AsyncExitStack() as stack:
        serve = partial(serving, metrics=_SELDOM)
        site = await stack.enter_async_context(serve(bench, dsn))
        scrapers = await _fifty(stack, site.server.port)
        await _has_snapshot(scrapers[0])
        log = bench.server.log
        places = [log.stat().st_size]
        await asyncio.sleep(seconds)
        places.append(log.stat().st_size)
        done = await scrape(scrapers, seconds)
        places.append(log.stat().st_size)
    idle, scraped = (_read(log, *window) for window in pairwise(places))
    return idle, scraped, len(done)


def _read(log: Path, begin: int, end: int) -> Counter[str]:
    with log.open("rb") as file:
        file.seek(begin)
        return Counter(_STATEMENT.findall(file.read(end - begin).decode(errors="replace")))
