"""A send queue on a disk that fills up, fails and crashes: what was acknowledged is there afterwards."""

import asyncio
import random

import pytest

from forebay.deliver.dead_letters import DeadLetters
from forebay.deliver.entry_store import MemoryBacking
from forebay.deliver.queue_settings import SendQueueSettings
from forebay.deliver.send_queue import SendQueue
from forebay.deliver.sizes import sizes
from forebay.deliver.storage import FastBacking, fast_settings, folder_name
from forebay.fastqueue.queue import FastQueue
from forebay.model import Full, ManualClock
from tests.disks import SimulatedDisk

SETTINGS = SendQueueSettings(chunk_size=1 << 12, block_timeout=0.02).resolve()
CLOCK = ManualClock(1_700_000_000_000_000)


def opened(disk: SimulatedDisk, settings: SendQueueSettings = SETTINGS) -> SendQueue:
    fast = FastQueue.open(disk, fast_settings(settings, memory_bytes=1 << 16), clock=CLOCK.now)
    found = sizes(settings, memory_limit=None, disk_bytes=None)
    letters = DeadLetters(MemoryBacking(CLOCK.now))
    return SendQueue(FastBacking(fast), letters, settings, found, clock=CLOCK.now)


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
