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
from itertools import islice
from pathlib import Path
from resource import RUSAGE_SELF, getrusage
from statistics import median
from time import perf_counter
from typing import Final, TypeVar

import msgspec

from benchmarks.bench import Bench
from benchmarks.blocks import BlockQueue
from benchmarks.payloads import BATCH, PUSHERS, Batch, batches
from benchmarks.verdict import Figure, Figures
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
    with bench.part("backlog", 2 * (2 + bench.pace.backlog_rounds)):
        with bench.folder() as folder:
            async with (
                SqliteLog(folder / "small.db") as small,
                SqliteLog(folder / "large.db") as large,
            ):
                sqlite = await _compare(bench, "sqlite", small, large)
        async with (
            bench.database() as small_dsn,
            bench.database() as large_dsn,
            PostgresLog(small_dsn) as small_log,
            PostgresLog(large_dsn) as large_log,
        ):
            postgres = await _compare(bench, "postgres", small_log, large_log)
    return {**sqlite, **postgres}


async def _compare(bench: Bench, kind: str, small: Log, large: Log) -> Figures:
    pace, pushes = bench.pace, batches()
    claimed_blocks = (pace.backlog_rounds * pace.backlog_steps + 1) * STEP_BLOCKS
    few, many = (
        Backlog(log, messages, pushes)
        for log, messages in zip((small, large), pace.backlog_messages, strict=True)
    )
    with bench.note(f"{kind}, {pace.backlog_messages[0]:,} messages"):
        await few.fill(claimed_blocks)
        await few.step({})
    memory = _resident_mb()
    with bench.note(f"{kind}, {pace.backlog_messages[1]:,} messages"):
        fill_seconds = await many.fill(claimed_blocks)
        await many.step({})
    # Before the rounds: they only fill the bounded caches, that of the small log too.
    growth = _resident_mb() - memory
    rounds = []
    for number in range(pace.backlog_rounds):
        with bench.note(f"{kind}, round {number + 1} of {pace.backlog_rounds}"):
            rounds.append(await _round(few, many, pace.backlog_steps))
    await few.check()
    await many.check()
    return {
        **_figures(kind, rounds, pace.backlog_steps * STEP_BLOCKS * BATCH),
        f"{kind}_fill_seconds": round(fill_seconds, 1),
        f"{kind}_memory_growth_mb": round(growth, 1),
        f"{kind}_memory_mb": round(_resident_mb(), 1),
    }


async def _round(few: Backlog, many: Backlog, steps: int) -> tuple[Times, Times]:
    """Let the two take turns, each step in another order."""
    few_times, many_times = Times(), Times()
    gc.collect()
    for number in range(steps):
        pairs = [(few, few_times), (many, many_times)]
        for backlog, times in pairs if number % 2 else reversed(pairs):
            await backlog.step(times)
    return few_times, many_times


def _figures(kind: str, rounds: Sequence[tuple[Times, Times]], messages: int) -> dict[str, Figure]:
    figures: dict[str, Figure] = {}
    for verb in VERBS:
        by_round = [round(few[verb] / many[verb], 3) for few, many in rounds]
        for which, size in enumerate(("small", "large")):
            seconds = median(times[which][verb] for times in rounds)
            figures[f"{kind}_{verb}_{size}_per_second"] = float(round(messages / seconds))
        figures[f"{kind}_{verb}_ratio"] = median(by_round)
        figures[f"{kind}_{verb}_ratio_by_round"] = by_round
    return figures


async def _share(items: Iterable[T], job: Callable[[T], Awaitable[None]]) -> None:
    """Do the job for each item, as many at a time as there are pushers."""
    waiting = iter(items)

    async def worker() -> None:
        for item in waiting:
            await job(item)

    await asyncio.gather(*(worker() for _ in range(PUSHERS)))


def _chunks(blocks: Iterator[Block], queue: Queue) -> Iterator[list[Append]]:
    while chunk := [Append.of(queue, block) for block in islice(blocks, _FILL_AT_ONCE)]:
        yield chunk


def _resident_mb() -> float:
    """How much memory this process has now; its peak where the system does not say."""
    gc.collect()
    statm = Path("/proc/self/statm")
    if statm.exists():
        return int(statm.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / _MB
    return getrusage(RUSAGE_SELF).ru_maxrss * 1024 / _MB
