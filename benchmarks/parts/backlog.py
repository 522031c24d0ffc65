"""Append, claim and settle with a small and with a large backlog, on logs that are otherwise alike.

The two logs take turns, fifty blocks at a time, and each time as many are finished as were
appended, so the backlogs keep their size. The operations are on blocks of 100 messages of 200 bytes.
The large backlog is 10,000,000 messages: 2,000,000 in 20,000 blocks of 100, of which those that are
claimed have messages of 200 bytes and the rest of 16, then 8,000,000 of 16 bytes in 800 blocks of
10,000.
"""

import asyncio
import gc
import os
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from resource import RUSAGE_SELF, getrusage
from statistics import median
from time import perf_counter
from typing import Final, TypeVar

import msgspec

from benchmarks.bench import Bench, Pace, checkpoint
from benchmarks.blocks import BlockQueue
from benchmarks.payloads import BATCH, PUSHERS, Batch, batches
from benchmarks.verdict import Figures
from forebay.log.postgres import PostgresLog
from forebay.log.seam import Log
from forebay.log.sqlite import SqliteLog
from forebay.log.values import Append, Claim, Queue, Room
from forebay.model import Block, SystemClock, mint

T = TypeVar("T")
Times = dict[str, float]
"""Seconds spent on each verb."""

VERBS: Final = ("append", "claim", "settle")
STEP_BLOCKS: Final = 50
BIG_BLOCK: Final = 10_000
SMALL_PAYLOAD: Final = 16
ONE_BLOCK: Final = Room(messages=BATCH)
_FILL_AT_ONCE: Final = 100
_MB: Final = 1 << 20


class Filling(msgspec.Struct, frozen=True):
    """The blocks of a backlog, in their order: of 100 real messages, of 100 small ones, of 10,000."""

    real: int
    small: int
    big: int

    @classmethod
    def of(cls, messages: int, claimed_blocks: int) -> "Filling":
        """Plan a backlog; a fifth of a large one is in blocks of 100."""
        is_large = messages > 10 * BIG_BLOCK
        hundreds = (messages // 5 if is_large else messages) // BATCH
        real = min(hundreds, claimed_blocks)
        return cls(real, hundreds - real, (messages - hundreds * BATCH) // BIG_BLOCK)

    def messages(self) -> int:
        """How many messages that makes."""
        return (self.real + self.small) * BATCH + self.big * BIG_BLOCK

    def blocks(self, pushes: Sequence[Batch]) -> Iterator[Block]:
        """Make the blocks, one after the other."""
        tiny = [b"%0*d" % (SMALL_PAYLOAD, number) for number in range(BIG_BLOCK)]
        for turn in range(self.real):
            yield Block.of(pushes[turn % len(pushes)].messages)
        for payloads, count in ((tiny[:BATCH], self.small), (tiny, self.big)):
            for _ in range(count):
                yield Block(mint(), SystemClock().now(), payloads, [""])


class Backlog:
    """A queue with so much pending, and the time that each verb took on it so far."""

    def __init__(self, log: Log, messages: int, pushes: Sequence[Batch]) -> None:
        self._log = log
        self._messages = messages
        self._pushes = pushes
        self._queue: BlockQueue | None = None

    async def fill(self, claimed_blocks: int) -> float:
        """Make the queue and fill it; how many seconds that took."""
        self._queue = await BlockQueue.make(self._log, "backlog", self._pushes)
        queue = await self._log.queue("backlog")
        filling = Filling.of(self._messages, claimed_blocks)
        assert filling.messages() == self._messages
        start = perf_counter()
        for appends in _chunks(filling.blocks(self._pushes), queue):
            await self._log.commit(appends)
        return perf_counter() - start

    async def step(self, times: Times) -> None:
        """Append fifty blocks, claim fifty one by one, settle them; add what each verb took."""
        assert self._queue is not None
        queue, claims = self._queue, list[Claim]()
        start = perf_counter()
        await _share(range(STEP_BLOCKS), lambda turn: queue.push(0, turn))
        appended = perf_counter()
        for _ in range(STEP_BLOCKS):
            claims.extend(await queue.claim(ONE_BLOCK))
        claimed = perf_counter()
        assert [claim.count for claim in claims] == [BATCH] * STEP_BLOCKS
        settling = perf_counter()
        await _share(claims, queue.settle)
        settled = perf_counter()
        spent = (appended - start, claimed - appended, settled - settling)
        for verb, seconds in zip(VERBS, spent, strict=True):
            times[verb] = times.get(verb, 0.0) + seconds

    async def check(self) -> None:
        """See that as much is pending as at the beginning."""
        ((group,),) = [queue.groups for queue in (await self._log.stats()).queues]
        assert group.ready == self._messages, f"{group.ready} messages are pending"


async def run(bench: Bench) -> Figures:
    """Measure both logs."""
    pace = bench.pace
    with bench.part("backlog", 2 * (2 + pace.backlog_rounds)):
        return {**await _run_sqlite(bench), **await _run_postgres(bench)}


async def _run_sqlite(bench: Bench) -> dict[str, bool | float | str | list[float]]:
    with bench.folder() as folder:
        async with SqliteLog(folder / "small.db") as small, SqliteLog(folder / "large.db") as large:
            return await _compare(bench, "sqlite", small, large)


async def _run_postgres(bench: Bench) -> dict[str, bool | float | str | list[float]]:
    async with AsyncExitStack() as stack:
        addresses = [await stack.enter_async_context(bench.database()) for _ in range(2)]
        small, large = [await stack.enter_async_context(PostgresLog(dsn)) for dsn in addresses]
        return await _compare(bench, "postgres", small, large, lambda: checkpoint(addresses[0]))
