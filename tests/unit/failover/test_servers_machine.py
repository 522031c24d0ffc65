"""Two servers on one log and one shelf, each of which is cut off from the log now and then, against a model.

The queue is ordered. Pushes go to either server, some with a transaction id that was pushed before, also
while it is cut off; the shelf is lost now and then. Nothing is handed out before what comes before it in its
partition, whatever was retried, released, expired, spooled or replayed, at whichever server. What one server
was pushed comes to the log in that order. At the end everything is in the log once, and done.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Coroutine
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule, run_state_machine_as_test

from forebay.disk import RealDisk
from forebay.failover.failover import Failover
from forebay.log.memory import MemoryLog
from forebay.model import Block, LeaseLost, ManualClock, Message, Unavailable
from forebay.store.store import LogStore
from forebay.store.values import Task
from tests.unit.failover.outage import OutageLog
from tests.unit.failover.test_failover import QUICK, Site
from tests.unit.failover.test_several_servers import BEGIN, SharedWarm, tick

T = TypeVar("T")

QUEUE = "orders"
SERVERS = 2
STEPS = 50
VISIBILITY_SECONDS = 30.0
ROUNDS = 20
"""Rounds of upkeep within which all is handed out at the end."""
HOW = ("done", "retry", "release")

servers = st.integers(0, SERVERS - 1)
pushes = st.lists(st.sampled_from([None, None, None, "a", "b", "c"]), min_size=1, max_size=3)
"""The transaction ids of what is pushed together."""


@dataclass
class Known:
    """The model's knowledge of a message."""

    server: int
    partition: str
    transaction_id: str | None
    id: int | None = None
    """Its id, once the log has it."""
    task: Task | None = None
    """The task under which it was handed out last, until its outcome is said."""
    is_done: bool = False
    may_be_done: bool = False
    """Its outcome was spooled: it counts unless the message was handed out again before the log knew."""


class ServersMachine(RuleBasedStateMachine):
    """Drives the servers and the model side by side."""

    runner: ClassVar[asyncio.Runner]

    def __init__(self) -> None:
        super().__init__()
        self.clock = ManualClock(BEGIN)
        self.log = MemoryLog(clock=self.clock)
        self.stack = AsyncExitStack()
        self.known: dict[int, Known] = {}
        self.run(self.open())

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.runner.run(work)

    async def open(self) -> None:
        self.folder = self.stack.enter_context(tempfile.TemporaryDirectory())
        self.warm = warm = SharedWarm("shared", clock=self.clock)
        self.sites = []
        for number in range(SERVERS):
            line, disk = OutageLog(self.log), RealDisk(Path(self.folder) / str(number))
            failover = await self.stack.enter_async_context(await Failover.open(disk, QUICK))
            store = LogStore(failover.guard(line.as_log), warm, name=f"server {number}", clock=self.clock)
            await self.stack.enter_async_context(store)
            self.sites.append(Site(failover, store, line))
        chosen = {"ordered": True, "visibility_seconds": VISIBILITY_SECONDS, "retries_max": 1_000}
        more = {"in_memory_queue_size": 8, "dedupe_seconds": 1e6}
        self.queue = await self.sites[0].store.create_queue(QUEUE, {**chosen, **more})
        for site in self.sites:
            assert await site.store.get_task(QUEUE) == []  # from now on it knows the queue

    # Rules

    @rule(server=servers, partition=st.sampled_from("pppq"), ids=pushes)
    def push(self, server: int, partition: str, ids: list[str | None]) -> None:
        site, begin = self.sites[server], len(self.known)
        chosen = dict(enumerate(ids, begin))
        messages = [Message(b"%d" % number, partition, id) for number, id in chosen.items()]
        self.run(site.push_block(Block.of(messages, created_at=self.clock.now()), QUEUE))
        self.known.update((number, Known(server, partition, id)) for number, id in chosen.items())

    @rule(server=servers, count=st.integers(1, 6))
    def take(self, server: int, count: int) -> None:
        self.taken(server, count)

    def taken(self, server: int, count: int) -> list[Task]:
        try:
            tasks = self.run(self.sites[server].store.get_task(QUEUE, count))
        except Unavailable:
            return []
        self.look()
        came: set[int] = set()
        for task in tasks:
            known = self.known[int(task.data)]
            assert known.id == task.id
            assert not known.is_done, "handed out again after it was done"
            for other in self.known.values():
                if other.id is not None and other.id < task.id and other.partition == task.partition:
                    over = other.is_done or other.may_be_done
                    assert over or other.id in came, f"{task.id} was handed out before {other.id}"
            came.add(task.id)
            known.task, known.may_be_done = task, False
        return tasks

    def look(self) -> None:
        """See what the log has: each message once, and of each transaction id one."""
        found = dict[int, int]()
        for stored in self.run(self.log.read(self.queue, 1, messages=100_000, bytes=1 << 30)):
            block = stored.decode()
            for place in range(len(block)):
                number = int(block.message(place).payload)
                assert number not in found, f"{number} is in the log twice"
                found[number] = stored.first + place
        seen = set[tuple[str, str]]()
        for number, id in found.items():
            known = self.known[number]
            known.id = id
            if known.transaction_id is not None:
                assert (known.partition, known.transaction_id) not in seen, "a duplicate came to the log"
                seen.add((known.partition, known.transaction_id))

    @precondition(lambda self: any(known.task for known in self.known.values()))
    @rule(server=servers, how=st.sampled_from(HOW), first=st.booleans(), delay=st.sampled_from([0, 5]))
    def settle(self, server: int, how: str, *, first: bool, delay: int) -> None:
        out = [known for known in self.known.values() if known.task is not None]
        self.say(server, out[0 if first else -1], how, delay)

    def say(self, server: int, known: Known, how: str, delay: int = 0) -> None:
        store, task = self.sites[server].store, known.task
        assert task is not None
        known.task = None
        try:
            if how == "done":
                where = self.run(store.done_task([task]))
            elif how == "retry":
                where = self.run(store.retry_task([task], delay=delay))
            else:
                where = self.run(store.release([task]))
        except (LeaseLost, Unavailable):
            return
        known.is_done = how == "done" and where == "log"
        known.may_be_done = how == "done" and where == "spool"

    @rule(server=servers)
    def cut_off(self, server: int) -> None:
        """From now on its takes find out that the log is away, and its shelf is in doubt."""
        self.sites[server].log.mode = "away"
        self.taken(server, 1)

    @rule(server=servers)
    def connect(self, server: int) -> None:
        site = self.sites[server]
        site.log.mode = "there"
        self.run(site.until(lambda: site.failover.health.is_healthy))

    @rule()
    def lose_shelf(self) -> None:
        self.warm._shelves.clear()

    @rule(server=servers, seconds=st.sampled_from([1, 6, 6, VISIBILITY_SECONDS]))
    def upkeep(self, server: int, seconds: float) -> None:
        self.clock.advance(seconds=seconds)
        with suppress(Unavailable):
            self.run(tick(self.sites[server]))

    # The end

    def teardown(self) -> None:
        try:
            for server in range(SERVERS):
                self.connect(server)
            self.drain()
        finally:
            self.run(self.stack.aclose())

    def drain(self) -> None:
        for site in self.sites:
            self.run(site.drained())
        for _ in range(ROUNDS):
            for server in range(SERVERS):
                self.upkeep(server, VISIBILITY_SECONDS)
                while tasks := self.taken(server, 50):
                    for task in tasks:
                        self.say(server, self.known[int(task.data)], "done")
        self.look()
        there = [known for known in self.known.values() if known.id is not None]
        (group,) = self.run(self.log.stats()).queues[0].groups
        assert (group.done, group.held, group.deferred) == (len(there), 0, 0)
        kept = {(known.partition, known.transaction_id) for known in there}
        for number, known in self.known.items():
            is_repeated = known.transaction_id is not None and (known.partition, known.transaction_id) in kept
            assert known.id is not None or is_repeated, f"{number} is lost"
        for server, partition in product(range(SERVERS), "pq"):
            pushed = [known for known in there if (known.server, known.partition) == (server, partition)]
            ids = [known.id for known in pushed if known.id is not None]
            assert ids == sorted(ids), f"pushes to server {server} have changed their order"


def test_the_order_of_a_partition_holds_whichever_server_is_cut_off() -> None:
    examples = max(1, settings().max_examples // 2)
    with asyncio.Runner() as runner:
        machine = type("Machine", (ServersMachine,), {"runner": runner})
        run_state_machine_as_test(
            machine, settings=settings(stateful_step_count=STEPS, max_examples=examples)
        )
