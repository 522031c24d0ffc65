"""Two servers on one PostgreSQL and one Valkey, through all that can happen to them, in one run.

    python -m tests.chaos.servers_race --seconds 3600 [--seed N]

Producers push over HTTP, some transaction ids twice, also across outages. Workers take and settle at either
server. Meanwhile PostgreSQL is stopped, killed, cut off from one server or both, silent, or loses answers;
Valkey is killed, emptied or silent; servers are killed, stopped in order, or frozen. Then everything is well
again, the rest is worked off, and `tests.history` judges what producers and workers saw.

Each producer stays with one server and has partitions of its own, since the order of pushes is promised for
what one server took.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from itertools import count
from math import inf
from time import monotonic
from typing import Any, Final, Literal

import aiohttp
import msgspec

from forebay.log.postgres import PostgresLog
from forebay.model import format_id, mint
from forebay.store.store import LogStore
from tests.chaos.outages import lose_answers_to_blocks
from tests.chaos.producers import log_lines
from tests.history import Handed, History, Pushed, check, check_log, told
from tests.servers import FaultProxy, ForebayServer, PostgresServer, ValkeyServer

Side = Literal["a", "b"]
SIDES: Final[tuple[Side, ...]] = ("a", "b")
VISIBILITY_SECONDS: Final = 4.0
QUEUES: Final[dict[str, dict[str, object]]] = {
    "plain": {"visibility_seconds": VISIBILITY_SECONDS, "in_memory_queue_size": 200},
    "ordered": {"visibility_seconds": VISIBILITY_SECONDS, "in_memory_queue_size": 200, "ordered": True},
}
PRODUCERS: Final = 4
PARTITIONS: Final = 3
"""Of each producer, in each queue."""
WORKERS: Final = 4
HOW: Final = ("done",) * 8 + ("retry", "release", "bury", "keep", "late")
GRACE_SECONDS: Final = 5.0
"""After a fault, servers may still find out that leases were lost to it."""
DRAIN_SECONDS: Final = 180.0
"""A limit that only messages out of reach exceed: owners are silent after 30 seconds."""
_TIMEOUT: Final = aiohttp.ClientTimeout(total=40)
_OK: Final = 200
_CREATED: Final = 201
_CONFLICT: Final = 409
_AWAY: Final = frozenset({503, 507})


class Cluster:
    """The servers, their database and their Valkey; every fault is written down with its time."""

    def __init__(
        self,
        postgres: PostgresServer,
        valkey: ValkeyServer,
        dsn: str,
        ways: dict[Side, FaultProxy],
        warm_ways: dict[Side, FaultProxy],
    ) -> None:
        self.postgres, self.valkey, self.dsn = postgres, valkey, dsn
        self.ways, self.warm_ways = ways, warm_ways
        self.servers = {side: self._server(side) for side in SIDES}
        self.faults: list[tuple[float, float]] = []
        """From when to when something was wrong."""

    def _server(self, side: Side) -> ForebayServer:
        store = self.dsn.replace(f":{self.postgres.port}/", f":{self.ways[side].port}/")
        warm = f"valkey://127.0.0.1:{self.warm_ways[side].port}/0"
        return ForebayServer(store, flags=["--warm", warm])

    async def start(self) -> None:
        """Start both servers."""
        for server in self.servers.values():
            await asyncio.to_thread(server.start)

    def heal(self) -> None:
        """End what is wrong with the ways."""
        for proxy in (*self.ways.values(), *self.warm_ways.values()):
            proxy.heal()

    def close(self) -> None:
        """Leave nothing behind."""
        for server in self.servers.values():
            if server.running:
                server.signal(signal.SIGCONT)
            server.close()


def warnings_of(server: ForebayServer) -> str:
    """Give the last warnings and errors of a server."""
    lines = server.log.read_text().splitlines()
    return "\n".join([line[:500] for line in lines if '"level":"info"' not in line][-15:])


Wait = Callable[[], Awaitable[None]]
"""Lets some time pass, in which work goes on."""


async def cut_off(cluster: Cluster, rng: random.Random, wait: Wait) -> None:
    """Cut one server, or both, off from the database, in one of three ways."""
    how, sides = rng.choice(("refused", "silent", "answers lost")), rng.choice((("a",), ("b",), SIDES))
    for side in sides:
        way = cluster.ways[side]
        if how == "refused":
            way.refuse()
        elif how == "silent":
            way.blackhole()
        else:
            way.on_client_bytes(lose_answers_to_blocks)
    await wait()
    for side in sides:
        cluster.ways[side].heal()


async def crash_database(cluster: Cluster, rng: random.Random, wait: Wait) -> None:
    """Stop PostgreSQL at once, or kill it, and start it again."""
    end = rng.choice((cluster.postgres.stop_immediate, cluster.postgres.kill))
    await asyncio.to_thread(end)
    await wait()
    await asyncio.to_thread(cluster.postgres.start)


async def forbid_writes(cluster: Cluster, _rng: random.Random, wait: Wait) -> None:
    """Let PostgreSQL be read, and not written."""
    cluster.postgres.allow_writes(allowed=False)
    await wait()
    cluster.postgres.allow_writes(allowed=True)


async def lose_valkey(cluster: Cluster, rng: random.Random, wait: Wait) -> None:
    """Kill Valkey, empty it, let it have no memory left, or let nobody hear from it."""
    how = rng.choice(("killed", "emptied", "silent", "full"))
    if how == "killed":
        await asyncio.to_thread(cluster.valkey.kill)
        await wait()
        await asyncio.to_thread(cluster.valkey.start)
    elif how == "emptied":
        await asyncio.to_thread(cluster.valkey.flush)
    elif how == "full":
        await asyncio.to_thread(cluster.valkey.limit_memory, 1)
        await wait()
        await asyncio.to_thread(cluster.valkey.limit_memory, 0)
    else:
        way = cluster.warm_ways[rng.choice(SIDES)]
        way.blackhole()
        await wait()
        way.heal()


async def lose_server(cluster: Cluster, rng: random.Random, wait: Wait) -> None:
    """Kill a server, stop it in order, or freeze it; it goes on afterwards."""
    how, server = rng.choice(("killed", "stopped", "frozen")), cluster.servers[rng.choice(SIDES)]
    if how == "frozen":
        server.signal(signal.SIGSTOP)
        await wait()
        server.signal(signal.SIGCONT)
        return
    await asyncio.to_thread(server.kill if how == "killed" else server.stop)
    await wait()
    await asyncio.to_thread(server.start, ready=False)


FAULTS: Final = (cut_off, crash_database, forbid_writes, lose_valkey, lose_server)


class Race:
    """Producers and workers, and what they saw: one history for each queue."""

    def __init__(self, cluster: Cluster, seed: int) -> None:
        self.cluster = cluster
        self.rng = random.Random(seed)
        self.histories = {queue: History() for queue in QUEUES}
        self.pushes: list[Pushed] = []
        self.counts: Counter[str] = Counter()
        self._session: aiohttp.ClientSession
        self._stopping = False
        self._draining = False
        self._takes = count(1)
        self._names = count(1)
        self._moved = asyncio.Condition()

    async def run(self, seconds: float) -> None:
        """Work through faults for so long, then until nothing is left."""
        await self._create_queues()
        connector = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(connector=connector, timeout=_TIMEOUT) as self._session:
            working = [asyncio.create_task(self._work(n)) for n in range(WORKERS)]
            pushing = [asyncio.create_task(self._produce(n)) for n in range(PRODUCERS)]
            try:
                await self._disturb(seconds, [*working, *pushing])
                self._stopping = True
                await asyncio.gather(*pushing)
                self._draining = True
                await self._drain(working)
            finally:
                for task in [*working, *pushing]:
                    task.cancel()
                await asyncio.gather(*working, *pushing, return_exceptions=True)

    async def problems(self) -> list[str]:
        """Give all that is wrong with what was seen."""
        found = []
        async with LogStore(PostgresLog(self.cluster.dsn)) as store:
            lines = await log_lines(store.log)
            stats = await store.log.stats()
            for queue, history in self.histories.items():
                history.losses += self.cluster.faults
                history.unnoted += self.cluster.faults
                letters = await store.dead_letters(queue, limit=100_000)
                dead = [msgspec.json.decode(letter.message().payload, type=str) for letter in letters]
                ordered = bool(QUEUES[queue].get("ordered"))
                differences = [g.difference for q in stats.queues if q.queue.name == queue for g in q.groups]
                wrong = check(history, dead=dead, ordered=ordered, differences=differences)
                found += [f"{queue}: {one}" for one in [*wrong, *told(history, wrong[:10])]]
        return found + check_log(self.pushes, lines)

    async def _create_queues(self) -> None:
        async with LogStore(PostgresLog(self.cluster.dsn)) as store:
            for name, settings in QUEUES.items():
                await store.create_queue(name, dict(settings))

    # What happens.

    async def _disturb(self, seconds: float, tasks: Sequence[asyncio.Task[None]]) -> None:
        until = monotonic() + seconds
        while monotonic() < until:
            await self._wait(30, 6.0)
            faults = self.rng.sample(FAULTS, self.rng.choice((1, 1, 1, 2)))
            begun = monotonic()
            self.counts.update(fault.__name__ for fault in faults)
            # The later one begins, and ends, while the earlier one lasts.
            await asyncio.gather(
                *(fault(self.cluster, self.rng, lambda: self._wait(15, 5.0)) for fault in faults)
            )
            self.cluster.faults.append((begun, monotonic() + GRACE_SECONDS))
            for task in tasks:
                if task.done():
                    task.result()
        self.cluster.heal()

    async def _wait(self, settled_max: int, seconds_max: float) -> None:
        """Wait until some tasks were settled, or a while has shown that none can be."""
        goal = self.counts["settled"] + self.rng.randint(1, settled_max)
        with suppress(TimeoutError):
            async with asyncio.timeout(self.rng.uniform(0.1, seconds_max)), self._moved:
                await self._moved.wait_for(lambda: self.counts["settled"] >= goal)

    async def _drain(self, working: Sequence[asyncio.Task[None]]) -> None:
        begun = monotonic()
        while left := await self._left():
            if monotonic() > begun + DRAIN_SECONDS:
                text = (
                    f"not worked off within {DRAIN_SECONDS} s: {'; '.join(left)}; so far {dict(self.counts)}"
                )
                raise AssertionError("\n".join([text, *map(warnings_of, self.cluster.servers.values())]))
            for task in working:
                if task.done():
                    task.result()
            await asyncio.sleep(0.2)
        self.counts["drain_seconds"] = round(monotonic() - begun)

    async def _left(self) -> list[str]:
        """Give what is not done yet, in the log or in a spool, as each server tells it."""
        left = []
        for side, server in self.cluster.servers.items():
            status, spool = await self._ask(server, "GET", "/v1/spool")
            if status != _OK or spool["pending"] or spool["settlements"]:
                left.append(f"{side}: spool {status} {spool}")
            status, books = await self._ask(server, "GET", "/v1/ledger")
            if status != _OK:
                left.append(f"{side}: ledger {status}")
                continue
            for group in (group for queue in books["queues"] for group in queue["groups"]):
                waiting = {
                    name: group[name] for name in ("ready", "delayed", "held", "deferred") if group[name]
                }
                if waiting:
                    left.append(f"{side}: {group['group']} {waiting}")
        return left

    # Producers.

    async def _produce(self, number: int) -> None:
        side, mine = SIDES[number % 2], [f"p{number}.{n}" for n in range(PARTITIONS)]
        used: dict[tuple[str, str], list[str]] = {}
        while not self._stopping:
            queue, partition = self.rng.choice(list(QUEUES)), self.rng.choice(mine)
            known = used.setdefault((queue, partition), [])
            names = [f"{number}.{next(self._names)}" for _ in range(self.rng.choice((1, 1, 2, 5)))]
            ids = [self._transaction_id(name, known) for name in names]
            await self._push(side, queue, partition, names, ids)
            # What the log is to have: each transaction id once.
            fresh = tuple(n for n, i in zip(names, ids, strict=True) if i is None or i == f"t-{n}")
            if fresh:
                self.pushes.append(Pushed(f"{queue}/{partition}", fresh, acknowledged=True))
            await asyncio.sleep(self.rng.uniform(0, 0.1))

    def _transaction_id(self, name: str, known: list[str]) -> str | None:
        """Give none, a new one, or one that was used before: just now, or long ago."""
        if self.rng.random() < 0.5:
            return None
        if known and self.rng.random() < 0.3:
            return self.rng.choice(known)
        known.append(f"t-{name}")
        return known[-1]

    async def _push(
        self, side: Side, queue: str, partition: str, names: Sequence[str], ids: Sequence[str | None]
    ) -> None:
        """Push until it is accepted, under one id."""
        history, key = self.histories[queue], format_id(mint())
        for name, transaction_id in zip(names, ids, strict=True):
            history.maybe_put.add(name)
            history.partitions[name] = partition
            if transaction_id is not None:
                history.transaction_ids[name] = transaction_id
        items = [
            {"payload": name, "partition": partition, **({"transaction_id": i} if i else {})}
            for name, i in zip(names, ids, strict=True)
        ]
        while True:
            path = f"/v1/queues/{queue}/messages"
            status, body = await self._ask(self.cluster.servers[side], "POST", path, items, key)
            if status == _CREATED:
                break
            assert status == 0 or status in _AWAY, f"push: {status} {body}"
            await asyncio.sleep(0.05)
        self.counts[f"pushed to the {body['durable']}"] += len(names)
        history.put.update(dict.fromkeys(names, monotonic()))

    # Workers.

    async def _work(self, number: int) -> None:
        while True:
            queue, side = self.rng.choice(list(QUEUES)), self.rng.choice(SIDES)
            taken = await self._take(side, queue, f"w{number}")
            by_how: dict[str, list[tuple[dict[str, Any], Handed]]] = {}
            for pair in taken:
                by_how.setdefault("done" if self._draining else self.rng.choice(HOW), []).append(pair)
            for how, pairs in by_how.items():
                elsewhere = self.rng.random() < 0.1
                await self._settle(SIDES[1 - SIDES.index(side)] if elsewhere else side, how, pairs)
            if not taken:
                await asyncio.sleep(0.05)

    async def _take(self, side: Side, queue: str, worker: str) -> list[tuple[dict[str, Any], Handed]]:
        history, asked, take = self.histories[queue], monotonic(), str(next(self._takes))
        count = 50 if self._draining else self.rng.choice((1, 3, 10))
        body = {"count": count, "wait_seconds": 0.2, "worker": worker}
        status, answer = await self._ask(self.cluster.servers[side], "POST", f"/v1/queues/{queue}/take", body)
        if status != _OK:
            assert status == 0 or status in _AWAY, f"take: {status} {answer}"
            history.doubts.append((asked, inf))
            return []
        at = monotonic()
        return [
            (
                task,
                history.hand(
                    Handed(
                        task["payload"], task["lease"], at, asked + VISIBILITY_SECONDS, task["attempts"],
                        asked, take, int(task["id"]),
                    )
                ),
            )
            for task in answer["tasks"]
        ]  # fmt: skip

    async def _settle(self, side: Side, how: str, pairs: Sequence[tuple[dict[str, Any], Handed]]) -> None:
        if how == "keep":
            return
        if how == "late":
            how = "done"
            await asyncio.sleep(self.rng.uniform(0.5, 1.3) * VISIBILITY_SECONDS)
        begun = monotonic()
        for _, handed in pairs:
            handed.settle(how, begun, inf, "unknown")
        body: dict[str, Any] = {"tasks": [{"id": task["id"], "lease": task["lease"]} for task, _ in pairs]}
        if how == "retry":
            body["delay_seconds"] = self.rng.choice((0, 0, 0.5))
        if how == "bury":
            body["reason"] = "tired"
        status, answer = await self._ask(self.cluster.servers[side], "POST", f"/v1/{how}", body)
        lost = {str(one["id"] if isinstance(one, dict) else one) for one in (answer or {}).get("lost", ())}
        assert status in {0, _OK, _CONFLICT} or status in _AWAY, f"{how}: {status} {answer}"
        if status not in {_OK, _CONFLICT}:
            return
        durable = (answer or {}).get("durable", "log")
        for task, handed in pairs:
            if str(task["id"]) in lost:
                handed.settle(how, begun, monotonic(), "lost")
            elif durable == "log":
                handed.settle(how, begun, monotonic())
        self.counts[f"settled in the {durable}"] += len(pairs) - len(lost)
        self.counts["lost"] += len(lost)
        async with self._moved:
            self.counts["settled"] += len(pairs)
            self._moved.notify_all()

    async def _ask(
        self, server: ForebayServer, method: str, path: str, body: object = None, key: str | None = None
    ) -> tuple[int, Any]:
        """Ask a server; status 0 where there is no answer."""
        headers = {} if key is None else {"Idempotency-Key": key}
        try:
            async with self._session.request(method, server.url + path, json=body, headers=headers) as answer:
                return answer.status, msgspec.json.decode(await answer.read())
        except (aiohttp.ClientError, OSError, TimeoutError):
            return 0, None


@asynccontextmanager
async def cluster() -> AsyncIterator[Cluster]:
    """Give two servers with a PostgreSQL and a Valkey of their own."""
    async with AsyncExitStack() as stack:
        postgres = PostgresServer("wheel-18")
        stack.callback(postgres.close)
        postgres.start()
        valkey = ValkeyServer("wheel")
        stack.callback(valkey.close)
        valkey.start()
        dsn = postgres.create_database()
        ways = {side: await stack.enter_async_context(FaultProxy(postgres.port)) for side in SIDES}
        warm_ways = {side: await stack.enter_async_context(FaultProxy(valkey.port)) for side in SIDES}
        made = Cluster(postgres, valkey, dsn, ways, warm_ways)
        stack.callback(made.close)
        yield made


async def race(seed: int, seconds: float) -> tuple[Counter[str], list[str]]:
    """Run for so long; what was done, and what is wrong with it."""
    async with cluster() as servers:
        running = Race(servers, seed)
        await servers.start()
        await running.run(seconds)
        return running.counts, await running.problems()


def main() -> int:
    """Race as the arguments say."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    asked = parser.parse_args()
    failed = 0
    for seed in range(asked.seed, asked.seed + asked.rounds):
        counts, problems = asyncio.run(race(seed, asked.seconds))
        print(
            f"seed {seed}: {dict(counts)}; problems {len(problems)}", *problems[:40], sep="\n  ", flush=True
        )
        failed += bool(problems)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
