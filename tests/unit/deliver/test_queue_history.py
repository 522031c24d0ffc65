"""Random histories of a send queue: limits hold, nothing acknowledged vanishes, nothing is out twice."""

import asyncio
import random

import pytest

from forebay.deliver.entry import Entry
from forebay.model import ForebayError, Full
from tests.unit.deliver.queues import QueueRig, a_queue

STEPS = 400


class History:
    """What was promised, what is out, and what was settled."""

    def __init__(self, rig: QueueRig, draw: random.Random) -> None:
        self.rig = rig
        self.draw = draw
        self.acknowledged: set[bytes] = set()
        self.refused: set[bytes] = set()
        self.settled: list[bytes] = []
        self.out: list[Entry] = []
        self.pushes: set[asyncio.Task[None]] = set()
        self.number = 0

    async def push(self) -> None:
        self.number += 1
        name = b"%d" % self.number
        data = name + b"." * self.draw.choice((0, 5, 40))
        self.pushes.add(asyncio.create_task(self._push(name, data)))
        await asyncio.sleep(0)

    async def _push(self, name: bytes, data: bytes) -> None:
        try:
            await self.rig.queue.push(data)
            self.acknowledged.add(name)
        except ForebayError:
            self.refused.add(name)

    async def take(self) -> None:
        entry = self.rig.queue.take_now()
        if entry is not None:
            assert all(entry.sequence != other.sequence for other in self.out), "an entry is out twice"
            self.out.append(entry)

    async def settle(self) -> None:
        if self.out:
            entry = self.out.pop(self.draw.randrange(len(self.out)))
            self.settled.append(entry.data.rstrip(b"."))
            self.rig.queue.done(entry)

    async def retry(self) -> None:
        if self.out:
            self.rig.queue.retry(self.out.pop(), self.draw.choice((0.0, 0.001)))

    async def release(self) -> None:
        if self.out:
            self.rig.queue.release(self.out.pop())

    async def turn(self) -> None:
        await self.rig.queue._next_round()

    async def spoil(self) -> None:
        self.rig.backing.error = Full("no space left") if self.draw.random() < 0.5 else None

    def check(self) -> None:
        room = self.rig.queue.room
        assert 0 <= room.size <= room.size_max
        assert 0 <= room.bytes_held <= room.bytes_max

    async def finish(self) -> None:
        """Deliver everything that is left."""
        self.rig.backing.error = None
        while self.out:
            await self.settle()
        while self.rig.queue.size or any(not task.done() for task in self.pushes):
            await self.take()
            await self.settle()
            await self.turn()
        await asyncio.gather(*self.pushes)


@pytest.mark.parametrize("behavior", ["drop_oldest", "drop_newest", "block"])
@pytest.mark.parametrize("order", ["none", "strict"])
async def test_random_histories_keep_the_promises(behavior: str, order: str, rng: random.Random) -> None:
    settings = {"max_size": 12, "max_bytes": 300, "inmemory_blocks": 6, "block_timeout": 0.05}
    async with a_queue(full_behavior=behavior, order=order, **settings) as rig:
        history = History(rig, rng)
        acts = [history.push] * 6 + [history.take] * 5 + [history.settle] * 3
        acts += [history.retry, history.release, history.turn, history.turn, history.spoil]
        for _ in range(STEPS):
            await rng.choice(acts)()
            history.check()
        await history.finish()
        assert rig.queue.size == rig.queue.room.bytes_held == 0
        assert len(history.settled) == len(set(history.settled)), "an entry was settled twice"
        missing = history.acknowledged - set(history.settled)
        assert len(missing) == rig.queue.dropped["oldest"]
        assert behavior == "drop_oldest" or not missing
        assert not history.refused & history.acknowledged
