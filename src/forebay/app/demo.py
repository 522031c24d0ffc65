"""The demonstration: messages go through a real log while you watch, and the ledger adds up.

Several pushers append blocks while one consumer claims, decodes and settles them, on any log. It can
be run again and again on the same log.
"""

import asyncio
import random
import time
from collections.abc import Sequence

import msgspec
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn
from rich.progress import TimeRemainingColumn as TimeLeftColumn

from forebay.log.seam import Log
from forebay.log.values import Append, Claim, Group, Queue, Room
from forebay.model import Block, Message

__all__ = ["DemoResult", "run_demo"]

QUEUE = "demo"
GROUP = "workers"
BATCH = 100
PUSHERS = 16


class DemoResult(msgspec.Struct, frozen=True):
    """What a demonstration did, in messages per second."""

    messages: int
    seconds: float
    pushed_per_second: float
    settled_per_second: float


async def run_demo(log: Log, messages: int, console: Console) -> DemoResult:
    """Push, claim and settle `messages` messages; a progress bar goes to `console`."""
    queue = await log.create_queue(QUEUE)
    group = await log.create_group(queue, GROUP)
    left = await _left_over(log, group)
    began = time.perf_counter()
    with Progress(
        TextColumn("{task.description:>8}"), BarColumn(), MofNCompleteColumn(), TimeLeftColumn(),
        TextColumn("{task.fields[rate]}"), console=console,
    ) as progress:  # fmt: skip
        pushed = progress.add_task("pushed", total=messages, rate="")
        settled = progress.add_task("settled", total=messages + left, rate="")
        pushing = asyncio.create_task(_push_all(log, queue, messages, progress, pushed))
        settling = _settle_all(log, group, messages + left, progress, settled)
        pushed_seconds, _ = await asyncio.gather(pushing, settling)
    seconds = time.perf_counter() - began
    return DemoResult(messages, seconds, messages / pushed_seconds, (messages + left) / seconds)


async def _left_over(log: Log, group: Group) -> int:
    """How many messages an earlier run that was stopped has left behind; its claims are given back."""
    await log.retire(GROUP)
    for queue in (await log.stats()).queues:
        for stats in queue.groups:
            if stats.group.number == group.number:
                return stats.ready + stats.held + stats.deferred
    return 0


async def _push_all(log: Log, queue: Queue, messages: int, progress: Progress, bar: TaskID) -> float:
    began = time.perf_counter()
    sizes = [BATCH] * (messages // BATCH) + ([messages % BATCH] if messages % BATCH else [])

    async def push() -> None:
        while sizes:
            block = Block.of([Message(_payload()) for _ in range(sizes.pop())])
            await log.commit([Append.of(queue, block)])
            _advance(progress, bar, len(block), began)

    await asyncio.gather(*(push() for _ in range(PUSHERS)))
    return time.perf_counter() - began


async def _settle_all(log: Log, group: Group, messages: int, progress: Progress, bar: TaskID) -> None:
    began = time.perf_counter()
    while messages > 0:
        claims = [
            *(await log.claim(group, GROUP, Room(5_000))).claims,
            *(await log.due(group, GROUP, Room(5_000))).claims,
        ]
        if not claims:
            await asyncio.sleep(0.001)
            continue
        done = _work(claims)
        await asyncio.gather(*(log.commit(settlements=[c.settle_all()]) for c in claims))
        messages -= done
        _advance(progress, bar, done, began)


def _work(claims: Sequence[Claim]) -> int:
    """Look at every message, as a worker would; how many there were to do."""
    for claim in claims:
        begin = claim.first - claim.block.first
        for payload in claim.block.decode().payloads[begin : begin + claim.count]:
            msgspec.json.decode(payload)
    return sum(claim.remaining() for claim in claims)


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
