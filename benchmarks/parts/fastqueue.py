"""FastQueue by itself: in memory, to disk and back, with and without group commit, and its start.

Blocks are 1 KiB of JSON that snappy makes less than half as large; pushes and reads are batches of 1,000
except for the 64 pushers, who push 100 at a time from threads of their own. Rates on disk go through the file
system of the folder; syncs run beside the pushes, once a second. The backlog of 10 GiB is 20 chunks, of which
only the heads, a first block each and the last 64 MiB are written: a start must not read the rest, holes.
"""

import json
import random
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from threading import Event, Thread
from time import perf_counter, thread_time
from typing import Final

import msgspec

from benchmarks.bench import Bench
from benchmarks.verdict import Figures, Requirement
from forebay.disk import RealDisk
from forebay.fastqueue.layout import Head
from forebay.fastqueue.native import NativeLayout
from forebay.fastqueue.queue import FastQueue
from forebay.fastqueue.record import Record
from forebay.fastqueue.settings import Durability, FastQueueSettings

BLOCK_BYTES: Final = 1024
BATCH: Final = 1000
PUSHERS: Final = 64
PUSHER_BATCH: Final = 100
BACKLOG_CHUNKS: Final = 20
_CHUNK: Final = 512 << 20
_TAIL_BYTES: Final = 64 << 20
_UNLIMITED: Final = 1 << 62

REQUIREMENTS: Final = (
    Requirement("fastqueue", "memory_per_second", at_least=1_000_000),
    Requirement("fastqueue", "disk_push_mb_per_second", at_least=250),
    Requirement("fastqueue", "disk_pop_per_second", at_least=300_000),
    Requirement("fastqueue", "always_to_interval_ratio", at_least=0.6),
    Requirement("fastqueue", "start_seconds", at_most=1.0),
    Requirement("fastqueue", "start_after_crash_seconds", at_most=1.0),
)


async def run(bench: Bench) -> Figures:
    """Measure in rounds; the best round counts for rates, as a busy machine only ever takes away."""
    pace, blocks = bench.pace, make_blocks()
    count = max(20, int(300 * pace.seconds / 2)) * BATCH
    memory, pushed, popped, ratios = list[float](), list[Rate](), list[Rate](), list[float]()
    with bench.part("fastqueue", 3 * pace.rounds + 2):
        for _ in range(pace.rounds):
            with bench.folder() as folder, bench.note("memory"):
                memory.append(memory_rate(folder, blocks, count))
            with bench.folder() as folder, bench.note("disk"):
                push, pop = disk_rates(folder, blocks, count)
                pushed.append(push)
                popped.append(pop)
            with bench.folder() as folder, bench.note("64 pushers"):
                interval = pushers_rate(folder / "interval", blocks, "interval", count // 2)
                always = pushers_rate(folder / "always", blocks, "always", count // 2)
                ratios.append(round(always / interval, 3))
        with bench.folder() as folder, bench.note("start"):
            make_backlog(folder, blocks)
            clean = start_seconds(folder)
        with bench.folder() as folder, bench.note("start after a crash"):
            make_backlog(folder, blocks, crashes=True)
            crashed = start_seconds(folder)
    return {
        "memory_per_second": max(memory),
        "disk_push_mb_per_second": _megabytes(max(rate.per_second for rate in pushed)),
        "disk_push_mb_per_cpu_second": _megabytes(max(rate.per_cpu_second for rate in pushed)),
        "disk_pop_per_second": max(rate.per_second for rate in popped),
        "disk_pop_per_cpu_second": max(rate.per_cpu_second for rate in popped),
        "always_to_interval_ratio": median(ratios),
        "always_to_interval_ratio_by_round": ratios,
        "start_seconds": round(clean, 3),
        "start_after_crash_seconds": round(crashed, 3),
    }


class Rate(msgspec.Struct, frozen=True):
    """Blocks a second, and per second of the thread's processor time, which a busy machine leaves alone."""

    per_second: float
    per_cpu_second: float


class Watch:
    """Time from its making on."""

    def __init__(self) -> None:
        self._start, self._used = perf_counter(), thread_time()

    def rate(self, count: int) -> Rate:
        """The rate of so many blocks since then."""
        seconds, used = perf_counter() - self._start, thread_time() - self._used
        return Rate(round(count / seconds), round(count / used))


def _megabytes(blocks: float) -> float:
    return round(blocks * BLOCK_BYTES / 1e6, 1)


def make_blocks() -> list[bytes]:
    """A batch of blocks, always the same."""
    draw = random.Random(1)
    return [_block(draw) for _ in range(BATCH)]


def _block(draw: random.Random) -> bytes:
    text = b""
    while len(text) < BLOCK_BYTES:
        sample = {
            "name": "http_requests_total",
            "job": "api",
            "instance": f"10.0.0.{draw.randrange(255)}:9090",
        }
        text += json.dumps({**sample, "value": draw.random(), "at": draw.randrange(10**12)}).encode()
    return text[:BLOCK_BYTES]


def opened(folder: Path, durability: Durability) -> FastQueue:
    """A queue with the settings that it has by default."""
    return FastQueue.open(RealDisk(folder), FastQueueSettings(durability=durability), clock=_now)


def _now() -> int:
    return time.time_ns() // 1000


def memory_rate(folder: Path, blocks: list[bytes], count: int) -> float:
    """Blocks a second that are pushed, read and acknowledged without touching the disk."""
    queue = opened(folder, "memory")
    start = perf_counter()
    for _ in range(count // BATCH):
        queue.push(blocks)
        records = queue.read(BATCH, _UNLIMITED)
        queue.ack(range(records[0].sequence, records[-1].sequence + 1))
    rate = count / (perf_counter() - start)
    queue.close()
    return round(rate)


def disk_rates(folder: Path, blocks: list[bytes], count: int) -> tuple[Rate, Rate]:
    """Blocks to disk, and from it."""
    queue = opened(folder, "interval")
    with _upkeep(queue):
        watch = Watch()
        for _ in range(count // BATCH):
            queue.push(blocks)
        pushed = watch.rate(count)
    queue.close()
    queue = opened(folder, "interval")
    watch, popped = Watch(), 0
    while records := queue.read(BATCH, _UNLIMITED):
        queue.ack(range(records[0].sequence, records[-1].sequence + 1))
        popped += len(records)
    assert popped == count
    rate = watch.rate(popped)
    queue.close()
    return pushed, rate


def pushers_rate(folder: Path, blocks: list[bytes], durability: Durability, count: int) -> float:
    """Blocks a second of 64 pushers in threads; with `always` each waits until its push is safe."""
    queue = opened(folder, durability)
    batch, turns = blocks[:PUSHER_BATCH], count // (PUSHERS * PUSHER_BATCH)

    def push(_: int) -> None:
        for _ in range(turns):
            queue.push(batch)

    with _upkeep(queue), ThreadPoolExecutor(PUSHERS) as pool:
        start = perf_counter()
        list(pool.map(push, range(PUSHERS)))
        rate = turns * PUSHERS * PUSHER_BATCH / (perf_counter() - start)
    queue.close()
    return rate


@contextmanager
def _upkeep(queue: FastQueue) -> Iterator[None]:
    """Sync once a second, in a thread, as a server does."""
    ended = Event()

    def tick() -> None:
        while not ended.wait(0.1):
            queue.tick(time.monotonic())

    thread = Thread(target=tick)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def make_backlog(folder: Path, blocks: list[bytes], *, crashes: bool = False) -> None:
    """A folder with 10 GiB in 20 chunks; with `crashes` the last 64 MiB came after the last meta."""
    layout, disk = NativeLayout(), RealDisk(folder)
    disk.make_folder("")
    held = _CHUNK // 400  # records of a chunk, as if each took 400 bytes
    for number in range(BACKLOG_CHUNKS - 1):
        first, size = number * held, number * held * BLOCK_BYTES
        file = disk.open(layout.file_name(number), create=True)
        file.append(layout.head(Head(number, first, first, size, _CHUNK)))
        record = Record(first, _now(), blocks[0])
        file.append(layout.frame([record], layout.pack(blocks[:1]), 0, number, enough=1, room=_CHUNK).data)
        file.truncate(_CHUNK)
        file.close()
    queue = opened(folder, "interval")
    queue.push(blocks)
    queue.sync()
    while queue.disk_bytes < (BACKLOG_CHUNKS - 1) * _CHUNK + _TAIL_BYTES:
        queue.push(blocks)
    queue.flush()
    if not crashes:
        queue.sync()


def start_seconds(folder: Path) -> float:
    """How long it takes until a queue can be pushed to and its counts are known."""
    copy = RealDisk(folder)
    (folder / "lock").unlink()  # the queue that made the folder was not closed, as in a crash
    start = perf_counter()
    queue = FastQueue.open(copy, FastQueueSettings(durability="interval"), clock=_now)
    seconds = perf_counter() - start
    assert queue.entry_count > BACKLOG_CHUNKS * 1_000_000
    return seconds
