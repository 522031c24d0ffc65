"""What the benchmarks of the store do: fill a queue, take and finish its tasks, wait for one."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from itertools import cycle
from pathlib import Path
from time import perf_counter
from typing import Final

from benchmarks.payloads import BATCH, PUSHERS, Batch
from forebay.log.sqlite import SqliteLog
from forebay.store.store import LogStore
from forebay.warm.valkey import ValkeyWarm

WORKERS: Final = 16
QUEUE: Final = "orders"
IDLE: Final = "idle"


@asynccontextmanager
async def opened(folder: Path, valkey_url: str | None = None) -> AsyncIterator[LogStore]:
    """Give a store on a SQLite file in a folder, with its own memory or a Valkey as warm tier."""
    warm = None if valkey_url is None else ValkeyWarm(valkey_url, prefix=folder.name)
    async with LogStore(SqliteLog(folder / "log.db"), warm) as store:
        await store.create_queue(QUEUE)
        await store.create_queue(IDLE)
        yield store


async def fill(store: LogStore, batches: Sequence[Batch], messages: int) -> None:
    """Bring the messages that wait in the queue up to a number, and some more that nobody has to wait."""
    messages += 2 * WORKERS * BATCH
    stat = (await store.get_stat()).queue_stats[1]
    turns = cycle(batches)
    left = (messages - stat.total_tasks + BATCH - 1) // BATCH

    async def push() -> None:
        nonlocal left
        while left > 0:
            left -= 1
            await store.put_task(QUEUE, *next(turns).payloads)

    await asyncio.gather(*(push() for _ in range(PUSHERS)))


async def take_rate(store: LogStore, messages: int) -> float:
    """Take and finish so many tasks, in batches; how many a second."""
    done = 0
    start = perf_counter()

    async def work() -> None:
        nonlocal done
        while done < messages:
            tasks = await store.get_task(QUEUE, BATCH, wait_seconds=1)
            await store.done_task(tasks)
            done += len(tasks)

    await asyncio.gather(*(work() for _ in range(WORKERS)))
    return done / (perf_counter() - start)


async def waits(store: LogStore, payload: bytes, count: int) -> list[float]:
    """How long one task takes from its put to a worker that waits for it, in milliseconds, ascending."""
    found = []
    for _ in range(count):
        waiting = asyncio.create_task(store.get_task(IDLE, wait_seconds=30))
        await asyncio.sleep(0.002)
        start = perf_counter()
        putting = asyncio.create_task(store.put_task(IDLE, payload))
        tasks = await waiting
        found.append(1_000 * (perf_counter() - start))
        await putting
        await store.done_task(tasks)
    return sorted(found)


def percentile(values: Sequence[float], part: float) -> float:
    """The value below which a part of ascending values lies."""
    return round(values[min(len(values) - 1, int(part * len(values)))], 3)
