"""A server that starts with a large spool, and a database that is up: memory, and how long it takes.

A process of its own opens the spool, whose last file a crash has left unfinished, and replays all of it.
"""

import asyncio
import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from time import perf_counter

from benchmarks.bench import Bench
from benchmarks.parts.failing import site
from benchmarks.parts.spooling import peak_mb
from benchmarks.payloads import BATCH, batches
from benchmarks.verdict import Figures
from forebay.disk import RealDisk
from forebay.model import Block
from forebay.spool.lines import SpooledBlock
from forebay.spool.spool import Spool


async def run(bench: Bench) -> Figures:
    """Measure once."""
    messages = bench.pace.spool_messages
    with bench.part("recovering", 2), bench.folder() as folder:
        with bench.note(f"spooling {messages:,} messages"):
            await _fill(folder, messages)
        async with bench.database() as dsn:
            with (
                bench.note("replaying"),
                ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool,
            ):
                growth, rate = await asyncio.wrap_future(pool.submit(_recover, dsn, folder, messages))
    return {"memory_growth_mb": growth, "recovery_per_second": rate}


async def _fill(folder: Path, messages: int) -> None:
    pushes = batches()
    async with await Spool.open(RealDisk(folder)) as spool:
        for turn in range(messages // BATCH):
            block = Block.of(pushes[turn % len(pushes)].messages)
            await spool.append([SpooledBlock("spooled", block)])
    await asyncio.to_thread(_tear_last, folder)


def _tear_last(folder: Path) -> None:
    """Leave the last file as a crash would."""
    last = max(folder.glob("failover_*.buf"))
    torn = last.rename(f"{last}.tmp")
    with torn.open("ab") as file:
        file.write(b'{"queue":"spooled","part')


def _recover(dsn: str, folder: Path, messages: int) -> tuple[float, float]:
    return asyncio.run(_replay(dsn, folder, messages))


async def _replay(dsn: str, folder: Path, messages: int) -> tuple[float, float]:
    before, start = peak_mb(), perf_counter()
    async with site(dsn, folder, batches(1)) as here:
        await here.drained()
        flushed = here.failover.status().flushed
    assert flushed == messages, f"{flushed} of {messages} were replayed"
    return round(peak_mb() - before, 1), round(messages / (perf_counter() - start))
