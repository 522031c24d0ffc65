"""Workers move messages from one queue to another by transactions, while leases expire under their hands.

Time leaps ahead of whatever is going on, for all of them: so a store may have to say that it is unavailable,
and is asked again, as by any client.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from contextlib import suppress
from typing import Any

import pytest

from forebay.model import Block, LeaseLost, Message, Unavailable, mint
from forebay.store.store import LogStore
from forebay.store.values import Retry, Task
from forebay.warm.seam import WarmAway
from forebay.warm.valkey import ValkeyWarm
from tests.conformance.steps import stored
from tests.conformance.store.rigs import StoreRig

MESSAGES, PARTITIONS, WORKERS = 60, 4, 4
STUTTERS = 0.01
KINDS = pytest.mark.parametrize("ordered", [False, True], ids=["unordered", "ordered"])


class Movers:
    """Workers of one run, on several servers; the seed decides what goes wrong."""

    def __init__(self, rig: StoreRig, stores: list[LogStore], seed: int) -> None:
        self._rig = rig
        self._stores = stores
        self._chance = random.Random(seed)
        self.lost = 0

    async def run(self) -> None:
        """Return once everything was moved."""
        async with asyncio.timeout(60), asyncio.TaskGroup() as group:
            for i in range(WORKERS):
                group.create_task(self._work(self._stores[i % len(self._stores)]))

    async def _work(self, store: LogStore) -> None:
        while await self._left(store):
            with suppress(Unavailable):
                await self._take_and_move(store)

    async def _take_and_move(self, store: LogStore) -> None:
        tasks = await store.get_task("a", self._chance.randint(1, 7), visibility_seconds=10)
        if not tasks:
            await self._pass_time(store, 1)  # what was retried, or has expired, comes back
            return
        if not self.lost or self._chance.random() < 0.2:
            self._rig.clock.advance(seconds=11)  # under everybody's hands
            if self._chance.random() < 0.5:
                await store.tick()
        await self._move(store, tasks)

    async def _pass_time(self, store: LogStore, seconds: float) -> None:
        self._rig.clock.advance(seconds=seconds)
        await store.tick()

    async def _left(self, store: LogStore) -> int:
        queue = next(q for q in (await store.ledger()).queues if q.queue.name == "a")
        return queue.groups[0].accepted - queue.groups[0].done

    async def _move(self, store: LogStore, tasks: list[Task]) -> None:
        cut = self._chance.randint(1, len(tasks))
        call: dict[str, Any] = {
            "done": tasks[:cut],
            "retry": [Retry(task, self._rig.clock.now()) for task in tasks[cut:]],
            "id": mint(),
        }
        puts = [("b", block) for block in blocks_of(tasks[:cut])]
        try:
            await self._transact(store, puts, call)
            if self._chance.random() < 0.3:
                await self._transact(store, puts, call)
        except LeaseLost:
            self.lost += 1

    async def _transact(self, store: LogStore, puts: list[tuple[str, Block]], call: dict[str, Any]) -> None:
        while True:
            try:
                await store.transact(puts, **call)
            except Unavailable:
                with suppress(Unavailable):
                    await self._pass_time(store, 0.5)
            else:
                return


def blocks_of(tasks: list[Task]) -> list[Block]:
    """What is passed on of tasks, a block for each partition."""
    partitions = dict.fromkeys(task.partition for task in tasks)
    return [
        Block.of([Message(task.data, task.partition) for task in tasks if task.partition == partition])
        for partition in partitions
    ]


@KINDS
@pytest.mark.parametrize("seed", range(3))
async def test_every_message_is_moved_exactly_once(
    embedded_rig: StoreRig, seed: int, *, ordered: bool
) -> None:
    await move(embedded_rig, seed, ordered=ordered)


@KINDS
@pytest.mark.parametrize("seed", range(3))
async def test_every_message_is_moved_exactly_once_though_the_shared_tier_stutters(
    shared_rig: StoreRig, seed: int, monkeypatch: pytest.MonkeyPatch, *, ordered: bool
) -> None:
    chance, run = random.Random(seed), ValkeyWarm._run

    async def stutter(warm: ValkeyWarm, verb: str, *arguments: Any) -> Any:
        if chance.random() < STUTTERS:
            raise WarmAway(f"{verb} was not heard")
        found = await run(warm, verb, *arguments)
        await asyncio.sleep(0)
        if chance.random() < STUTTERS:
            raise WarmAway(f"the answer to {verb} was lost")
        return found

    monkeypatch.setattr(ValkeyWarm, "_run", stutter)
    await move(shared_rig, seed, ordered=ordered)


async def move(rig: StoreRig, seed: int, *, ordered: bool) -> None:
    """Move everything, and look at what has come, in which order, and at the books."""
    await rig.open(in_memory_queue_size=20)
    store = rig.embedded
    for name in "ab":
        await store.create_queue(name, {"ordered": ordered})
    sent = [Message(b"%d" % i, f"p{i % PARTITIONS}") for i in range(MESSAGES)]
    for begin in range(PARTITIONS):
        await store.put_task("a", *sent[begin::PARTITIONS])
    movers = Movers(rig, list(rig._open), seed)
    await movers.run()
    moved = await stored(store.log, await store.queue("b"))
    assert Counter(moved) == Counter(message.payload.decode() for message in sent)
    assert movers.lost, "nothing went wrong"
    if ordered:
        for i in range(PARTITIONS):
            own = [int(text) for text in moved if int(text) % PARTITIONS == i]
            assert own == sorted(own)
    assert all(group.difference == 0 for queue in (await store.ledger()).queues for group in queue.groups)
