"""Pushes while everything dies now and then: the disk of the spool, the log's line, the process.

What was acknowledged is in the log once and in order, whatever happened; what was not may be there, once.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter, defaultdict
from contextlib import AsyncExitStack

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forebay.failover.failover import Failover
from forebay.failover.settings import FailoverSettings
from forebay.log.seam import LogAway
from forebay.log.values import Appended
from forebay.model import Block, ForebayError, Message, Unavailable, cancel, mint
from forebay.store.store import LogStore
from tests.disks import CrashError, SimulatedDisk
from tests.unit.failover.outage import Mode, OutageLog

SETTINGS = FailoverSettings(
    attempt_seconds=0.2, flush_seconds=0.002, file_seconds_max=0.004, events_per_file=8, reserve_bytes=0,
    batch_events_max=5,
)  # fmt: skip
MODES: tuple[Mode, ...] = ("there", "there", "away", "hung", "deaf", "read-only")
PRODUCERS = 3
ROUNDS = 5
DEADLINE_SECONDS = 60.0


class World:
    """What is left when a process dies: the disk, the log, and what its clients know."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.disk = SimulatedDisk(seed)
        self.log = OutageLog()
        self.log.seconds = self.chance.choice((0.0, 0.001, 0.005))
        self.acknowledged: dict[str, list[bytes]] = defaultdict(list)
        self.counts: Counter[str] = Counter()

    def producer(self, name: str, push: Push) -> Producer:
        return Producer(self, name, push)


class Push:
    """How the clients of one process push."""

    def __init__(self, failover: Failover, store: LogStore | None) -> None:
        self._failover = failover
        self._store = store

    async def __call__(self, block: Block) -> Appended:
        store = self._store
        write = None if store is None else (lambda: store.append("orders", block))
        return await self._failover.push("orders", block, write)


class Producer:
    """Pushes numbered messages of one partition, each again until it is acknowledged."""

    def __init__(self, world: World, name: str, push: Push) -> None:
        self._world = world
        self._name = name
        self._push = push

    async def run(self, pushes: int) -> None:
        for _ in range(pushes):
            size = self._world.chance.randint(1, 4)
            begin = self._world.counts[self._name]
            self._world.counts[self._name] += size
            payloads = [b"%b-%d" % (self._name.encode(), n) for n in range(begin, begin + size)]
            block = Block.of([Message(payload, self._name) for payload in payloads], id=mint())
            try:
                await self._push(block)
            except Unavailable:
                continue
            self._world.acknowledged[self._name] += payloads


async def live(world: World) -> None:
    """One process, from start to death."""
    failover = await Failover.open(world.disk, SETTINGS)
    await failover.__aenter__()
    store = LogStore(failover.guard(world.log.as_log))
    try:
        opened: LogStore | None = await store.__aenter__()
    except ForebayError:
        opened = None
    if world.chance.random() < 0.5:
        world.disk.crash_at = world.disk.steps + world.chance.randint(1, 40)
    push = Push(failover, opened)
    tasks = [
        asyncio.create_task(world.producer(f"p{n}", push).run(world.chance.randint(1, 20)))
        for n in range(PRODUCERS)
    ]
    try:
        while not all(task.done() for task in tasks):
            await asyncio.sleep(0.003)
            world.log.mode = world.chance.choice(MODES)
            if world.disk.crash_at is not None and world.disk.steps >= world.disk.crash_at:
                break
        await asyncio.sleep(world.chance.choice((0, 0.01)))
    finally:
        await die(world, failover, opened, tasks)


async def die(
    world: World, failover: Failover, store: LogStore | None, tasks: list[asyncio.Task[None]]
) -> None:
    """Kill -9: nothing is closed, nothing more is written. Its connections to the log are gone, too."""
    world.disk.crash_at = 0
    world.log.hang_up()
    own = () if store is None else (store._ticker, store._watcher)
    await cancel(*tasks, *failover._tasks, *own)
    world.disk = world.disk.after_crash()
    world.log.mode = "there"


async def drain(world: World) -> None:
    """A last process, that nothing happens to."""
    async with await Failover.open(world.disk, SETTINGS) as failover:
        world.log.mode = "there"
        async with asyncio.timeout(DEADLINE_SECONDS), await opened(failover, world.log):
            while failover.status().pending or not failover.health.is_healthy:  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(0.002)


async def opened(failover: Failover, log: OutageLog) -> AsyncExitStack:
    """A store that is open. On a machine that stalls, a log that is there may seem away: open it again."""
    while True:
        try:
            async with AsyncExitStack() as stack:
                await stack.enter_async_context(LogStore(failover.guard(log.as_log)))
                return stack.pop_all()
        except LogAway:
            await asyncio.sleep(0.002)


async def check(world: World) -> None:
    found: dict[str, list[bytes]] = defaultdict(list)
    queue = await world.log.log.create_queue("orders")
    for stored in await world.log.log.read(queue, messages=10**9):
        for message in stored.decode():
            found[message.partition].append(message.payload)
    for name, payloads in found.items():
        assert len(set(payloads)) == len(payloads), f"{name}: something is there twice"
        numbers = [int(payload.partition(b"-")[2]) for payload in payloads]
        assert max(numbers) < world.counts[name], f"{name}: something was invented"
    for name, acknowledged in world.acknowledged.items():
        known = set(acknowledged)
        kept = [payload for payload in found[name] if payload in known]
        assert kept == acknowledged, f"{name}: something acknowledged was lost, or overtook something"


async def simulate(seed: int) -> None:
    asyncio.get_running_loop().set_exception_handler(lambda _loop, _context: None)
    world = World(seed)
    await world.log.log.create_queue("orders")
    for _ in range(world.chance.randint(1, ROUNDS)):
        try:
            await live(world)
        except CrashError:
            world.disk = world.disk.after_crash()
    await drain(world)
    await check(world)


@pytest.mark.slow
@given(seed=st.integers(0, 1 << 32))
@settings(max_examples=12, deadline=None)
def test_what_is_acknowledged_arrives_once_and_in_order_whatever_dies(seed: int) -> None:
    asyncio.run(simulate(seed))
