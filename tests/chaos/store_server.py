"""A server that is killed: a store with workers and producers, which write down what they saw.

Run as `python -m tests.chaos.store_server DSN VALKEY_URL FILE NAME SEED`. Each line of the file is one JSON
value, written whole before a call (what is meant) or after it (what came of it), in CLOCK_MONOTONIC, which
all processes of a machine share. So a kill leaves at most calls whose answer nobody saw.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
from contextlib import suppress
from itertools import count
from pathlib import Path
from time import monotonic
from typing import Final

import msgspec

from forebay.log.postgres import PostgresLog
from forebay.model import LeaseLost, Message, Unavailable, mint
from forebay.store.store import LogStore
from forebay.store.values import Task
from forebay.warm.valkey import ValkeyWarm

PREFIX: Final = "chaos"
PARTITIONS: Final = 20
WORKERS: Final = 4
QUEUES: Final[dict[str, dict[str, object]]] = {
    "plain": {"visibility_seconds": 1.5, "in_memory_queue_size": 40},
    "ordered": {"visibility_seconds": 1.5, "in_memory_queue_size": 40, "ordered": True},
    "tiny": {"visibility_seconds": 1.0, "in_memory_queue_size": 3, "ordered": True},
}
ACTIONS: Final = ("done",) * 12 + ("retry",) * 3 + ("release",) * 2 + ("bury", "none", "none", "extend")


class Seen(msgspec.Struct):
    """A task as its worker saw it."""

    name: str
    id: int
    lease: str
    attempts: int
    own: bool
    """Whether its lease is in the memory of this process alone."""


class Line(msgspec.Struct, omit_defaults=True):
    """What is meant (`kind` put, take, extend or how a task is settled), or what came of it."""

    number: int
    """Of the call: the line before it and the line after it share one."""
    kind: str
    at: float
    queue: str = ""
    partition: str = ""
    names: list[str] = []
    transaction_ids: list[str | None] = []
    seconds: float = 0.0
    take: int = 0
    seen: list[Seen] = []
    lost: list[str] = []


class Diary:
    """The file of one server."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self._numbers = count(1)

    def mean(self, kind: str, **fields: object) -> int:
        """Write down what is about to be done; the number of the call."""
        number = next(self._numbers)
        self._write(Line(number, kind, monotonic(), **fields))  # type: ignore[arg-type]
        return number

    def say(self, number: int, kind: str, **fields: object) -> None:
        """Write down what came of a call."""
        self._write(Line(number, kind, monotonic(), **fields))  # type: ignore[arg-type]

    def _write(self, line: Line) -> None:
        os.write(self._file, msgspec.json.encode(line) + b"\n")


class Client:
    """Producers and workers on a store; all that they see goes to the diary."""

    def __init__(self, store: LogStore, diary: Diary, name: str, rng: random.Random) -> None:
        self.store = store
        self.diary = diary
        self.name = name
        self.rng = rng
        self.stopping = False
        self._names = count(1)

    async def produce(self, queue: str, partitions: list[str]) -> None:
        """Put small blocks, one after the other, some of them twice."""
        recent: dict[str, list[str]] = {}
        while not self.stopping:
            partition = self.rng.choice(partitions)
            names, ids = [], list[str | None]()
            for _ in range(self.rng.choice((1, 1, 2, 4))):
                names.append(f"{self.name}.{next(self._names)}")
                known = recent.setdefault(partition, [])
                if known and self.rng.random() < 0.05:
                    ids.append(self.rng.choice(known[-20:]))
                elif self.rng.random() < 0.3:
                    ids.append(f"t-{names[-1]}")
                    known.append(f"t-{names[-1]}")
                else:
                    ids.append(None)
            await self._put(queue, partition, names, ids)
            await asyncio.sleep(self.rng.random() * (0.03 if queue != "tiny" else 0.4))

    async def _put(self, queue: str, partition: str, names: list[str], ids: list[str | None]) -> None:
        block_id = mint()
        messages = [Message(n.encode(), partition, t) for n, t in zip(names, ids, strict=True)]
        fields = {"queue": queue, "partition": partition, "names": names, "transaction_ids": ids}
        for _ in range(50):
            number = self.diary.mean("put", **fields)
            try:
                await self.store.put_task(queue, *messages, id=block_id)
            except Unavailable:
                self.diary.say(number, "unknown")
                await asyncio.sleep(0.05)
                continue
            self.diary.say(number, "put")
            return

    async def work(self, worker: str) -> None:
        """Take tasks, and do to them whatever may be done."""
        while not self.stopping:
            queue = self.rng.choice(list(QUEUES))
            take, tasks = await self.take(queue, worker, self.rng.choice((1, 2, 5, 10)))
            if self.rng.random() < 0.5:
                await asyncio.sleep(self.rng.random() * 0.05)
            by_action: dict[str, list[Task]] = {}
            for task in tasks:
                by_action.setdefault(self.rng.choice(ACTIONS), []).append(task)
            for action, some in by_action.items():
                await self.act(take, action, some)

    async def take(self, queue: str, worker: str, most: int) -> tuple[int, list[Task]]:
        """Take tasks of a queue; the number of the call, and the tasks."""
        seconds = float(QUEUES[queue]["visibility_seconds"])  # type: ignore[arg-type]
        number = self.diary.mean("take", queue=queue, seconds=seconds)
        try:
            tasks = await self.store.get_task(queue, most, worker=worker, wait_seconds=0.2)
        except Unavailable:
            self.diary.say(number, "unknown")
            await asyncio.sleep(0.02)
            return number, []
        seen = [
            Seen(
                t.data.decode(), t.id, f"{t.lease.epoch}/{t.lease.number}", t.attempts,
                t.lease.epoch.startswith("m"),
            )
            for t in tasks
        ]  # fmt: skip
        self.diary.say(number, "taken", queue=queue, seen=seen)
        return number, tasks

    async def act(self, take: int, action: str, tasks: list[Task]) -> None:
        """Settle tasks in one way, or extend them and then settle them."""
        if action == "none":
            return
        names = [t.data.decode() for t in tasks]
        if action == "extend":
            # All tasks of a lease share its deadline: it can only become later.
            number = self.diary.mean("extend", take=take, names=names, seconds=2.0)
            if await self._try(number, lambda: self.store.extend(tasks, 2.0), tasks):
                await asyncio.sleep(self.rng.random() * 0.5)
                await self.act(take, "done", tasks)
            return
        number = self.diary.mean(action, take=take, names=names)
        delay = self.rng.choice((0.0, 0.0, 0.3))
        calls = {
            "done": lambda: self.store.done_task(tasks),
            "retry": lambda: self.store.retry_task(tasks, delay=delay),
            "release": lambda: self.store.release(tasks),
            "bury": lambda: self.store.bury(tasks, "tired"),
        }
        await self._try(number, calls[action], tasks)

    async def _try(self, number: int, call: object, tasks: list[Task]) -> bool:
        try:
            await call()  # type: ignore[operator]
        except LeaseLost as error:
            # The text names five at most: then nothing is certain of the others.
            text = str(error)
            named = [t.data.decode() for t in tasks if str(t.id) in text]
            self.diary.say(number, "unknown" if "..." in text else "lost", lost=named)
            return False
        except Unavailable:
            self.diary.say(number, "unknown")
            return False
        self.diary.say(number, "ok")
        return True


async def main(dsn: str, url: str, path: str, name: str, seed: str) -> None:
    """Serve until SIGTERM."""
    rng = random.Random(f"{seed}/{name}")
    warm = ValkeyWarm(url, prefix=PREFIX)
    async with LogStore(PostgresLog(dsn, retry_seconds=0.2), warm) as store:
        for queue, settings in QUEUES.items():
            await store.create_queue(queue, dict(settings))
        client = Client(store, Diary(Path(path)), name, rng)
        asyncio.get_running_loop().add_signal_handler(
            signal.SIGTERM, lambda: setattr(client, "stopping", True)
        )
        side = int(name.startswith("b"))
        mine = [f"p{n}" for n in range(PARTITIONS) if n % 2 == side]
        async with asyncio.TaskGroup() as tasks:
            for queue in QUEUES:
                tasks.create_task(client.produce(queue, mine if queue != "tiny" else mine[:2]))
            for n in range(WORKERS):
                tasks.create_task(client.work(f"{name}-w{n}"))


async def keep_on(*arguments: str) -> None:
    """Serve, also when the log can't be reached at first."""
    for _ in range(100):
        with suppress(Unavailable):
            return await main(*arguments)
        await asyncio.sleep(0.1)
    raise Unavailable("the log stays away")


if __name__ == "__main__":
    asyncio.run(keep_on(*sys.argv[1:]))
