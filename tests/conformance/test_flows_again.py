"""Flows that are counted again: what a process remembers of a backlog never shows in its answers."""

from __future__ import annotations

import random

import pytest

from forebay.log import flow_stretches
from forebay.log.seam import Log
from forebay.log.values import Append, Claim, Group, Position, Queue, Room
from forebay.model import Flow, Message
from tests.conformance.rigs import Rig
from tests.conformance.steps import defer, finish

SECOND = 1_000_000
FLOWS = [Flow(name) for name in "abc"] + [Flow()]


@pytest.fixture
def short_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remember a backlog of some blocks, too."""
    monkeypatch.setattr(flow_stretches, "PAGE_BLOCKS", 4)
    monkeypatch.setattr(flow_stretches, "STRETCH_BLOCKS", 2)
    monkeypatch.setattr(flow_stretches, "STRETCHES_MIN", 4)
    monkeypatch.setattr(flow_stretches, "STRETCHES_MAX", 8)


class History:
    """What two processes do to one queue, at random."""

    def __init__(self, rig: Rig, logs: list[Log], queue: Queue, group: Group, rng: random.Random) -> None:
        self.rig, self.logs, self.queue, self.group, self.rng = rig, logs, queue, group, rng
        self.claims: list[Claim] = []

    @property
    def log(self) -> Log:
        """One of the processes."""
        return self.rng.choice(self.logs)

    async def push(self) -> None:
        for _ in range(self.rng.choice((1, 1, 12))):
            flows = self.rng.choices(FLOWS, k=self.rng.randint(1, 4))
            late = self.rng.random() < 0.1
            partition = f"p{self.rng.randrange(3)}" if self.queue.settings.ordered else ""
            start = self.rig.clock.now() + 5 * SECOND if late else None
            messages = [Message(b"x", partition, None, {"flow": flow.name}, start) for flow in flows]
            await self.log.commit([Append.of(self.queue, messages)])

    async def claim(self) -> None:
        room = Room(self.rng.randint(1, 15))
        self.claims.extend((await self.log.claim(self.group, "owner", room)).claims)

    async def settle(self) -> None:
        for claim in self.rng.sample(self.claims, min(3, len(self.claims))):
            self.claims.remove(claim)
            if self.rng.random() < 0.5:
                await finish(self.log, claim)
            else:
                await defer(self.log, claim, self.rig.clock.now() + self.rng.randint(0, 2) * SECOND)

    async def give_back(self) -> None:
        await self.log.retire("owner")
        self.claims.clear()

    async def seek(self) -> None:
        stats = (await self.log.stats(numbers=[self.queue.number])).queues[0]
        await self.log.seek(self.group, Position(self.rng.randint(stats.floor, stats.next)))
        self.claims.clear()

    async def wait(self) -> None:
        self.rig.clock.advance(seconds=self.rng.choice((0.5, 3.0)))
        await self.log.trim()

    async def step(self) -> None:
        verbs = [self.push, self.claim, self.settle, self.give_back, self.seek, self.wait]
        await self.rng.choices(verbs, [6, 4, 3, 1, 1, 2])[0]()


@pytest.mark.usefixtures("short_pages")
@pytest.mark.parametrize("ordered", [False, True], ids=["plain", "ordered"])
async def test_every_process_counts_as_one_that_has_just_begun(
    durable_rig: Rig, rng: random.Random, *, ordered: bool
) -> None:
    settings = {"ordered": ordered, "keep_seconds": 1.0, "expire_seconds": 20.0}
    queue = await durable_rig.log.create_queue("orders", settings)
    group = await durable_rig.log.create_group(queue, "workers")
    async with durable_rig.beside() as other:
        history = History(durable_rig, [durable_rig.log, other], queue, group, rng)
        for _ in range(25):
            for _ in range(rng.randint(1, 6)):
                await history.step()
                await durable_rig.log.flows(group)
            async with durable_rig.beside() as fresh:
                expected = await fresh.flows(group)
            assert await durable_rig.log.flows(group) == expected
            assert await other.flows(group) == expected


@pytest.mark.usefixtures("short_pages")
async def test_a_backlog_that_was_lost_is_not_remembered(durable_rig: Rig) -> None:
    queue = await durable_rig.log.create_queue("orders")
    group = await durable_rig.log.create_group(queue, "workers")
    messages = [Message(b"x", headers={"flow": "a"})]
    for _ in range(20):
        await durable_rig.log.commit([Append.of(queue, messages)])
    assert [count.count for count in await durable_rig.log.flows(group)] == [20]
    await durable_rig.log.delete_queue("orders")
    queue = await durable_rig.log.create_queue("orders")
    group = await durable_rig.log.create_group(queue, "workers")
    assert await durable_rig.log.flows(group) == []
    await durable_rig.log.commit([Append.of(queue, messages)])
    assert [count.count for count in await durable_rig.log.flows(group)] == [1]
