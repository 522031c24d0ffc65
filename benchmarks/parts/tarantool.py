"""The log in Tarantool, synced at every commit: appends, and the whole cycle. Nobody to race with.

16 pushers with batches of 100. Every turn has a new server, since all that it holds is in its memory.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from typing import Final

from benchmarks.bench import Bench
from benchmarks.blocks import BlockQueue
from benchmarks.drive import append_rate, cycle_rate, interleave, turns_of, typical
from benchmarks.payloads import batches
from benchmarks.verdict import Figures
from forebay.log.tarantool import TarantoolLog
from tests.servers import TarantoolServer

_SETTINGS: Final = {"memtx_memory": str(4 << 30)}


async def run(bench: Bench) -> Figures:
    """Measure, in rounds."""
    pushes, numbers, pace = batches(), count(1), bench.pace

    @asynccontextmanager
    async def fresh_queue(*, with_ids: bool = False) -> AsyncIterator[BlockQueue]:
        with TarantoolServer(settings=_SETTINGS) as server:
            async with TarantoolLog(server.url) as log:
                yield await BlockQueue.make(log, f"q{next(numbers)}", pushes, with_ids=with_ids)

    async def blocks(seconds: float) -> float:
        async with fresh_queue() as queue:
            return await append_rate(queue.push, seconds)

    async def blocks_with_ids(seconds: float) -> float:
        async with fresh_queue(with_ids=True) as queue:
            return await append_rate(queue.push, seconds)

    async def blocks_cycle(seconds: float) -> float:
        async with fresh_queue() as queue:
            return await cycle_rate(queue.push, queue.finish, 1, seconds)

    contestants = {"blocks": blocks, "blocks_with_ids": blocks_with_ids, "blocks_cycle": blocks_cycle}
    with bench.part("tarantool", turns_of(len(contestants), pace.rounds)):
        rates = await interleave(contestants, pace.rounds, pace.seconds, bench.note)
    return {f"{name}_per_second": typical(rates[name]) for name in rates}
