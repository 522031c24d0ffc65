"""The snapshot of queues, made beside few messages that wait and beside very many.

A process counts a backlog once, page by page, and then only what came since. What is compared is every
snapshot after the first; while it is made the event loop is watched.
"""

import asyncio
from contextlib import AsyncExitStack
from statistics import median
from time import perf_counter
from typing import Final

from benchmarks.bench import Bench
from benchmarks.parts.many_queues import fill_postgres, fill_sqlite, seed
from benchmarks.parts.scraping import QUEUES, fill
from benchmarks.verdict import Figures
from forebay.app.snapshots import count_queues
from forebay.log.postgres import PostgresLog
from forebay.log.seam import Log
from forebay.log.sqlite import SqliteLog
from forebay.observe.document import encode_document
from forebay.store.seam import Store
from forebay.store.store import LogStore

_TIMES: Final = 5
"""In a round."""


async def run_sqlite(bench: Bench) -> Figures:
    """On two SQLite files."""
    with bench.folder() as folder:
        logs = []
        for number, messages in enumerate(bench.pace.scrape_messages):
            path = folder / f"{number}.db"
            await seed(SqliteLog(path))
            await asyncio.to_thread(fill_sqlite, path, QUEUES)
            await fill(SqliteLog(path), messages)
            logs.append(SqliteLog(path))
        return await _compare(bench, "sqlite", logs[0], logs[1])


async def run_postgres(bench: Bench) -> Figures:
    """On two databases of one PostgreSQL."""
    async with AsyncExitStack() as stack:
        logs = []
        for messages in bench.pace.scrape_messages:
            dsn = await stack.enter_async_context(bench.database())
            await seed(PostgresLog(dsn))
            await fill_postgres(dsn, QUEUES)
            await fill(PostgresLog(dsn), messages)
            logs.append(PostgresLog(dsn))
        return await _compare(bench, "postgres", logs[0], logs[1])


async def _compare(bench: Bench, name: str, few: Log, many: Log) -> Figures:
    pace, taken, stalls = bench.pace, list[tuple[float, float]](), list[float]()
    async with LogStore(few) as small, LogStore(many) as large:
        with bench.part(f"refresh on {name}", pace.rounds + 1):
            with bench.note("first"):
                await _refresh(small)
                first = await _refresh(large)
            for number in range(pace.rounds):
                with bench.note(f"round {number + 1} of {pace.rounds}"):
                    for _ in range(_TIMES):
                        taken.append(((await _refresh(small))[0], (again := await _refresh(large))[0]))
                        stalls.append(again[1])
    by_round = [taken[at : at + _TIMES] for at in range(0, len(taken), _TIMES)]
    ratios = [round(median(b for _, b in each) / median(a for a, _ in each), 2) for each in by_round]
    return {
        "refresh_ms_few": round(median(a for a, _ in taken) * 1000, 1),
        "refresh_ms": round(median(b for _, b in taken) * 1000, 1),
        "ratio": median(ratios),
        "ratio_by_round": ratios,
        "stall_ms": round(median(stalls) * 1000, 1),
        "first_seconds": round(first[0], 2),
        "first_stall_ms": round(first[1] * 1000, 1),
    }


async def _refresh(store: Store) -> tuple[float, float]:
    """Make a snapshot as a server does: how long it takes, and for how long others waited at most."""
    longest = 0.0

    async def watch() -> None:
        nonlocal longest
        while True:
            began = perf_counter()
            await asyncio.sleep(0)
            longest = max(longest, perf_counter() - began)

    watching, began = asyncio.create_task(watch()), perf_counter()
    await asyncio.to_thread(encode_document, await count_queues(store))
    seconds = perf_counter() - began
    watching.cancel()
    return seconds, longest
