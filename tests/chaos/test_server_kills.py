"""A server that is killed while it writes its spool, renames its files or replays them, time and again.

PostgreSQL comes and goes behind it. Producers push all the time, and repeat what was not answered; in the end
the log has what they were told, once and in order. 60 kills in all, and 200 in `make soak`.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from time import monotonic
from typing import Final

import msgspec
import pytest

from tests.chaos.outages import Stage
from tests.chaos.producers import Producers, prepare, problems_of
from tests.chaos.server_nursery import Death, Order, What, When
from tests.chaos.spooling import errors_in, recovered, waiting
from tests.seeds import SEED_VARIABLE
from tests.servers import FaultProxy, ForebayServer, PostgresServer, environment

pytestmark = [pytest.mark.chaos, pytest.mark.slow]

ROOT: Final = Path(__file__).parents[2]
ROUNDS: Final = dict.fromkeys(("writing", "renaming", "replaying"), 67 if SEED_VARIABLE in os.environ else 20)
PLACES: Final[dict[str, tuple[list[What], int]]] = {
    "writing": (["append", "append", "sync"], 30),
    "renaming": (["rename"], 6),
    "replaying": (["replay", "replay", "remove"], 4),
}
"""In which calls a server dies, and by which of them at the latest."""
SPOOL: Final = {"events_per_file": 60, "file_seconds_max": 0.05, "reserve_bytes": 0}
"""Files that are finished all the time."""
ROUND_SECONDS_MAX: Final = 20.0
FILES_MIN: Final = 4
"""With fewer files there is too little to replay."""
COMES_BACK: Final = 0.2
"""How often the database comes back although nobody dies of it."""


class Nursery:
    """Servers that are forked, one after the other."""

    def __init__(self, process: asyncio.subprocess.Process, server: ForebayServer) -> None:
        self._process = process
        self._server = server
        self.pid = 0

    async def start(self, death: Death | None = None) -> None:
        """Start a server, and return without waiting for it."""
        assert self._process.stdin is not None
        order = Order(self._server.arguments, str(self._server.log), death)
        self._process.stdin.write(msgspec.json.encode(order) + b"\n")
        self.pid = await self._line()

    async def ended(self) -> int:
        """Wait for its end; its status."""
        return await self._line()

    async def _line(self) -> int:
        assert self._process.stdout is not None
        return int(await self._process.stdout.readline())


@asynccontextmanager
async def nursery(server: ForebayServer) -> AsyncIterator[Nursery]:
    """Give a nursery, which ends with all that is in it."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.chaos.server_nursery",
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, cwd=ROOT, env=environment(),
    )  # fmt: skip
    try:
        yield Nursery(process, server)
    finally:
        process.kill()
        await process.wait()


@pytest.fixture
async def stage(postgres_server: PostgresServer, postgres_dsn: str) -> AsyncIterator[Stage]:
    """Give a database with queues, and the way to it."""
    await prepare(postgres_dsn)
    async with FaultProxy(postgres_server.port) as proxy:
        yield Stage(postgres_server, proxy, postgres_dsn)


def death_while(what: str, rng: random.Random) -> Death:
    """A moment to die in."""
    places, calls = PLACES[what]
    when: list[When] = ["before", "after"] if what == "renaming" else ["before", "amid", "after"]
    return Death(rng.choice(places), rng.randint(1, calls), rng.choice(when))


class Rounds:
    """Lives of one server, and what happens in them."""

    def __init__(self, stage: Stage, nursery: Nursery, producers: Producers, folder: Path) -> None:
        self._stage = stage
        self._nursery = nursery
        self._producers = producers
        self._folder = folder

    async def run(self, what: str, rounds: int, rng: random.Random) -> None:
        """So many lives, each with its own death."""
        for number in range(rounds):
            death = death_while(what, rng)
            try:
                async with asyncio.timeout(ROUND_SECONDS_MAX):
                    status = await self._round(death, rng)
            except TimeoutError:
                pytest.fail(f"round {number}: no death at {death}; {self._producers.counts}")
            assert status in {-signal.SIGKILL, -signal.SIGALRM}, f"round {number} ended with {status}"

    async def _round(self, death: Death, rng: random.Random) -> int:
        """The life of one server; it finds the database there only where it dies of replaying."""
        replays = death.what in ("replay", "remove")
        away = not replays or len(waiting(self._folder)) < FILES_MIN
        (self._stage.proxy.refuse if away else self._stage.proxy.heal)()
        await self._nursery.start(death)
        dying = asyncio.create_task(self._nursery.ended())
        changing = asyncio.create_task(self._come_and_go(rng, away=away, replays=replays))
        await asyncio.wait([dying, changing], return_when=asyncio.FIRST_COMPLETED)
        changing.cancel()
        await asyncio.gather(changing, return_exceptions=True)
        return await dying

    async def _come_and_go(self, rng: random.Random, *, away: bool, replays: bool) -> None:
        """Bring about what the server dies of, as often as it takes."""
        while True:
            if away:
                self._stage.proxy.refuse()
                await self._producers.more("spool", rng.randint(3, 30))
            if replays or rng.random() < COMES_BACK:
                self._stage.proxy.heal()
                await self._producers.more("log", rng.randint(1, 5))
            away = True


@pytest.mark.timeout(300)
@pytest.mark.parametrize("what", ROUNDS)
async def test_a_server_is_killed_and_what_it_acknowledged_is_there(
    stage: Stage, rng: random.Random, what: str
) -> None:
    server = ForebayServer(stage.dsn, sections={"spool": SPOOL})
    producers = Producers(server.port, rng, give_up=0.01, pause_seconds=0.005)
    began = monotonic()
    try:
        async with nursery(server) as servers:
            producers.start()
            await Rounds(stage, servers, producers, server.data / "spool").run(what, ROUNDS[what], rng)
            took = monotonic() - began
            stage.proxy.heal()
            await servers.start()
            await producers.more("log", 10)
            await producers.stop()
            await recovered(server.data / "spool", server.tail)
            os.kill(servers.pid, signal.SIGTERM)
            assert await servers.ended() == 0, server.tail()
            assert not errors_in(server.log)
        problems = await problems_of(producers.pushes, stage.direct)
    finally:
        server.close()
    given_up = sum(not push.acknowledged for push in producers.pushes)
    print(  # noqa: T201 - what was done
        f"{ROUNDS[what]} kills while {what}: {took:.1f} s; {producers.counts}, {given_up} given up"
    )
    assert not problems, f"{len(problems)} problems\n" + "\n".join(problems[:20])
