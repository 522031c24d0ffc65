"""Reading goes on exactly where it was, also where the reader has to find its place again."""

import random

from tests.disks import SimulatedDisk
from tests.unit.fastqueue.queues import ALL, opened


def test_every_record_comes_once_while_memory_and_disk_take_turns() -> None:
    draw = random.Random(1)
    queue = opened(SimulatedDisk(), chunk_size=1 << 20, inmemory_blocks=16)
    expected = 0
    for _ in range(200):
        queue.push([b"x" * 100] * draw.randint(1, 60))
        for record in queue.read(draw.randint(1, 40), draw.choice([1, 500, ALL])):
            assert record.sequence == expected
            expected += 1
    queue.close()
