"""What was only noted is brought to the shelf in few reads, however small its blocks are."""

from __future__ import annotations

from typing import Any

from forebay.log.memory import MemoryLog
from forebay.model import ManualClock
from forebay.store.store import LogStore

BEGIN = 1_800_000_000_000_000
SLOW, FAST = {"flow": "slow"}, {"flow": "fast"}


class ReadLog(MemoryLog):
    """Counts how often it is read."""

    reads = 0

    async def read(self, *args: Any, **options: Any) -> Any:
        self.reads += 1
        return await super().read(*args, **options)


async def test_small_blocks_that_were_noted_are_read_together() -> None:
    clock = ManualClock(BEGIN)
    log = ReadLog(clock=clock)
    async with LogStore(log, clock=clock) as store:
        await store.create_queue("orders", {"in_memory_queue_size": 100})
        for _ in range(600):
            await store.put_task("orders", b"slow", headers=SLOW)
        await store.put_task("orders", *[b"fast"] * 10, headers=FAST)
        seen: list[bytes] = []
        noted = 0
        while tasks := await store.get_task("orders", 20):
            seen += [task.data for task in tasks]
            await store.done_task(tasks)
            clock.advance(seconds=1)  # so that other flows are looked for
            counts = await store.flow_stats()
            noted = max(noted, sum(flow.cold for flow in counts.flows))
        assert (seen.count(b"slow"), seen.count(b"fast")) == (600, 10)
        assert noted > 100
        assert log.reads < 60
