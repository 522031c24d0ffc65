"""Pushes over HTTP while PostgreSQL is away: how long the first one takes, and those after it.

The database is away in two ways: connections are reset at once, and everything is swallowed, which is found
out only by waiting.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from time import perf_counter
from typing import Final

from benchmarks.bench import Bench
from benchmarks.httpload import HttpConnection, connections, request
from benchmarks.payloads import PUSHERS, batches
from benchmarks.verdict import Figures
from benchmarks.workload import QUEUE, percentile
from tests.chaos.spooling import waiting
from tests.servers.proxy import FaultProxy

_CREATED: Final = 201
_SPOOLED: Final = b'"durable":"spool"'
_LOGGED: Final = b'"durable":"log"'
_PATIENCE_SECONDS: Final = 60.0
_LOOK_SECONDS: Final = 0.02


async def run(bench: Bench) -> Figures:
    """Several outages of each kind, one after the other; the longest first push, and p99 of all others."""
    pace, bodies, firsts, laters = bench.pace, _bodies(), list[float](), list[float]()
    async with bench.database() as dsn, FaultProxy(bench.server.port) as proxy:
        address = dsn.replace(f":{bench.server.port}/", f":{proxy.port}/")
        async with _pushing(bench, address) as (pushers, spool):
            with bench.part("outage", 2 * pace.rounds):
                for number in range(pace.rounds):
                    for begin in (proxy.refuse, proxy.blackhole):
                        with bench.note(f"{begin.__name__}, round {number + 1} of {pace.rounds}"):
                            await _push_until(pushers[0], bodies[0], _LOGGED)
                            begin()
                            firsts.append(await _push_until(pushers[0], bodies[0], _SPOOLED))
                            laters += await _push_all(pushers, bodies, pace.seconds)
                            proxy.heal()
                            await _recovered(spool)
    laters.sort()
    return {
        "outage_first_push_seconds": round(max(firsts), 3),
        "outage_push_p99_ms": percentile(laters, 0.99),
        "outage_pushes": float(len(laters)),
    }


@asynccontextmanager
async def _pushing(bench: Bench, address: str) -> AsyncIterator[tuple[Sequence[HttpConnection], Path]]:
    """Give connections to a server, and the folder of its spool."""
    holder = bench.forebay(address)
    server = await asyncio.to_thread(holder.__enter__)  # it waits for the proxy, which is in this thread
    pushers = await connections(server.port, PUSHERS)
    try:
        yield pushers, server.data / "spool"
    finally:
        for pusher in pushers:
            pusher.close()
        await asyncio.to_thread(holder.__exit__, None, None, None)


def _bodies() -> list[bytes]:
    pushes = batches()
    return [
        request(
            f"/v1/queues/{QUEUE}/messages",
            b"[%b]" % b",".join(b'{"payload":%b}' % payload for payload in push.payloads),
        )
        for push in pushes
    ]


async def _push_until(pusher: HttpConnection, body: bytes, said: bytes) -> float:
    """Push until it is said where it is; how long the longest push took."""
    longest, until = 0.0, perf_counter() + _PATIENCE_SECONDS
    while perf_counter() < until:
        start = perf_counter()
        answer = await pusher.ask(body, _CREATED)
        longest = max(longest, perf_counter() - start)
        if said in answer:
            return longest
    raise AssertionError(f"no push was answered with {said.decode()} within {_PATIENCE_SECONDS:g} seconds")


async def _push_all(
    pushers: Sequence[HttpConnection], bodies: Sequence[bytes], seconds: float
) -> list[float]:
    """Push from all for a time; milliseconds of each push."""
    found, end = list[float](), perf_counter() + seconds

    async def push(number: int) -> None:
        turn = number
        while (start := perf_counter()) < end:
            await pushers[number].ask(bodies[turn % len(bodies)], _CREATED)
            found.append(1_000 * (perf_counter() - start))
            turn += len(pushers)

    await asyncio.gather(*map(push, range(len(pushers))))
    return found


async def _recovered(spool: Path) -> None:
    """Return when all that was spooled is in the log."""
    until = perf_counter() + _PATIENCE_SECONDS
    while waiting(spool):
        assert perf_counter() < until, f"not replayed within {_PATIENCE_SECONDS:g} seconds"
        await asyncio.sleep(_LOOK_SECONDS)
