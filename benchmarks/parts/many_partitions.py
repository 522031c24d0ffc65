"""The same work in an ordered queue with few partitions and in one with very many that wait.

A block of an ordered queue holds one partition, so there are as many blocks.
"""

import asyncio
from itertools import count
from statistics import median
from time import perf_counter
from typing import Any, Final

import msgspec

from benchmarks.bench import Bench
from benchmarks.parts.many_queues import FEW, Site, idle_cpu, repeat_for, serving
from benchmarks.verdict import Figures
from forebay.log.postgres import PostgresLog
from forebay.log.seam import Log
from forebay.log.sqlite import SqliteLog
from forebay.model import Block, Message
from forebay.store.store import LogStore

_STEP: Final = 2_000


class _Lanes:
    """A queue of partitions on a server, and what is measured of it."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.named: list[float] = []
        self.any: list[float] = []
        self._numbers = count()

    async def work_named(self) -> None:
        """Push to a new partition, take that one by its name and finish it."""
        name = f"new-{next(self._numbers)}"
        began = perf_counter()
        await self._push(name)
        await self._take({"count": 1, "partition": name})
        self.named.append(perf_counter() - began)

    async def work_any(self) -> None:
        """Take from whichever partition comes, finish it, and push to a new one in its place."""
        began = perf_counter()
        await self._take({"count": 1})
        await self._push(f"more-{next(self._numbers)}")
        self.any.append(perf_counter() - began)

    async def _push(self, partition: str) -> None:
        body = msgspec.json.encode([{"payload": 1, "partition": partition}])
        await self.site.ask("POST", "/v1/queues/lanes/messages", body, expected=201)

    async def _take(self, wish: dict[str, Any]) -> None:
        found = await self.site.ask("POST", "/v1/queues/lanes/take", msgspec.json.encode(wish))
        (task,) = msgspec.json.decode(found)["tasks"]
        done = {"done": [{"id": task["id"], "lease": task["lease"]}]}
        await self.site.ask("POST", "/v1/settle", msgspec.json.encode(done))


async def run_sqlite(bench: Bench) -> Figures:
    """On two SQLite files."""
    with bench.folder() as folder:
        paths = [folder / f"{name}.db" for name in ("few", "many")]
        await _fill(SqliteLog(paths[0]), FEW)
        seconds = await _fill(SqliteLog(paths[1]), bench.pace.partitions)
        few, many = (f"sqlite:///{path}" for path in paths)
        return await _compare(bench, "sqlite, partitions", few, many, seconds)


async def run_postgres(bench: Bench) -> Figures:
    """On two databases of one PostgreSQL."""
    async with bench.database() as few, bench.database() as many:
        await _fill(PostgresLog(few), FEW)
        seconds = await _fill(PostgresLog(many), bench.pace.partitions)
        return await _compare(bench, "postgres, partitions", few, many, seconds)


async def _fill(log: Log, partitions: int) -> float:
    """Push a message to each of so many partitions; the seconds that it took."""
    async with LogStore(log) as store:
        await store.create_queue("lanes", {"ordered": True})
        began = perf_counter()
        for begin in range(0, partitions, _STEP):
            some = range(begin, min(begin + _STEP, partitions))
            blocks = [Block.of([Message(b"1", f"tenant-{number}")]) for number in some]
            await asyncio.gather(*(store.append("lanes", block) for block in blocks))
        return perf_counter() - began


async def _compare(bench: Bench, name: str, few_url: str, many_url: str, fill_seconds: float) -> Figures:
    pace = bench.pace
    async with serving(bench, few_url) as one, serving(bench, many_url) as other:
        few, many = _Lanes(one), _Lanes(other)
        with bench.part(name, pace.rounds + 1):
            for number in range(pace.rounds):
                with bench.note(f"round {number + 1} of {pace.rounds}"):
                    for lanes in (few, many):
                        await repeat_for(pace.seconds / 2, lanes.work_named)
                        await repeat_for(pace.seconds / 2, lanes.work_any)
            with bench.note("idle"):
                used = await idle_cpu([one, other])
    return {
        "partitions": float(pace.partitions),
        "fill_per_second": round(pace.partitions / fill_seconds),
        "push_and_take_ms": round(median(many.named) * 1000, 2),
        "push_and_take_ratio": round(median(many.named) / median(few.named), 2),
        "take_any_ms": round(median(many.any) * 1000, 2),
        "take_any_ratio": round(median(many.any) / median(few.any), 2),
        "idle_cpu_percent": used[1],
        "idle_cpu_percent_few": used[0],
    }
