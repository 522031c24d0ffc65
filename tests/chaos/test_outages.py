"""PostgreSQL goes away in every way it can, before a server starts or under it, and pushes go on.

What producers were told is held against the log in the end: all that was acknowledged is there once, in the
order of its partition, and nothing else. How long pushes took is printed; the bounds here are wide, because
machines are busy: `make bench-failover` has the narrow ones.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Iterator, Sequence
from math import inf
from typing import Final, Self

import pytest

from tests.awake import Awake
from tests.chaos.outages import (
    CONNECTIONS_MAX,
    OUTAGES,
    Outage,
    RealDiskFull,
    Stage,
    database_on,
    small_disk,
)
from tests.chaos.producers import Producers, Try, prepare, problems_of
from tests.chaos.spooling import errors_in, recovered, replay_begun, set_aside
from tests.servers import FaultProxy, ForebayServer, PostgresServer, ServerUnavailableError, absent

pytestmark = [pytest.mark.chaos, pytest.mark.slow]

FIRST_SECONDS_MAX: Final = 4.0
LATER_SECONDS_MAX: Final = 0.5
ATTEMPT_SECONDS: Final = 2.0
"""How long a server waits for the log before it takes it for lost."""
SPOOLED: Final = 120
"""Pushes that an outage sees at least."""
MOMENTS: Final = ("at the start", "twice")
"""The first of two is under load: what comes after it must be as good as what was before."""
FLAPS: Final = 8
FLAPPING: Final = ("refused", "black-holed", "read-only", "cut after commit", "stopped")
BLUNT: Final = frozenset({"cut after commit", "real disk full"})
"""Outages in which the database takes something now and then, so that they begin again and again."""
OPENED: Final = frozenset({"disk full"})
"""Outages in which a database can be opened, so that they are noticed only by a push, not by the start."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[PostgresServer]:
    """Give a PostgreSQL that may be stopped, for all tests of the module."""
    try:
        server = PostgresServer("wheel-18", settings={"max_connections": str(CONNECTIONS_MAX)})
        server.start()
    except ServerUnavailableError as error:
        absent(str(error))
    with server:
        yield server


@pytest.fixture
async def stage(cluster: PostgresServer) -> AsyncIterator[Stage]:
    """Give a database with queues, which works, and the way to it."""
    cluster.start()
    direct = cluster.create_database()
    await prepare(direct)
    async with FaultProxy(cluster.port) as proxy:
        yield Stage(cluster, proxy, direct)
    cluster.start()
    cluster.drop_database(direct)


class Ride:
    """A server and its producers, through outages."""

    def __init__(self, stage: Stage, outage: Outage, rng: random.Random) -> None:
        self.stage = stage
        self.outage = outage
        self.server = ForebayServer(stage.dsn)
        self.folder = self.server.data / "spool"
        self.clock = Awake()
        self.producers = Producers(self.server.port, rng, clock=self.clock)
        self.windows: list[tuple[float, float]] = []
        """When the database was away."""

    async def start_away(self) -> None:
        """Start the server while the database is away, and let it come back."""
        begun = self.clock()
        await self.outage.begin(self.stage)
        await asyncio.to_thread(self.server.start, ready=False)
        self.producers.start()
        await self._through(begun)

    async def start(self) -> None:
        """Start the server while all is well."""
        await asyncio.to_thread(self.server.start)
        self.producers.start()
        await self.producers.more("log", 30)

    async def go_away(self, *, again: bool = False) -> None:
        """Let the database go away and come back; to go away `again` as soon as something was replayed."""
        begun = self.clock()
        await self.outage.begin(self.stage)
        await self._through(begun, again=again)

    async def _through(self, begun: float, *, again: bool = False) -> None:
        await self.producers.more("spool", SPOOLED)
        self.windows.append((begun, self.clock()))
        await self.outage.end(self.stage)
        if again:
            await replay_begun(self.folder, self.server.tail)
        else:
            await self.producers.more("log", 10)

    async def finish(self) -> None:
        """Let everything find its way into the log, and look whether it did."""
        await self.producers.stop()
        await recovered(self.folder, self.server.tail)
        assert not set_aside(self.folder)
        assert not errors_in(self.server.log)
        assert await asyncio.to_thread(self.server.stop) == 0, self.server.tail()
        problems = await problems_of(self.producers.pushes, self.stage.direct)
        assert not problems, f"{len(problems)} problems\n" + "\n".join(problems[:20])

    def __enter__(self) -> Self:
        self.clock.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self.clock.__exit__(None, None, None)
        for error in errors_in(self.server.log):
            print(error)  # noqa: T201 - what it was, where something else failed by it
        self.server.close()


def latencies(
    tries: Sequence[Try], window: tuple[float, float], *, blind_seconds: float = 0.0
) -> tuple[float, list[float]]:
    """The longest of the first pushes of an outage, and all that began after one of them was answered.

    For so many seconds an answer doesn't say that the outage was noticed.
    """
    begin, end = window
    noticed = min((t.answered for t in tries if t.durable == "spool" and t.begun >= begin), default=end)
    noticed = max(noticed, begin + blind_seconds)
    first = [t.seconds for t in tries if t.begun <= noticed and t.answered >= begin]
    later = [t.seconds for t in tries if noticed < t.begun and t.answered < end]
    return max(first, default=0.0), sorted(later)


async def ride_out(ride: Ride, moment: str, name: str) -> None:
    """Go through one outage, or two, and check everything."""
    if moment == "at the start":
        await ride.start_away()
    else:
        await ride.start()
        await ride.go_away(again=moment == "amid replay")
        await ride.go_away()
    await ride.finish()
    sharp = name not in BLUNT and (name not in OPENED or moment != "at the start")
    # Who lines up behind a replay is answered from the spool, whether the log is there or not.
    blind = ATTEMPT_SECONDS if moment == "amid replay" else 0.0
    bound = LATER_SECONDS_MAX if sharp else inf
    check_latencies(ride, f"{name}, {moment}", later_seconds_max=bound, blind_seconds=blind)


def check_latencies(ride: Ride, title: str, *, later_seconds_max: float, blind_seconds: float = 0.0) -> None:
    """Every push was taken, the first ones soon, the others at once."""
    tries = ride.producers.tries
    assert {t.status for t in tries} == {201}, "a push was not taken"
    assert max(t.seconds for t in tries) < FIRST_SECONDS_MAX
    for window in ride.windows:
        first, later = latencies(tries, window, blind_seconds=blind_seconds)
        p99 = later[int(len(later) * 0.99)] if later else 0.0
        print(  # noqa: T201 - what was measured
            f"{title}: first {first:.3f} s, later p99 {p99 * 1e3:.1f} ms of {len(later)};"
            f" {ride.producers.counts}"
        )
        assert p99 < later_seconds_max


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("name", OUTAGES)
async def test_pushes_outlive_an_outage_once_and_in_order(
    stage: Stage, rng: random.Random, name: str, moment: str
) -> None:
    with Ride(stage, OUTAGES[name](), rng) as ride:
        await ride_out(ride, moment, name)


@pytest.mark.parametrize("name", ["refused", "black-holed", "read-only"])
async def test_pushes_outlive_an_outage_that_begins_while_the_one_before_is_replayed(
    stage: Stage, rng: random.Random, name: str
) -> None:
    """Those who line up behind what is replayed are not held up by a replay that gets no answer."""
    with Ride(stage, OUTAGES[name](), rng) as ride:
        await ride_out(ride, "amid replay", name)


async def test_pushes_outlive_a_database_that_comes_and_goes(stage: Stage, rng: random.Random) -> None:
    """Outages of all kinds, at any moment, too short for much to be replayed in between."""
    with Ride(stage, OUTAGES["refused"](), rng) as ride:
        await ride.start()
        for _ in range(FLAPS):
            outage = OUTAGES[rng.choice(FLAPPING)]()
            await outage.begin(stage)
            await ride.producers.some(rng.randint(1, 60))
            await outage.end(stage)
            await ride.producers.some(rng.randint(1, 60))
        await ride.finish()
        check_latencies(ride, "comes and goes", later_seconds_max=inf)


@pytest.mark.parametrize("moment", MOMENTS)
async def test_pushes_outlive_a_disk_that_is_full_indeed(
    cluster: PostgresServer, rng: random.Random, moment: str
) -> None:
    """The same with a file system of the database's own, where one can be mounted."""
    cluster.start()
    with small_disk() as folder, database_on(cluster, folder) as direct:
        await prepare(direct)
        async with FaultProxy(cluster.port) as proxy:
            with Ride(Stage(cluster, proxy, direct), RealDiskFull(folder), rng) as ride:
                await ride_out(ride, moment, "real disk full")
