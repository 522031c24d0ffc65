"""Many threads push and one reads, on a real disk: nothing is lost, and each thread's order is kept."""

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from forebay.disk import Disk, File, RealDisk
from forebay.fastqueue.queue import FastQueue
from forebay.fastqueue.record import Record
from forebay.fastqueue.settings import Durability, FastQueueSettings
from forebay.model import Unavailable

THREADS, PUSHES = 16, 25
ALL = 1 << 40


class CountingFile:
    """A file whose syncs are counted, and fail when they are told to."""

    def __init__(self, file: File, disk: "CountingDisk") -> None:
        self._file = file
        self._disk = disk
        self.append, self.read_at, self.size = file.append, file.read_at, file.size
        self.truncate, self.close = file.truncate, file.close

    def sync(self) -> None:
        with self._disk.lock_of_counts:
            self._disk.syncs += 1
            fails = self._disk.syncs in self._disk.failing
        if fails:
            raise OSError(5, os.strerror(5))
        self._file.sync()


class CountingDisk(RealDisk):
    """A disk with such files."""

    def __init__(self, folder: Path, failing: range = range(0)) -> None:
        super().__init__(folder)
        self.lock_of_counts = threading.Lock()
        self.syncs = 0
        self.failing = failing

    def open(self, name: str, *, create: bool = False) -> File:
        return CountingFile(super().open(name, create=create), self)


class HeldDisk(CountingDisk):
    """Its first sync lasts until every thread has written its block."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.appends = 0
        self.all_written = threading.Event()

    def open(self, name: str, *, create: bool = False) -> File:
        return HeldFile(RealDisk.open(self, name, create=create), self)


class HeldFile(CountingFile):
    """A file of such a disk."""

    def __init__(self, file: File, disk: HeldDisk) -> None:
        super().__init__(file, disk)
        self._held = disk
        self._append = file.append
        self.append = self.append_one

    def append_one(self, data: bytes) -> None:
        self._append(data)
        self._held.appends += 1
        if self._held.appends == THREADS + 1:  # a block of each, and the head of the chunk
            self._held.all_written.set()

    def sync(self) -> None:
        if not self._held.syncs:
            assert self._held.all_written.wait(60)
        super().sync()


def opened(disk: Disk, durability: Durability) -> FastQueue:
    settings = FastQueueSettings(durability=durability, chunk_size=4096, inmemory_blocks=50)
    return FastQueue.open(disk, settings, clock=lambda: 1)


def push_from_threads(queue: FastQueue) -> list[bytes]:
    """The blocks whose pushes returned."""
    start = threading.Barrier(THREADS)

    def push(thread: int) -> list[bytes]:
        start.wait()
        taken = []
        for number in range(PUSHES):
            block = b"%02d:%02d" % (thread, number)
            try:
                queue.push([block])
            except Unavailable:
                continue
            taken.append(block)
        return taken

    with ThreadPoolExecutor(THREADS) as pool:
        return [block for taken in pool.map(push, range(THREADS)) for block in taken]


def read_all(queue: FastQueue) -> list[bytes]:
    found: list[bytes] = []
    while records := queue.read(7, ALL):
        queue.ack([record.sequence for record in records])
        found += [record.data for record in records]
    return found


@pytest.mark.parametrize("durability", ["always", "interval"])
def test_every_push_of_every_thread_comes_once_and_in_order(tmp_path: Path, durability: Durability) -> None:
    disk = CountingDisk(tmp_path)
    queue = opened(disk, durability)
    ended = threading.Event()
    found: list[bytes] = []

    def read() -> None:
        while not ended.is_set():
            found.extend(read_all(queue))
            queue.sync()

    reader = threading.Thread(target=read)
    reader.start()
    taken = push_from_threads(queue)
    ended.set()
    reader.join()
    found += read_all(queue)
    queue.close()
    assert len(taken) == THREADS * PUSHES
    assert sorted(found) == sorted(taken)
    for thread in range(THREADS):
        mine = [block for block in found if block.startswith(b"%02d:" % thread)]
        assert mine == sorted(mine)


def test_pushes_that_wait_together_share_a_sync(tmp_path: Path) -> None:
    queue = opened(disk := HeldDisk(tmp_path), "always")
    with ThreadPoolExecutor(THREADS) as pool:
        numbers = list(pool.map(lambda thread: queue.push([b"%d" % thread]), range(THREADS)))
    assert sorted(number.start for number in numbers) == list(range(THREADS))
    assert disk.syncs == 2, "the first one's, and one for all who came meanwhile"
    queue.close()


@pytest.mark.parametrize("failing", [range(5, 6), range(5, 9), range(10, 100, 3)])
def test_failed_syncs_lose_nothing_that_was_acknowledged(tmp_path: Path, failing: range) -> None:
    disk = CountingDisk(tmp_path, failing)
    queue = opened(disk, "always")
    taken = push_from_threads(queue)
    assert queue.entry_count == len(taken)
    disk.failing = range(0)
    queue.push([b"last"])
    queue.close()
    fresh = opened(RealDisk(tmp_path), "always")
    assert sorted(read_all(fresh)) == sorted([*taken, b"last"])
    fresh.close()


def test_nothing_is_handed_out_before_it_is_safe(tmp_path: Path) -> None:
    class PeekingFile(CountingFile):
        def sync(self) -> None:
            seen.append(queue.read(9, ALL))
            super().sync()

    class PeekingDisk(CountingDisk):
        def open(self, name: str, *, create: bool = False) -> File:
            return PeekingFile(RealDisk.open(self, name, create=create), self)

    seen: list[list[Record]] = []
    queue = opened(PeekingDisk(tmp_path), "always")
    queue.push([b"block"])
    assert seen == [[]]
    assert [record.data for record in queue.read(9, ALL)] == [b"block"]
