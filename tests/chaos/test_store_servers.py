"""Two servers on one PostgreSQL and one Valkey, killed at random: what their clients saw must hold."""

from __future__ import annotations

import asyncio
import os
import queue
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from math import inf
from pathlib import Path
from time import monotonic

import msgspec
import pytest

from forebay.log.postgres import PostgresLog
from forebay.store.store import LogStore
from forebay.warm.valkey import ValkeyWarm
from tests.chaos.store_server import PREFIX, QUEUES, Client, Diary, Line
from tests.history import Handed, History, check
from tests.servers import (
    FaultProxy,
    PostgresServer,
    ValkeyServer,
    Verdict,
)

pytestmark = [pytest.mark.chaos, pytest.mark.slow]

ROOT = Path(__file__).parents[2]
DRAIN_SECONDS = 30
LOST_SHARE = 0.006
"""Of what is sent to the log, so much is lost with its connection, or has its answer lost."""
EVENTS = ("server a", "server b", "server a", "server b", "both", "valkey", "valkey", "flush")


class Cluster:
    """The processes under test. Every kill is written down with its time."""

    def __init__(self, dsn: str, valkey: ValkeyServer, folder: Path, seed: int) -> None:
        self.dsn = dsn
        self.valkey = valkey
        self.folder = folder
        self.seed = seed
        self.losses: list[tuple[float, float]] = []
        self.deaths: dict[str, float] = {}
        self._running: dict[str, tuple[str, subprocess.Popen[bytes]]] = {}
        self._starts = 0

    def start(self, side: str) -> None:
        """Start a server, as a new process with a diary of its own."""
        self._starts += 1
        name = f"{side}-{self._starts}"
        command = [
            sys.executable, "-m", "tests.chaos.store_server", self.dsn, self.valkey.url,
            str(self.folder / f"{name}.ndjson"), name, str(self.seed),
        ]  # fmt: skip
        with (self.folder / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log)
        self._running[side] = (name, process)

    def kill(self, side: str) -> None:
        """Kill a server."""
        name, process = self._running.pop(side)
        assert process.poll() is None, f"{name} ended by itself: {self.said(name)}"
        process.kill()
        process.wait()
        self.deaths[name] = monotonic()

    def said(self, name: str) -> str:
        """The last that a server said on its standard error."""
        return (self.folder / f"{name}.log").read_text()[-3000:]

    def stop(self) -> None:
        """Stop what runs in good order."""
        running, self._running = self._running, {}
        for name, process in running.values():
            assert process.poll() is None, f"{name} ended by itself: {self.said(name)}"
            self.deaths[name] = monotonic()
            process.send_signal(signal.SIGTERM)
        for name, process in running.values():
            try:
                status = process.wait(timeout=30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                pytest.fail(f"{name} doesn't stop")
            assert status in {0, -signal.SIGTERM}, f"{name} failed: {self.said(name)}"

    def end(self) -> None:
        """Leave no process behind."""
        for _, process in self._running.values():
            process.kill()
            process.wait()

    def lose(self, how: Callable[[], None]) -> None:
        """Have Valkey lose what it knows, and write down when."""
        begin = monotonic()
        how()
        self.losses.append((begin, monotonic()))


def run_schedule(cluster: Cluster, rng: random.Random, seconds: float) -> None:
    """Kill and start again for so long; what, and after which pause, is a function of the seed."""
    never = threading.Event()
    end = monotonic() + seconds
    cluster.start("a")
    cluster.start("b")
    never.wait(2.0)
    while monotonic() < end:
        event, before, pause = rng.choice(EVENTS), rng.uniform(0.2, 2.5), rng.choice((0, 0, 0.5, 2, 4))
        never.wait(before)
        if event == "flush":
            cluster.lose(cluster.valkey.flush)
        elif event == "valkey":

            def restart(pause: float = pause) -> None:
                cluster.valkey.kill()
                never.wait(pause)
                cluster.valkey.start()

            cluster.lose(restart)
        else:
            sides = ("a", "b") if event == "both" else (event[-1],)
            for side in sides:
                cluster.kill(side)
            never.wait(min(pause, 1))
            for side in sides:
                cluster.start(side)
    never.wait(1.0)
    cluster.stop()


async def drain(cluster: Cluster) -> tuple[dict[str, list[str]], dict[str, int]]:
    """Finish all that is left with a new store; the dead letters and the ledger's difference, by queue."""
    diary = Diary(cluster.folder / "drain.ndjson")
    dead: dict[str, list[str]] = {}
    async with LogStore(PostgresLog(cluster.dsn), ValkeyWarm(cluster.valkey.url, prefix=PREFIX)) as store:
        client = Client(store, diary, "drain", random.Random(0))
        try:
            async with asyncio.timeout(DRAIN_SECONDS):
                for queue in QUEUES:
                    while await _left(store, queue):
                        take, tasks = await client.take(queue, "drain", 50)
                        if tasks:
                            await client.act(take, "done", tasks)
        except TimeoutError:
            pytest.fail(f"not all is handed out again: {await store.log.stats()}")
        for queue in QUEUES:
            dead[queue] = []
            after = 0
            while letters := await store.dead_letters(queue, after=after, limit=1000):
                dead[queue] += [letter.message().payload.decode() for letter in letters]
                after = letters[-1].message_id
        stats = await store.log.stats()
        return dead, {s.queue.name: sum(g.difference for g in s.groups) for s in stats.queues}


async def _left(store: LogStore, queue: str) -> int:
    stats = await store.log.stats()
    (groups,) = [s.groups for s in stats.queues if s.queue.name == queue]
    return sum(g.ready + g.held + g.deferred for g in groups)


def merge(cluster: Cluster) -> dict[str, History]:
    """The histories of all queues, from the diaries of all servers."""
    histories = {queue: History(losses=cluster.losses) for queue in QUEUES}
    puts: list[tuple[float, Line]] = []
    for path in sorted(cluster.folder.glob("*.ndjson")):
        _Reader(histories, path.stem, cluster.deaths.get(path.stem, inf)).read(path, puts)
    for at, intent in sorted(puts, key=lambda put: put[0]):
        histories[intent.queue].put.update(dict.fromkeys(intent.names, at))
    return histories


class _Reader:
    """Reads the diary of one server, which died (or was told to stop) at a time."""

    def __init__(self, histories: dict[str, History], server: str, died: float) -> None:
        self._histories = histories
        self._server = server
        self._died = died
        self._meant: dict[int, Line] = {}
        self._takes: dict[int, dict[str, Handed]] = {}

    def read(self, path: Path, puts: list[tuple[float, Line]]) -> None:
        """Add it to the histories, and what was put to `puts`."""
        for raw in path.read_bytes().splitlines():
            line = msgspec.json.decode(raw, type=Line)
            intent = self._meant.pop(line.number, None)
            if intent is None:
                self._meant[line.number] = line
                self._intend(line)
            elif intent.kind != "put":
                self._answer(intent, line)
            elif line.kind == "put":
                puts.append((line.at, intent))
        for intent in self._meant.values():
            if intent.kind == "take":
                self._histories[intent.queue].doubts.append((intent.at, inf))

    def _intend(self, line: Line) -> None:
        if line.kind == "put":
            history = self._histories[line.queue]
            history.maybe_put.update(line.names)
            for name, transaction_id in zip(line.names, line.transaction_ids, strict=True):
                history.partitions[name] = line.partition
                if transaction_id is not None:
                    history.transaction_ids[name] = transaction_id
        elif line.kind not in {"take", "extend"}:
            for name in line.names:
                self._takes[line.take][name].settle(line.kind, line.at, inf, "unknown")

    def _answer(self, intent: Line, line: Line) -> None:
        if intent.kind == "take":
            self._answer_take(intent, line)
        elif intent.kind == "extend":
            _answer_extend(self._takes[intent.take], intent, line)
        else:
            _answer_settle(self._takes[intent.take], intent, line)

    def _answer_take(self, intent: Line, line: Line) -> None:
        history = self._histories[intent.queue]
        late = line.at > intent.at + intent.seconds
        if line.kind == "unknown" or late or history.may_be_lost(intent.at, line.at):
            # What is leased and not handed over comes back when it expires.
            history.doubts.append((intent.at, inf))
        mine = self._takes[intent.number] = {}
        for seen in line.seen:
            mine[seen.name] = history.hand(
                Handed(
                    seen.name,
                    f"{self._server} {seen.lease}",
                    at=line.at,
                    deadline=intent.at + intent.seconds,
                    attempts=seen.attempts,
                    asked=intent.at,
                    take=f"{self._server} {intent.number}",
                    id=seen.id,
                    ended=self._died if seen.own else inf,
                )
            )


def _answer_extend(mine: dict[str, Handed], intent: Line, line: Line) -> None:
    for name in intent.names if line.kind == "ok" else ():
        for handed in mine.values():
            if handed.lease == mine[name].lease:  # they share it
                handed.deadline = max(handed.deadline, intent.at + intent.seconds)


def _answer_settle(mine: dict[str, Handed], intent: Line, line: Line) -> None:
    for name in intent.names:
        outcome = "unknown" if line.kind == "unknown" else None
        if name in line.lost:
            outcome = "lost"
        mine[name].settle(intent.kind, intent.at, line.at, outcome)


@contextmanager
def losing(port: int, rng: random.Random) -> Iterator[int]:
    """Give a port by which to reach a server, where requests and answers are lost now and then."""
    ports: queue.Queue[int] = queue.Queue()
    loop = asyncio.new_event_loop()
    over = asyncio.Event()

    def judge(_: bytes) -> Verdict:
        if rng.random() >= LOST_SHARE:
            return Verdict.FORWARD
        return rng.choice((Verdict.LOSE_REQUEST, Verdict.LOSE_ANSWER))

    async def serve() -> None:
        async with FaultProxy(port) as proxy:
            proxy.on_client_bytes(judge)
            ports.put(proxy.port)
            await over.wait()

    thread = threading.Thread(target=lambda: loop.run_until_complete(serve()))
    thread.start()
    try:
        yield ports.get(timeout=10)
    finally:
        loop.call_soon_threadsafe(over.set)
        thread.join()
        loop.close()


def run(
    dsn: str, valkey: ValkeyServer, folder: Path, seed: int, *, lossy: PostgresServer | None = None
) -> None:
    """Run the cluster for a quarter of a minute, or as FOREBAY_CHAOS_SECONDS says, and check what it did."""
    usual = "60" if os.environ.get("CI", "").lower() == "true" else "15"
    seconds = float(os.environ.get("FOREBAY_CHAOS_SECONDS", usual))
    with ExitStack() as stack:
        cluster = Cluster(dsn, valkey, folder, seed)
        if lossy is not None:
            port = stack.enter_context(losing(lossy.port, random.Random(f"{seed}/losing")))
            cluster.dsn = dsn.replace(f":{lossy.port}/", f":{port}/")
        stack.callback(cluster.end)
        run_schedule(cluster, random.Random(seed), seconds)
    cluster.dsn = dsn
    dead, differences = asyncio.run(drain(cluster))
    for name, history in merge(cluster).items():
        ordered = bool(QUEUES[name].get("ordered"))
        assert len(history.handed) > 20, "the load has done nothing"
        problems = check(history, dead=dead[name], ordered=ordered, differences=[differences[name]])
        assert not problems, f"seed {seed}, {name}: {len(problems)} problems\n" + "\n".join(problems[:20])


def test_servers_and_valkey_are_killed_and_what_clients_saw_holds(
    postgres_dsn: str, valkey: ValkeyServer, tmp_path: Path, seed: int
) -> None:
    run(postgres_dsn, valkey, tmp_path, seed)


def test_the_same_while_connections_to_the_log_are_cut(
    postgres_server: PostgresServer, postgres_dsn: str, valkey: ValkeyServer, tmp_path: Path, seed: int
) -> None:
    run(postgres_dsn, valkey, tmp_path, seed, lossy=postgres_server)
