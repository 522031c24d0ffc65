"""Producers that push to a server over HTTP, whatever becomes of it, and write down what they were told.

Each has partitions of its own, in every queue, and pushes one push after the other. Most bring an id and are
repeated under it until they are answered, or given up; those without one are tried once. What was given
up may be in the log or not.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count
from time import monotonic
from typing import Any, Final

import aiohttp
import msgspec

from forebay.log.postgres import PostgresLog
from forebay.log.seam import Log
from forebay.model import format_id, mint, sequence_of
from forebay.store.store import LogStore
from tests.history import Pushed, check_log

QUEUES: Final[dict[str, dict[str, object]]] = {"plain": {}, "ordered": {"ordered": True}}
"""Those that are there before; `FRESH` is made by the first push to it."""
FRESH: Final = "fresh"
AWAY: Final = frozenset({503, 507})
_CREATED: Final = 201
_PAUSE_SECONDS: Final = 0.02
_TIMEOUT: Final = aiohttp.ClientTimeout(total=60)


class _Receipt(msgspec.Struct):
    durable: str
    results: list[dict[str, Any]]


_receipt: Final = msgspec.json.Decoder(_Receipt)


@dataclass(frozen=True, slots=True)
class Try:
    """One request: when it was sent, when it was answered, and how."""

    begun: float
    answered: float
    status: int
    """0 without an answer."""
    durable: str = ""
    """Where it is, if it was accepted."""

    @property
    def seconds(self) -> float:
        """How long it took."""
        return self.answered - self.begun


class Producers:
    """All producers of a test; `pushes` is what they know, `tries` how they came to know it."""

    def __init__(
        self,
        port: int,
        rng: random.Random,
        *,
        producers: int = 5,
        partitions: int = 2,
        give_up: float = 0.1,
        pause_seconds: float = 0.01,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self.pushes: list[Pushed] = []
        self.tries: list[Try] = []
        self.counts: dict[str, int] = {"log": 0, "spool": 0}
        """Pushes that were acknowledged, by where they were then."""
        self._url = f"http://127.0.0.1:{port}/v1/queues"
        self._rng = rng
        self._producers = producers
        self._partitions = partitions
        self._give_up = give_up
        self._pause_seconds = pause_seconds
        self._clock = clock
        self._names = count(1)
        self._stopping = False
        self._moved = asyncio.Condition()
        self._running: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to push."""
        self._running = asyncio.create_task(self._run())

    async def stop(self) -> None:
        """Let each finish its push, and end."""
        self._stopping = True
        assert self._running is not None
        await self._running

    async def until(self, reached: Callable[[], bool], what: str, seconds: float = 30) -> None:
        """Wait until something holds, which is looked at after each answer."""
        assert self._running is not None
        try:
            async with asyncio.timeout(seconds), self._moved:
                await self._moved.wait_for(lambda: reached() or self._failed())
        except TimeoutError:
            last = [(t.status, t.durable, round(t.seconds, 3)) for t in self.tries[-5:]]
            raise AssertionError(f"not within {seconds} s: {what}; {self.counts}, last {last}") from None
        if self._failed():
            await self._running

    async def more(self, durable: str, pushes: int) -> None:
        """Wait for so many more acknowledged pushes that are there."""
        goal = self.counts[durable] + pushes
        await self.until(lambda: self.counts[durable] >= goal, f"{pushes} more pushes in the {durable}")

    async def some(self, pushes: int) -> None:
        """Wait for so many more acknowledged pushes, wherever they are."""
        goal = sum(self.counts.values()) + pushes
        await self.until(lambda: sum(self.counts.values()) >= goal, f"{pushes} more pushes")

    def _failed(self) -> bool:
        return self._running is not None and self._running.done()

    async def _run(self) -> None:
        connector = aiohttp.TCPConnector(limit=0)
        async with (
            aiohttp.ClientSession(connector=connector, timeout=_TIMEOUT) as session,
            asyncio.TaskGroup() as tasks,
        ):
            for number in range(self._producers):
                tasks.create_task(self._produce(session, number))

    async def _produce(self, session: aiohttp.ClientSession, number: int) -> None:
        mine = [f"p{number}.{n}" for n in range(self._partitions)]
        while not self._stopping:
            queue = self._rng.choice([*QUEUES, FRESH])
            width = 1 if queue == "ordered" else self._rng.choice((1, 1, 2))
            partitions = self._rng.sample(mine, min(width, len(mine)))
            parts = [(p, self._new_names(number)) for p in partitions]
            accepted = await self._push(session, queue, parts)
            self.pushes += [Pushed(f"{queue}/{p}", names, accepted) for p, names in parts]
            await asyncio.sleep(self._rng.uniform(0, 2 * self._pause_seconds))

    def _new_names(self, number: int) -> tuple[str, ...]:
        return tuple(f"{number}.{next(self._names)}" for _ in range(self._rng.choice((1, 1, 2, 5))))

    async def _push(
        self, session: aiohttp.ClientSession, queue: str, parts: Sequence[tuple[str, tuple[str, ...]]]
    ) -> bool:
        """Push until it is answered or given up; whether it was accepted."""
        items = [{"payload": name, "partition": partition} for partition, names in parts for name in names]
        key = format_id(mint()) if self._rng.random() < 0.7 else None
        while True:
            tried = await self._try(session, queue, items, key)
            self.tries.append(tried)
            if tried.durable:
                self.counts[tried.durable] += 1
            async with self._moved:
                self._moved.notify_all()
            if tried.durable:
                return True
            if key is None or self._rng.random() < self._give_up:
                return False
            await asyncio.sleep(_PAUSE_SECONDS)

    async def _try(
        self, session: aiohttp.ClientSession, queue: str, items: list[dict[str, str]], key: str | None
    ) -> Try:
        headers = {} if key is None else {"Idempotency-Key": key}
        begun = self._clock()
        try:
            async with session.post(f"{self._url}/{queue}/messages", json=items, headers=headers) as answer:
                body = await answer.read()
        except (aiohttp.ClientError, OSError):
            return Try(begun, self._clock(), 0)
        if answer.status != _CREATED:
            assert answer.status in AWAY, f"{answer.status}: {body[:500]!r}"
            return Try(begun, self._clock(), answer.status)
        receipt = _receipt.decode(body)
        assert len(receipt.results) == len(items)
        assert all((result["id"] is None) == (receipt.durable == "spool") for result in receipt.results)
        return Try(begun, self._clock(), _CREATED, receipt.durable)


async def prepare(dsn: str) -> None:
    """Make the queues, with a group."""
    async with LogStore(PostgresLog(dsn)) as store:
        for name, settings in QUEUES.items():
            await store.create_queue(name, dict(settings))


async def log_lines(log: Log) -> dict[str, list[str]]:
    """Give what a log has, in its order, by queue and partition."""
    found: dict[str, list[str]] = {}
    for queue in await log.queues():
        following = 1
        while blocks := await log.read(queue, following):
            for stored in blocks:
                block = stored.decode()
                for i, payload in enumerate(block.payloads):
                    line = found.setdefault(f"{queue.name}/{block.partition(i)}", [])
                    line.append(msgspec.json.decode(payload, type=str))
            following = sequence_of(blocks[-1].last) + 1
    return found


async def problems_of(pushes: Sequence[Pushed], dsn: str) -> list[str]:
    """Hold the log against what producers were told."""
    async with PostgresLog(dsn) as log:
        found = await log_lines(log)
        stats = await log.stats()
    differences = [group.difference for queue in stats.queues for group in queue.groups]
    return check_log(pushes, found, differences=differences)
