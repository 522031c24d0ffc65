"""The demonstration: tasks go through a real store while you watch, and the ledger adds up.

Several producers put tasks while several workers take, read and finish them, on any log and warm tier. It
can be run again and again on the same store, and finishes what a stopped run has left.
"""

import asyncio
import random
import time

import msgspec
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn
from rich.progress import TimeRemainingColumn as TimeLeftColumn

from forebay.store.seam import Store

__all__ = ["DemoResult", "run_demo"]

QUEUE = "demo"
BATCH = 100
PRODUCERS = 16
WORKERS = 16


class DemoResult(msgspec.Struct, frozen=True):
    """What a demonstration did, in messages per second."""

    messages: int
    seconds: float
    put_per_second: float
    done_per_second: float


async def run_demo(store: Store, messages: int, console: Console) -> DemoResult:
    """Put, take and finish `messages` tasks; progress bars go to `console`."""
    queue = await store.create_queue(QUEUE)
    left = (await store.get_stat()).queue_stats[queue.number].total_tasks
    began = time.perf_counter()
    with Progress(
        TextColumn("{task.description:>8}"), BarColumn(), MofNCompleteColumn(), TimeLeftColumn(),
        TextColumn("{task.fields[rate]}"), console=console,
    ) as progress:  # fmt: skip
        put = progress.add_task("put", total=messages, rate="")
        done = progress.add_task("done", total=messages + left, rate="")
        putting = asyncio.create_task(_put_all(store, messages, progress, put))
        put_seconds, _ = await asyncio.gather(putting, _work_all(store, messages + left, progress, done))
    seconds = time.perf_counter() - began
    return DemoResult(messages, seconds, messages / put_seconds, (messages + left) / seconds)


async def _put_all(store: Store, messages: int, progress: Progress, bar: TaskID) -> float:
    began = time.perf_counter()
    sizes = [BATCH] * (messages // BATCH) + ([messages % BATCH] if messages % BATCH else [])

    async def produce() -> None:
        while sizes:
            size = sizes.pop()
            await store.put_task(QUEUE, *[_payload() for _ in range(size)])
            _advance(progress, bar, size, began)

    await asyncio.gather(*(produce() for _ in range(PRODUCERS)))
    return time.perf_counter() - began


async def _work_all(store: Store, messages: int, progress: Progress, bar: TaskID) -> None:
    began, left = time.perf_counter(), messages

    async def work() -> None:
        nonlocal left
        while left > 0:
            tasks = await store.get_task(QUEUE, BATCH, wait_seconds=0.1)
            for task in tasks:
                msgspec.json.decode(task.data)  # a worker would do something with it
            await store.done_task(tasks)
            left -= len(tasks)
            _advance(progress, bar, len(tasks), began)

    await asyncio.gather(*(work() for _ in range(WORKERS)))


def _advance(progress: Progress, bar: TaskID, count: int, began: float) -> None:
    progress.update(bar, advance=count)
    done = progress.tasks[bar].completed
    progress.update(bar, rate=f"{done / (time.perf_counter() - began):,.0f} messages/s")


def _payload() -> bytes:
    """About 200 bytes of JSON, of the kind that queues carry."""
    return (
        b'{"order":%d,"customer":"customer-%06d","items":[{"sku":"%08x","quantity":%d}],'
        b'"placed":"2026-11-15T20:32:18Z","note":"%032x%032x"}'
    ) % (
        random.getrandbits(40),
        random.randrange(1_000_000),  # noqa: S311
        random.getrandbits(32),
        random.randrange(1, 10),  # noqa: S311
        random.getrandbits(128),
        random.getrandbits(128),
    )
