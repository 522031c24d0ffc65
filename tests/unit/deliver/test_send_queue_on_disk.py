"""A send queue on a disk that fills up, fails and crashes: what was acknowledged is there afterwards."""

import asyncio
import errno
import logging
import random
import threading
from collections.abc import Callable

import msgspec
import pytest

from forebay.deliver import send_queue
from forebay.deliver.attempt_file import ATTEMPTS, AttemptFile
from forebay.deliver.dead_letters import DeadLetters
from forebay.deliver.entry_store import MemoryBacking
from forebay.deliver.queue_settings import SendQueueSettings
from forebay.deliver.send_queue import SendQueue
from forebay.deliver.sizes import sizes
from forebay.deliver.storage import FastBacking, fast_settings, folder_name
from forebay.fastqueue.queue import FastQueue
from forebay.fastqueue.record import Record
from forebay.model import Full, ManualClock, Unavailable
from tests.disks import ReadFault, SimulatedDisk

SETTINGS = SendQueueSettings(chunk_size=1 << 12, block_timeout=0.02).resolve()
CLOCK = ManualClock(1_700_000_000_000_000)


def opened(disk: SimulatedDisk, settings: SendQueueSettings = SETTINGS) -> SendQueue:
    fast = FastQueue.open(disk, fast_settings(settings, memory_bytes=1 << 16), clock=CLOCK.now)
    found = sizes(settings, memory_limit=None, disk_bytes=None)
    letters = DeadLetters(MemoryBacking(CLOCK.now))
    return SendQueue(FastBacking(fast), letters, settings, found, clock=CLOCK.now, noted=AttemptFile(disk))


async def everything(queue: SendQueue) -> list[bytes]:
    found = []
    while queue.size:
        entry = await queue.take()
        found.append(entry.data)
        queue.done(entry)
    return found


async def test_a_restart_goes_on_where_the_last_run_was() -> None:
    disk = SimulatedDisk()
    queue = opened(disk)
    for number in range(50):
        await queue.push(b"%d" % number)
    entries = [await queue.take() for _ in range(20)]
    for entry in entries[5:15]:  # out of order: the first ones aren't settled
        queue.done(entry)
    await queue.close()
    queue = opened(disk)
    assert queue.size == 40
    left = [number for number in range(50) if not 5 <= number < 15]
    assert await everything(queue) == [b"%d" % number for number in left]
    await queue.close()


async def test_a_full_disk_refuses_loses_nothing_and_is_used_again_when_there_is_space() -> None:
    disk = SimulatedDisk(capacity=20_000)
    queue = opened(disk)
    draw = random.Random(1)
    kept: list[bytes] = []

    async def push_on() -> None:
        while True:
            data = draw.randbytes(500)
            await queue.push(data)
            kept.append(data)

    with pytest.raises(Full):
        await push_on()
    assert queue.problem is not None
    assert queue.disk_full
    disk.capacity = 1 << 30
    await queue.push(b"again")
    assert not queue.problem
    assert sorted(await everything(queue)) == sorted([*kept, b"again"])
    await queue.close()


async def test_a_crash_loses_nothing_that_was_acknowledged(seed: int) -> None:
    draw = random.Random(seed)
    for _ in range(30):
        disk = SimulatedDisk(draw.randrange(1 << 30))
        queue = opened(disk)
        acknowledged: list[bytes] = []

        async def push(data: bytes, queue: SendQueue = queue, done: list[bytes] = acknowledged) -> None:
            await queue.push(data)
            done.append(data)

        pushes = [asyncio.create_task(push(draw.randbytes(8))) for _ in range(draw.randint(1, 40))]
        await asyncio.wait(pushes, return_when=asyncio.FIRST_COMPLETED)
        survivor = disk.after_crash()
        promised = list(acknowledged)
        after = opened(survivor)
        found = await everything(after)
        assert set(promised) <= set(found)
        assert len(found) == len(set(found))
        await after.close()
        await asyncio.gather(*pushes)
        await queue.close()


def test_the_folder_of_a_destination_is_readable_and_its_own() -> None:
    first = folder_name("http://127.0.0.1:9090/api/v1/write")
    second = folder_name("http://127.0.0.1:9090/api/v1-write")
    assert first.startswith("127.0.0.1-9090-api-v1-write-")
    assert first != second
    assert "/" not in folder_name("https://../../etc/passwd")
    assert len(folder_name("http://" + "x" * 300)) < 100


async def full_and_unreadable(fault: ReadFault, behavior: str = "drop_oldest") -> SendQueue:
    """A queue with room for no more entries than it has, after a restart on a disk that can't be read."""
    disk = SimulatedDisk()
    chosen = msgspec.structs.replace(SETTINGS, chunk_size=1 << 14)
    queue = opened(disk, chosen)
    draw = random.Random(1)
    for number in range(4):
        await queue.push(b"%d" % number + draw.randbytes(4999))
    await queue.close()
    for name in disk.list():
        if name.endswith(".chunk"):
            disk.fail_reads(name, fault)
    settings = msgspec.structs.replace(chosen, max_size=4, block_timeout=5.0, full_behavior=behavior)
    queue = opened(disk, settings)
    fault.times = None  # before its first round, which needs a turn of the loop
    return queue


async def test_a_full_queue_on_a_disk_that_cant_be_read_refuses_and_says_so_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    fault = ReadFault(0, 1 << 30, error=errno.EMFILE, times=0)
    queue = await full_and_unreadable(fault)
    for _ in range(5):
        with pytest.raises(Unavailable, match="oldest entry can't be dropped"):
            await queue.push(b"new")
    assert queue.dropped["disk_failed"] == 5
    (problem,) = queue.problems
    assert "doesn't give entries back" in problem
    assert len([line for line in caplog.messages if "disk failed" in line]) == 1
    fault.times = 0
    assert len(await everything(queue)) == 4
    assert queue.problems == []
    assert "the queue's disk works again (reading)" in caplog.messages
    await queue.close()


async def test_a_sector_that_cant_be_read_costs_its_entries_and_the_rest_is_sent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(send_queue, "_TICK_SECONDS", 0.001)
    monkeypatch.setattr(send_queue, "_READ_AGAIN_SECONDS", 0.001)
    queue = await full_and_unreadable(ReadFault(600, 601, times=0), "block")
    for first in (b"1", b"2"):
        entry = await queue.take()
        assert entry.data[:1] == first
        queue.done(entry)
    for number in range(4):  # the last two wait for the room of those that are lost
        await queue.push(b"%d" % number)
    assert queue.dropped["corrupt"] == 2
    assert queue.backing_counts().corruptions == 2
    await queue.close()


async def test_a_disk_that_doesnt_answer_keeps_no_pusher_of_a_full_queue_for_ever() -> None:
    backing = HungBacking(CLOCK.now)
    backing.push([b"old"])
    settings = msgspec.structs.replace(SETTINGS, max_size=1)
    found = sizes(settings, memory_limit=None, disk_bytes=None)
    queue = SendQueue(backing, DeadLetters(MemoryBacking(CLOCK.now)), settings, found, clock=CLOCK.now)
    with pytest.raises(Full):
        await queue.push(b"new")
    assert queue.dropped == {"timeout": 1}
    backing.answers.set()
    await queue.close()


class HungBacking(MemoryBacking):
    """Reads nothing before it is told to."""

    def __init__(self, clock: Callable[[], int]) -> None:
        super().__init__(clock)
        self.answers = threading.Event()

    def read(self, count: int, bytes_max: int) -> list[Record]:
        self.answers.wait()
        return super().read(count, bytes_max)


async def fail(queue: SendQueue, times: int) -> None:
    """Fail the next entry so often."""
    for _ in range(times):
        queue.retry(await queue.take(), 0.0)


async def test_attempts_survive_a_restart_also_of_entries_that_werent_read_again() -> None:
    disk = SimulatedDisk()
    small = SendQueueSettings(chunk_size=1 << 12, inmemory_blocks=4).resolve()
    queue = opened(disk, small)
    for number in range(10):
        await queue.push(b"%d" % number)
    await fail(queue, 3)
    await queue.close()
    queue = opened(disk, small)  # a run in which nothing fails keeps what it knows
    await queue.close()
    queue = opened(disk, small)
    entries = []
    while queue.size:
        entries.append(await queue.take())
        queue.done(entries[-1])
    assert [entry.attempts for entry in entries] == [3] + [0] * 9
    await queue.close()
    queue = opened(disk, small)
    await queue.push(b"new")
    assert (await queue.take()).attempts == 0
    await queue.close()
    assert AttemptFile(disk).load() == {}


async def test_attempts_are_noted_while_entries_fail_and_never_otherwise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(send_queue, "_NOTE_SECONDS", 0.0)
    disk = SimulatedDisk()
    queue = opened(disk)
    await queue.push(b"a")
    await queue._next_round()
    assert ATTEMPTS not in disk.list()
    await fail(queue, 2)
    await queue._next_round()
    await queue._next_round()
    assert AttemptFile(disk).load() == {0: 2}
    crashed = opened(disk.after_crash())
    assert (await crashed.take()).data == b"a"
    await crashed.close()
    await queue.close()


@pytest.mark.parametrize("damage", [b"", b"\xff", b"\x81\x00"], ids=["empty", "garbage", "torn"])
async def test_a_damaged_file_of_attempts_costs_only_the_attempts(damage: bytes) -> None:
    disk = SimulatedDisk()
    queue = opened(disk)
    await queue.push(b"a")
    await fail(queue, 2)
    await queue.close()
    disk.put(ATTEMPTS, damage)
    queue = opened(disk)
    entry = await queue.take()
    assert (entry.data, entry.attempts) == (b"a", 0)
    queue.release(entry)
    await queue.close()
