"""`forebay deliver`, killed under load: every message arrives, and few of them twice."""

import asyncio
import random
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

import forebay
from tests.integration.work.steps import until, until_counts
from tests.servers import ForebayServer
from tests.servers.destination import DestinationServer
from tests.servers.forebay import environment

pytestmark = [pytest.mark.chaos, pytest.mark.slow, pytest.mark.timeout(400)]

MESSAGES = 3_000
CONCURRENCY = 8
KILLS = 4


@asynccontextmanager
async def delivering(store: str, to: str) -> AsyncIterator[asyncio.subprocess.Process]:
    flags = ("--concurrency", str(CONCURRENCY), "--visibility", "1s")
    running = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "forebay.app.cli", "deliver", "jobs", "--to", to, "--store", store, *flags,
        env=environment(),
    )  # fmt: skip
    try:
        yield running
    finally:
        if running.returncode is None:
            running.kill()
            await running.wait()


async def _until_received(target: DestinationServer, count: int) -> None:
    await until(lambda: len(target.received) >= count, "some arrived")


async def test_nothing_is_lost_and_few_messages_come_twice(seed: int) -> None:
    draw = random.Random(seed)
    with ForebayServer() as server:
        async with forebay.open(server.url) as store, DestinationServer() as target:
            await store.create_queue("jobs")
            for first in range(0, MESSAGES, 500):
                await store.put_task("jobs", *(b"%d" % number for number in range(first, first + 500)))
            for _ in range(KILLS):
                wanted = len(target.received) + draw.randint(50, 400)
                async with delivering(server.url, target.url) as running:
                    await _until_received(target, wanted)
                    running.kill()
                    await running.wait()
            async with delivering(server.url, target.url):
                found = await until_counts(store, "jobs", lambda found: found.done == MESSAGES)
    assert found.difference == 0
    seen = Counter(target.bodies)
    assert seen.keys() == {b"%d" % number for number in range(MESSAGES)}
    twice = sum(seen.values()) - MESSAGES
    assert twice <= KILLS * 4 * CONCURRENCY, f"{twice} came again"
