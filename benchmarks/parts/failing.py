"""Pushes with the database up and down, called directly; the replay; and pushes beside the replay.

One PostgreSQL is stopped and started again in every round, so the rates of a round are of the same minute.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Final

from benchmarks.bench import Bench
from benchmarks.drive import append_rate, typical
from benchmarks.payloads import BATCH, PUSHERS, Batch, batches
from benchmarks.verdict import Figures
from forebay.disk import RealDisk
from forebay.failover.failover import Failover
from forebay.log.postgres import PostgresLog
from forebay.log.values import Appended
from forebay.model import Block
from forebay.store.store import LogStore

_LOOK_SECONDS: Final = 0.005
BOUND_RATIO: Final = 2.0
BOUND_SECONDS: Final = 10.0
"""A replay beside pushes takes as long as this many replays alone, and so many seconds, at most."""


class Site:
    """A store with its failover, as a server has them."""

    def __init__(self, failover: Failover, store: LogStore, pushes: Sequence[Batch]) -> None:
        self.failover = failover
        self._store = store
        self._pushes = pushes

    async def push(self, queue: str, turn: int) -> Appended:
        """Push one batch."""
        block = Block.of(self._pushes[turn % len(self._pushes)].messages)
        return await self.failover.push(queue, block, lambda: self._store.append(queue, block))

    async def rate(self, queue: str, seconds: float) -> float:
        """Push from all pushers for a time."""
        return await append_rate(lambda _, turn: self.push(queue, turn), seconds)

    async def spool(self, queue: str, messages: int) -> None:
        """Push so many messages."""
        for begin in range(0, messages // BATCH, PUSHERS):
            await asyncio.gather(*(self.push(queue, begin + n) for n in range(PUSHERS)))

    async def recovered(self) -> None:
        """Wait until the log is back."""
        while not self.failover.health.is_healthy:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(_LOOK_SECONDS)

    async def drained(self) -> None:
        """Wait until all is in the log."""
        await self.recovered()
        while self.failover.status().pending:  # noqa: ASYNC110 - likewise
            await asyncio.sleep(_LOOK_SECONDS)


@asynccontextmanager
async def site(dsn: str, folder: Path, pushes: Sequence[Batch]) -> AsyncIterator[Site]:
    """A store on PostgreSQL, with a spool."""
    async with (
        await Failover.open(RealDisk(folder)) as failover,
        LogStore(failover.guard(PostgresLog(dsn))) as store,
    ):
        failover.announce_to(store.announce)
        for queue in ("spooled", "live"):
            await store.create_queue(queue)
        yield Site(failover, store, pushes)


async def run(bench: Bench) -> Figures:
    """Measure in rounds."""
    pace, rates = bench.pace, _Rates()
    with bench.part("failing", 4 * (pace.rounds + 1)), bench.folder() as folder:
        async with bench.database() as dsn, site(dsn, folder, batches()) as here:
            for number in range(pace.rounds + 1):
                await _round(bench, here, rates, f"round {number} of {pace.rounds}")
    return rates.figures()


class _Rates:
    """What was measured, by round; the first one was to warm up."""

    def __init__(self) -> None:
        self.up: list[float] = []
        self.down: list[float] = []
        self.replay: list[float] = []
        self.live: list[float] = []
        self.behind: list[float] = []
        self.bounds: list[float] = []
        """How long replays took beside pushes, as parts of what the documents promise."""

    def figures(self) -> Figures:
        def ratios(over: list[float]) -> list[float]:
            return [round(a / b, 3) for a, b in zip(over[1:], self.up[1:], strict=True)]

        return {
            "up_per_second": typical(self.up[1:]),
            "down_per_second": typical(self.down[1:]),
            "down_to_up_ratio": median(ratios(self.down)),
            "down_to_up_ratios": ratios(self.down),
            "replay_per_second": typical(self.replay[1:]),
            "replays_per_second": [float(round(rate)) for rate in self.replay[1:]],
            "live_beside_replay_ratio": median(ratios(self.live)),
            "live_beside_replay_ratios": ratios(self.live),
            "behind_replay_ratio": median(ratios(self.behind)),
            "replay_to_bound_ratio": max(self.bounds),
            "replay_to_bound_ratios": self.bounds,
        }


async def _round(bench: Bench, here: Site, rates: _Rates, text: str) -> None:
    seconds, messages = bench.pace.seconds, bench.pace.replay_messages
    with bench.note(f"up, {text}"):
        rates.up.append(await here.rate("live", seconds))
    with bench.note(f"down and replay, {text}"):
        await _lose(bench, here)
        rates.down.append(await here.rate("spooled", seconds))
        left = messages - here.failover.status().pending
        await here.spool("spooled", max(0, left))
        rates.replay.append(await _replay(bench, here))
    for queue, kept in (("live", rates.live), ("spooled", rates.behind)):
        with bench.note(f"pushes to {queue} beside the replay, {text}"):
            await _lose(bench, here)
            await here.spool("spooled", messages)
            await asyncio.to_thread(bench.server.start)
            start, pending = perf_counter(), here.failover.status().pending
            await here.recovered()
            kept.append(await _beside(here, queue))
            await here.drained()
            promised = BOUND_RATIO * pending / rates.replay[-1] + BOUND_SECONDS
            rates.bounds.append(round((perf_counter() - start) / promised, 3))


async def _lose(bench: Bench, here: Site) -> None:
    """Stop the database, and have it noticed."""
    await asyncio.to_thread(bench.server.stop_immediate)
    await here.push("spooled", 0)


async def _replay(bench: Bench, here: Site) -> float:
    """How quickly what is spooled comes to the log, from when the database is up again."""
    await asyncio.to_thread(bench.server.start)
    start, pending = perf_counter(), here.failover.status().pending
    await here.drained()
    return pending / (perf_counter() - start)


async def _beside(here: Site, queue: str) -> float:
    """How quickly pushes go while the spool is replayed: for as long as that takes, and no longer."""
    start, pushed = perf_counter(), 0

    async def pusher(number: int) -> None:
        nonlocal pushed
        turn = number
        while here.failover.status().pending:
            await here.push(queue, turn)
            turn += PUSHERS
            pushed += BATCH

    await asyncio.gather(*(pusher(number) for number in range(PUSHERS)))
    return pushed / (perf_counter() - start)
