"""Workers go on with what is warm while PostgreSQL is away, and nothing that they settled comes back.

Also when the server is killed before its database is back: what they were told is in its spool then.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import suppress
from math import inf
from time import monotonic
from typing import Final

import pytest

from forebay.client import Client
from forebay.log.postgres import PostgresLog
from forebay.log.values import GroupStats
from forebay.model import LeaseLost, Unavailable
from forebay.store.store import LogStore
from forebay.store.values import Task
from tests.awake import Awake
from tests.chaos.outages import BlackHoled, Outage, Refused, Stage
from tests.chaos.spooling import errors_in, recovered, set_aside
from tests.history import Handed, History, check, told
from tests.servers import FaultProxy, ForebayServer, PostgresServer

pytestmark = [pytest.mark.chaos, pytest.mark.slow]

QUEUES: Final[dict[str, dict[str, object]]] = {
    "jobs": {"visibility_seconds": 6.0},
    "lines": {"visibility_seconds": 6.0, "ordered": True},
}
MESSAGES: Final = 120
PARTITIONS: Final = 30
DRAIN_SECONDS: Final = 45.0
CALL_SECONDS_MAX: Final = 4.0
EVENTS: Final = 4
KILLS: Final = 0.4
"""In so many outages the server is killed."""
HOW: Final = ("done", "done", "done", "retry", "bury", "release", "keep")


@pytest.fixture
async def stage(postgres_server: PostgresServer, postgres_dsn: str) -> AsyncIterator[Stage]:
    """Give a database with queues, and the way to it."""
    async with LogStore(PostgresLog(postgres_dsn)) as store:
        for name, settings in QUEUES.items():
            await store.create_queue(name, dict(settings))
    async with FaultProxy(postgres_server.port) as proxy:
        yield Stage(postgres_server, proxy, postgres_dsn)


class Worker:
    """Takes tasks of one queue and settles them, by a client; writes down what it saw."""

    def __init__(self, client: Client, queue: str, rng: random.Random) -> None:
        self.history = History()
        self._client = client
        self._queue = queue
        self._rng = rng
        self._takes = 0
        self._asked: float | None = None

    async def put(self) -> None:
        """Push what there is to do."""
        for number in range(MESSAGES):
            name, partition = f"{self._queue}-{number}", f"p{number % PARTITIONS}"
            self.history.maybe_put.add(name)
            self.history.partitions[name] = partition
            await self._client.put_task(self._queue, name.encode(), partition=partition)
            self.history.put[name] = monotonic()

    async def take(self, count: int, wait_seconds: float = 0.0) -> list[tuple[Task, Handed]]:
        """Take tasks; none where there is nobody to give any."""
        self._takes += 1
        asked = self._asked = monotonic()
        try:
            tasks = await self._client.get_task(self._queue, count, wait_seconds=wait_seconds)
        except (Unavailable, asyncio.CancelledError) as error:
            self.doubt()
            if isinstance(error, Unavailable):
                return []
            raise
        finally:
            self._asked = None
        at, seconds = monotonic(), float(str(QUEUES[self._queue]["visibility_seconds"]))
        return [
            (
                task,
                self.history.hand(
                    Handed(
                        task.data.decode(), f"{task.lease.epoch}/{task.lease.number}", at, asked + seconds,
                        task.attempts, asked, str(self._takes), task.id,
                    )
                ),
            )
            for task in tasks
        ]  # fmt: skip

    def doubt(self) -> None:
        """Whoever is asked for tasks in this moment may have handed out what nobody sees."""
        if self._asked is not None:
            self.history.doubts.append((self._asked, inf))

    async def settle(self, taken: Sequence[tuple[Task, Handed]], hows: Sequence[str] = HOW) -> None:
        """Settle each in some way, together with those that are settled in the same way."""
        by_how: dict[str, list[tuple[Task, Handed]]] = {}
        for pair in taken:
            by_how.setdefault(self._rng.choice(hows), []).append(pair)
        for how, pairs in by_how.items():
            await self._settle(how, pairs)

    async def _settle(self, how: str, pairs: Sequence[tuple[Task, Handed]]) -> None:
        calls: dict[str, Callable[[list[Task]], Awaitable[object]]] = {
            "done": self._client.done_task,
            "retry": self._client.retry_task,
            "release": self._client.release,
            "bury": lambda tasks: self._client.bury(tasks, "tired"),
        }
        if how not in calls:
            return
        begun, lost, instead = monotonic(), frozenset[int](), "lost"
        for _, handed in pairs:
            handed.settle(how, begun, inf, "unknown")  # also where this is cancelled before the answer
        try:
            await calls[how]([task for task, _ in pairs])
        except LeaseLost as error:
            lost, instead = frozenset(error.ids), "unknown" if error.in_doubt else "lost"
        except Unavailable:
            return
        for task, handed in pairs:
            handed.settle(how, begun, monotonic(), instead if task.id in lost else None)


class Shift:
    """A server with workers on two queues."""

    def __init__(self, stage: Stage, rng: random.Random) -> None:
        self.stage = stage
        self.server = ForebayServer(stage.dsn)
        self.client = Client(self.server.url, timeout_seconds=10)
        self.workers = [Worker(self.client, queue, rng) for queue in QUEUES]

    async def begin(self) -> None:
        """Push, take some, and keep them: the shelves are warm then."""
        await asyncio.to_thread(self.server.start)
        for worker in self.workers:
            await worker.put()
            assert await worker.take(6)

    async def work(self) -> float:
        """Take and settle what is warm; how long the longest call took."""
        with Awake() as awake:
            return await self._work(awake)

    async def _work(self, awake: Awake) -> float:
        longest = 0.0
        for worker in self.workers:
            for _ in range(6):
                begun = awake()
                taken = await worker.take(8)
                longest = max(longest, awake() - begun)
                assert taken, "nothing is handed out although there is something warm"
                begun = awake()
                await worker.settle(taken)
                longest = max(longest, awake() - begun)
        return longest

    async def drain(self) -> None:
        """Do all that is left."""
        try:
            async with asyncio.timeout(DRAIN_SECONDS):
                await asyncio.gather(*map(self._drain, self.workers))
        except TimeoutError:
            pytest.fail(f"not all is handed out again: {await self._groups()}\n{self.server.tail()}")

    async def _drain(self, worker: Worker) -> None:
        while True:
            taken = await worker.take(50, wait_seconds=0.2)
            await worker.settle(taken, ["done"])
            if not taken and all(g.ready + g.held + g.deferred == 0 for g in await self._groups()):
                return

    async def _groups(self) -> list[GroupStats]:
        async with PostgresLog(self.stage.direct) as log:
            return [group for queue in (await log.stats()).queues for group in queue.groups]

    def kill(self) -> None:
        """Kill the server: leases in its memory are lost."""
        self.server.kill()
        for worker in self.workers:
            worker.doubt()
            for handed in worker.history.handed:
                handed.ended = min(handed.ended, monotonic())

    async def finish(self) -> None:
        """Wait until all is in the log, do the rest, and look at what workers saw."""
        await self.drain()
        await recovered(self.server.data / "spool", self.server.tail)
        assert not set_aside(self.server.data / "spool")
        assert not errors_in(self.server.log)
        assert await asyncio.to_thread(self.server.stop) == 0
        differences = [group.difference for group in await self._groups()]
        async with LogStore(PostgresLog(self.stage.direct)) as store:
            for worker, queue in zip(self.workers, QUEUES, strict=True):
                letters = await store.dead_letters(queue, limit=MESSAGES)
                dead = [letter.message().payload.decode() for letter in letters]
                ordered = bool(QUEUES[queue].get("ordered"))
                problems = check(worker.history, dead=dead, ordered=ordered, differences=differences)
                seen = told(worker.history, problems[:20])
                assert not problems, "\n".join([f"{queue}: {len(problems)} problems", *problems[:20], *seen])


async def go_on(shift: Shift, outage: Outage, order: Sequence[str]) -> None:
    """Work through an outage, in which the server may be killed."""
    await shift.begin()
    await outage.begin(shift.stage)
    longest = await shift.work()
    print(f"the longest call took {longest:.3f} s")  # noqa: T201 - what was measured
    assert longest < CALL_SECONDS_MAX
    for step in order:
        if step == "kill":
            shift.kill()
        elif step == "start":
            await asyncio.to_thread(shift.server.start, ready=False)
        else:
            await outage.end(shift.stage)
    await shift.finish()


ORDERS: Final = [("back",), ("kill", "start", "back"), ("kill", "back", "start"), ("back", "kill", "start")]
CASES: Final = [(Refused, order) for order in ORDERS] + [(BlackHoled, order) for order in ORDERS[:2]]


@pytest.mark.parametrize(("outage", "order"), CASES, ids=[f"{c.__name__}: {', '.join(o)}" for c, o in CASES])
async def test_what_is_settled_in_an_outage_does_not_come_back(
    stage: Stage, rng: random.Random, outage: Callable[[], Outage], order: Sequence[str]
) -> None:
    shift = Shift(stage, rng)
    try:
        async with shift.client:
            await go_on(shift, outage(), order)
    finally:
        shift.server.close()


class Turmoil:
    """Workers that go on while the database comes and goes and the server is killed."""

    def __init__(self, shift: Shift, rng: random.Random) -> None:
        self._shift = shift
        self._rng = rng
        self._settled = 0
        self._moved = asyncio.Condition()

    async def run(self, events: int) -> None:
        """Let so many things happen, each after some work was done, or could not be."""
        working = [asyncio.create_task(self._work(worker)) for worker in self._shift.workers]
        try:
            for _ in range(events):
                await self._pause()
                await self._happen(working)
        finally:
            for task in working:
                task.cancel()
            await asyncio.gather(*working, return_exceptions=True)

    async def _happen(self, working: Sequence[asyncio.Task[None]]) -> None:
        stage, server = self._shift.stage, self._shift.server
        outage = self._rng.choice((Refused, BlackHoled))()
        await outage.begin(stage)
        await self._pause()
        if self._rng.random() < KILLS:
            self._shift.kill()
            await asyncio.to_thread(server.start, ready=False)
            await self._pause()
        await outage.end(stage)
        for task in working:
            assert not task.done(), task.exception()

    async def _pause(self) -> None:
        """Wait until something was settled, or a moment has shown that nothing can be."""
        goal = self._settled + self._rng.randint(1, 4)
        with suppress(TimeoutError):
            async with asyncio.timeout(self._rng.uniform(0.1, 2.5)), self._moved:
                await self._moved.wait_for(lambda: self._settled >= goal)

    async def _work(self, worker: Worker) -> None:
        while True:
            taken = await worker.take(self._rng.randint(1, 3), wait_seconds=0.1)
            await worker.settle(taken)
            async with self._moved:
                self._settled += bool(taken)
                self._moved.notify_all()
            await asyncio.sleep(self._rng.uniform(0, 0.1))


async def test_what_workers_saw_holds_while_the_database_comes_and_goes(
    stage: Stage, rng: random.Random
) -> None:
    shift = Shift(stage, rng)
    try:
        async with shift.client:
            await shift.begin()
            await Turmoil(shift, rng).run(EVENTS)
            await shift.finish()
    finally:
        shift.server.close()
