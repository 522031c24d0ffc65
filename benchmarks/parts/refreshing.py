"""The snapshot of queues, made beside few messages that wait and beside very many.

A process counts a backlog once, page by page, and then only what came since. What is compared is every
snapshot after the first; while it is made the event loop is watched.
"""

import asyncio
from collections.abc import Iterable
from contextlib import AsyncExitStack
from statistics import median
from time import perf_counter, thread_time
from typing import Final, NamedTuple

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


class _Refresh(NamedTuple):
    """One snapshot."""

    seconds: float
    """How long it took."""
    stall: float
    """For how long others waited at most, also for other processes of this machine."""
    on_loop: float
    """The longest stretch that the event loop computed for it."""


async def _compare(bench: Bench, name: str, few: Log, many: Log) -> Figures:
    pace, rounds = bench.pace, list[list[tuple[_Refresh, _Refresh]]]()
    async with LogStore(few) as small, LogStore(many) as large:
        with bench.part(f"refresh on {name}", pace.rounds + 1):
            with bench.note("first"):
                await _refresh(small)
                first = await _refresh(large)
            for number in range(pace.rounds):
                with bench.note(f"round {number + 1} of {pace.rounds}"):
                    rounds.append([(await _refresh(small), await _refresh(large)) for _ in range(_TIMES)])
    every = [pair for each in rounds for pair in each]
    ratios = [_median(b for _, b in each) / _median(a for a, _ in each) for each in rounds]
    return {
        "refresh_ms_few": round(_median(a for a, _ in every) * 1000, 1),
        "refresh_ms": round(_median(b for _, b in every) * 1000, 1),
        "ratio": round(median(ratios), 2),
        "ratio_by_round": [round(ratio, 2) for ratio in ratios],
        "loop_ms": round(median(b.on_loop for _, b in every) * 1000, 1),
        "stall_ms": round(median(b.stall for _, b in every) * 1000, 1),
        "first_seconds": round(first.seconds, 2),
        "first_loop_ms": round(first.on_loop * 1000, 1),
    }


def _median(taken: Iterable[_Refresh]) -> float:
    return median(refresh.seconds for refresh in taken)


async def _refresh(store: Store) -> _Refresh:
    """Make a snapshot as a server does."""
    stall = on_loop = 0.0

    async def watch() -> None:
        nonlocal stall, on_loop
        while True:
            began, used = perf_counter(), thread_time()
            await asyncio.sleep(0)
            stall, on_loop = max(stall, perf_counter() - began), max(on_loop, thread_time() - used)

    watching, began = asyncio.create_task(watch()), perf_counter()
    await asyncio.to_thread(encode_document, await count_queues(store))
    seconds = perf_counter() - began
    watching.cancel()
    return _Refresh(seconds, stall, on_loop)
