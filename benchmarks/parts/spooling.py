"""The spool by itself: 16 writers at batch 100, synced; then all of it read back; and memory while reading.

Rates are also given per second of processor time, both of the writers' loop and of the disk's thread: what
the spool takes of a core is taken from the server that it is part of. Memory is that of a process of its own,
which reads one file with everything in it.
"""

import multiprocessing
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from statistics import median
from time import perf_counter, process_time
from typing import Final

import msgspec

from benchmarks.bench import Bench
from benchmarks.drive import append_rate, turns_of, typical
from benchmarks.payloads import BATCH, Batch, batches, fresh_ids
from benchmarks.verdict import Figures
from forebay.disk import RealDisk
from forebay.model import Block, Message
from forebay.spool.lines import SpooledBlock
from forebay.spool.reader import Reader
from forebay.spool.scanning import Place
from forebay.spool.settings import SpoolSettings
from forebay.spool.spool import Spool

_KB_OF_MB: Final = 1024


class Rate(msgspec.Struct, frozen=True):
    """Events a second, and events per second of processor time."""

    per_second: float
    per_cpu_second: float


async def run(bench: Bench) -> Figures:
    """Measure in rounds, and memory once."""
    pushes, pace = batches(), bench.pace
    writing: list[Rate] = []
    reading: list[Rate] = []
    with bench.part("spooling", turns_of(2, pace.rounds) + 1):
        for number in range(pace.rounds + 1):
            with bench.folder() as folder:
                with bench.note(f"writing, round {number} of {pace.rounds}"):
                    writing.append(await write_rate(folder, pushes, pace.seconds))
                with bench.note(f"reading, round {number} of {pace.rounds}"):
                    reading.append(read_rate(folder))
        with bench.folder() as folder, bench.note(f"memory, {pace.spool_messages:,} messages"):
            await write_one_file(folder, pushes, pace.spool_messages)
            growth = reading_growth_mb(folder)
    # The first round was to warm up.
    return {
        "write_per_second": typical([rate.per_second for rate in writing[1:]]),
        "write_per_cpu_second": typical([rate.per_cpu_second for rate in writing[1:]]),
        "read_per_second": typical([rate.per_second for rate in reading[1:]]),
        "read_per_cpu_second": typical([rate.per_cpu_second for rate in reading[1:]]),
        "read_to_write_ratio": median(
            round(read.per_second / write.per_second, 3)
            for read, write in zip(reading[1:], writing[1:], strict=True)
        ),
        "read_memory_growth_mb": growth,
    }


async def write_rate(folder: Path, pushes: Sequence[Batch], seconds: float) -> Rate:
    """Append from all pushers for a time; the files stay, finished."""
    blocks = [_block(push) for push in pushes]

    async with await Spool.open(RealDisk(folder)) as spool:

        async def push(_: int, turn: int) -> None:
            await spool.append([SpooledBlock("bench", _again(blocks[turn % len(blocks)]))])

        start, used = perf_counter(), process_time()
        rate = await append_rate(push, seconds)
        return Rate(rate, rate * (perf_counter() - start) / (process_time() - used))


def read_rate(folder: Path) -> Rate:
    """Read all that there is, page by page, and keep none of it."""
    start, used = perf_counter(), process_time()
    count = _read_all(folder)
    return Rate(count / (perf_counter() - start), count / (process_time() - used))


async def write_one_file(folder: Path, pushes: Sequence[Batch], messages: int) -> None:
    """Write a file with so many messages in it, more than any has by default."""
    settings = SpoolSettings(events_per_file=messages, file_bytes_max=1 << 40, file_seconds_max=3_600.0)
    blocks = [_block(push) for push in pushes]
    async with await Spool.open(RealDisk(folder), settings) as spool:
        for turn in range(messages // BATCH):
            await spool.append([SpooledBlock("bench", _again(blocks[turn % len(blocks)]))])


def reading_growth_mb(folder: Path) -> float:
    """How much the peak of a fresh process's memory grows while it reads everything."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(_growth_mb, folder).result()


def _growth_mb(folder: Path) -> float:
    before = peak_mb()
    count = _read_all(folder)
    assert count, "there was nothing to read"
    return round(peak_mb() - before, 1)


def peak_mb() -> float:
    """The most memory that this process had. Not `ru_maxrss`: a child begins with its parent's."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    (line,) = (line for line in status.splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) / _KB_OF_MB


def _read_all(folder: Path) -> int:
    reader, count = Reader(RealDisk(folder)), 0
    for name in reader.files():
        place: Place | None = Place()
        while place is not None:
            page = reader.read(name, place)
            count += page.events
            place = page.next
    return count


def _block(push: Batch) -> Block:
    """A push as most clients make it: with transaction ids, all in one partition."""
    pairs = zip(push.payloads, fresh_ids(), strict=True)
    return Block.of([Message(payload, "north", id) for payload, id in pairs])


def _again(block: Block) -> Block:
    """The same messages in a block of its own; ids are the pushers' business, and cost the spool nothing."""
    return msgspec.structs.replace(block)
