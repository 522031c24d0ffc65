"""Spark against `kill -9`: a queue, a transformation, a queue; every input once in the output, in its order.

    python -m tests.chaos.spark_race --rounds 50 [--cluster] [--log sqlite] [--seed N]

Messages are pushed all the time. A round is one kill at a random moment: of the driver as a whole, of its
Python or its Java alone, of a Python process that reads, writes or commits for it, or, on a cluster, of an
executor.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from forebay.app.opening import open_log
from forebay.log.seam import Log
from forebay.log.values import Append
from forebay.model import Message, sequence_of
from forebay.spark.logs import Face
from forebay.spark.publishing import SPACE
from tests.chaos.spark_victim import MARK
from tests.servers import PostgresServer
from tests.servers.process import log_tail
from tests.servers.spark import SparkCluster

ROOT: Final = Path(__file__).parents[2]
PARTITIONS: Final = 5
PUSHED: Final = 60
"""Messages in a push; one comes every 100 ms, until so many wait:"""
WAITING_MAX: Final = 2_000
LIFE_SECONDS_MAX: Final = 180.0
"""A driver that has published nothing for so long is stuck."""
KILL_SECONDS_MAX: Final = 1.5
EARLY_ENDS_MAX: Final = 2


class Race:
    """One log, one checkpoint, and drivers that come and go."""

    def __init__(self, url: str, folder: Path, seed: int, cluster: SparkCluster | None = None) -> None:
        self.kills: Counter[str] = Counter()
        self._url = url
        self._folder = folder
        self._chance = random.Random(seed)
        self._cluster = cluster
        self._face = Face(open_log, url)
        self._over = threading.Event()
        self._early = 0

    def run(self, rounds: int) -> None:
        """Kill so often, then let the last driver finish, and look at what came."""
        self._face(self._prepare())
        feeder = threading.Thread(target=self._feed)
        feeder.start()
        try:
            while self.kills.total() < rounds:
                with self._driver() as driver:
                    self._disturb(driver, rounds)
        finally:
            self._over.set()
            feeder.join()
        is_done = False
        while not is_done:
            with self._driver() as driver:
                is_done = self._wait(driver, lambda: self._face(_behind(self._face.log)) == 0)
        self._face(self._check())
        self._face.close()

    # The queues

    async def _prepare(self) -> None:
        log = self._face.log
        for name in ("in", "out"):
            await log.create_group(await log.create_queue(name, {"ordered": True}), "workers")

    def _feed(self) -> None:
        number = 0
        while not self._over.wait(0.1):
            if self._face(_behind(self._face.log)) < WAITING_MAX:
                self._face(self._push(range(number, number + PUSHED)))
                number += PUSHED

    async def _push(self, numbers: range) -> None:
        log = self._face.log
        queue = await log.queue("in")
        for lane in range(PARTITIONS):
            mine = [Message(str(n).encode(), f"p{lane}") for n in numbers if n % PARTITIONS == lane]
            await log.commit([Append.of(queue, mine)])

    def _published(self) -> int:
        """How many batches were published, by the record of the sink."""
        return sum(kept.version for kept in self._face(self._face.log.scan(SPACE)))

    async def _check(self) -> None:
        log = self._face.log
        came, went = await _lanes(log, "out"), await _lanes(log, "in")
        assert went, "nothing was pushed"
        for lane, texts in went.items():
            assert came[lane] == [MARK + text for text in texts], f"partition {lane} differs"
        assert came.keys() == went.keys()
        for queue in (await log.stats()).queues:
            assert all(group.difference == 0 for group in queue.groups)

    # The drivers

    @contextmanager
    def _driver(self) -> Iterator[subprocess.Popen[bytes]]:
        master = "local[2,4]" if self._cluster is None else self._cluster.url
        checkpoint = self._folder / "checkpoint"
        command = [sys.executable, "-m", "tests.chaos.spark_victim", self._url, master, str(checkpoint)]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
        with (self._folder / "driver.log").open("ab") as log:
            driver = subprocess.Popen(
                command, cwd=ROOT, env=environment, stdout=log, stderr=log, start_new_session=True
            )
        try:
            yield driver
        finally:
            _end_session(driver)

    def _disturb(self, driver: subprocess.Popen[bytes], rounds: int) -> None:
        """Wait until it works, then kill parts of it, in the end the driver."""
        before = self._published()
        if not self._wait(driver, lambda: self._published() > before):
            return
        while self.kills.total() < rounds and driver.poll() is None:
            self._over.wait(self._chance.uniform(0, KILL_SECONDS_MAX))
            kind = self._chance.choice(self._kinds())
            if self._kill(kind, driver):
                self.kills[kind] += 1
                if kind in ("driver", "python", "java"):
                    return

    def _kinds(self) -> list[str]:
        return ["driver", "python", "java", *["worker"] * 3, *(["executor"] * 3 if self._cluster else [])]

    def _kill(self, kind: str, driver: subprocess.Popen[bytes]) -> bool:
        members = _session(driver.pid)
        workers = [pid for pid, name in members.items() if pid != driver.pid and not name.startswith("java")]
        found = {
            "driver": lambda: list(members),
            "python": lambda: [driver.pid],
            "java": lambda: [pid for pid, name in members.items() if name.startswith("java")],
            "worker": lambda: self._one(workers + self._executors(java=False)),
            "executor": lambda: self._one(self._executors(java=True)),
        }[kind]()
        return sum(_kill(pid) for pid in found) > 0

    def _one(self, pids: list[int]) -> list[int]:
        return [self._chance.choice(sorted(pids))] if pids else []

    def _executors(self, *, java: bool) -> list[int]:
        """What workers of the cluster started, but not the workers themselves."""
        workers = [] if self._cluster is None else self._cluster.workers
        return [
            pid
            for worker in workers
            for pid, name in _session(worker).items()
            if pid != worker and name.startswith("java") == java
        ]

    def _wait(self, driver: subprocess.Popen[bytes], is_so: Callable[[], bool]) -> bool:
        """Wait until it is so; False if the driver has ended before, which some kills bring about later."""
        deadline = time.monotonic() + LIFE_SECONDS_MAX
        while not is_so():
            said = log_tail(self._folder / "driver.log")
            if driver.poll() is not None:
                self._early += 1
                assert self._early <= EARLY_ENDS_MAX + self.kills.total(), (
                    f"drivers end by themselves:\n{said}"
                )
                return False
            assert time.monotonic() < deadline, f"it is stuck:\n{said}"
            threading.Event().wait(0.05)
        return True


async def _behind(log: Log) -> int:
    """How many messages are in the one queue and not in the other."""
    ends = {each.queue.name: each.next for each in (await log.stats()).queues}
    return ends["in"] - ends["out"]


async def _lanes(log: Log, name: str) -> dict[str, list[str]]:
    """What a queue has, by partition."""
    queue, first, lanes = await log.queue(name), 1, defaultdict[str, list[str]](list)
    while blocks := await log.read(queue, first):
        for block in blocks:
            for message in block.decode(name):
                lanes[message.partition].append(message.payload.decode())
        first = sequence_of(blocks[-1].last) + 1
    return lanes


def _session(leader: int) -> dict[int, str]:
    """The processes of a session that are alive, and their names."""
    found = {}
    for folder in Path("/proc").iterdir():
        try:
            name, _, rest = (folder / "stat").read_text().partition("(")[2].rpartition(")")
        except (OSError, ValueError):
            continue
        state, _, _, session, *_ = rest.split()
        if int(session) == leader and state != "Z":
            found[int(folder.name)] = name
    return found


def _kill(pid: int) -> bool:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


def _end_session(driver: subprocess.Popen[bytes]) -> None:
    """End a driver with all that it started, and return when it is gone."""
    while members := _session(driver.pid):
        for pid in members:
            _kill(pid)
        driver.poll()
        threading.Event().wait(0.02)
    driver.wait()


def main() -> None:
    """Run a race, and say what was killed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    parser.add_argument("--cluster", action="store_true", help="on a standalone cluster")
    parser.add_argument("--log", choices=("postgres", "sqlite"), default="postgres")
    told = parser.parse_args()
    print(f"seed {told.seed}", flush=True)  # noqa: T201 - a program
    with race(told.seed, log=told.log, cluster=told.cluster) as running:
        running.run(told.rounds)
    kills = ", ".join(f"{count} x {kind}" for kind, count in sorted(running.kills.items()))
    print(f"every message once and in order, after {kills}")  # noqa: T201 - likewise


@contextmanager
def race(seed: int, *, log: str = "postgres", cluster: bool = False) -> Iterator[Race]:
    """A race with servers of its own."""
    with tempfile.TemporaryDirectory(prefix="forebay-race-") as folder:
        path, spark, postgres = Path(folder), SparkCluster() if cluster else None, None
        try:
            if log == "postgres":
                postgres = PostgresServer("wheel-18")
                postgres.start()
            url = f"sqlite:///{path / 'log.db'}" if postgres is None else postgres.create_database()
            if spark is not None:
                spark.__enter__()
            yield Race(url, path, seed, spark)
        finally:
            if spark is not None:
                spark.__exit__(None, None, None)
            if postgres is not None:
                postgres.__exit__(None, None, None)


if __name__ == "__main__":
    main()
