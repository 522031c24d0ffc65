"""What fails beside the log is laid at its own door: the log isn't said to be away."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection
from pathlib import Path

import pytest

from forebay.disk import RealDisk
from forebay.failover.failover import Failover
from forebay.failover.settings import FailoverSettings
from forebay.model import Block, Message, Unavailable
from forebay.store.store import LogStore
from forebay.warm.memory import MemoryWarm
from forebay.warm.seam import WarmAway
from tests.unit.failover.outage import OutageLog, payloads_of

SETTINGS = FailoverSettings(attempt_seconds=20.0, flush_seconds=0.01, reserve_bytes=0)
"""A push that waited for the tier would not be in time, and one on a busy machine is."""


class OddTier(MemoryWarm):
    """A shared tier that can't announce anything: it raises, or never answers."""

    shared = True

    def __init__(self) -> None:
        super().__init__("tier")
        self.error: Exception | None = None
        self.asked = 0

    async def announce(self, queue: int, partitions: Collection[str] | None = None) -> None:  # noqa: ARG002
        self.asked += 1
        if self.error is not None:
            raise self.error
        await asyncio.Event().wait()


class Site:
    """A store on a log and a shared tier, with its failover."""

    def __init__(self, failover: Failover, store: LogStore, log: OutageLog, tier: OddTier) -> None:
        self.failover, self.store, self.log, self.tier = failover, store, log, tier

    async def push(self, value: int) -> str:
        """Push one message as a server does; tells where it is."""
        block = Block.of([Message(b"%d" % value)])
        return (await self.failover.push("orders", block, lambda: self.store.append("orders", block))).where


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    log, tier = OutageLog(), OddTier()
    failover = await Failover.open(RealDisk(tmp_path), SETTINGS)
    async with failover, LogStore(failover.guard(log.as_log), tier) as store:
        await store.create_queue("orders")
        failover.announce_to(store.announce)
        yield Site(failover, store, log, tier)


@pytest.mark.parametrize("error", [None, WarmAway("away"), Unavailable("away"), AssertionError("a script")])
async def test_a_fault_of_the_tier_sends_no_push_to_the_spool(site: Site, error: Exception | None) -> None:
    asyncio.get_running_loop().set_exception_handler(lambda *_: None)  # a script that fails is reported there
    site.tier.error = error
    assert [await site.push(value) for value in range(20)] == ["log"] * 20
    while not site.tier.asked:  # noqa: ASYNC110 - it happens by itself, in the background
        await asyncio.sleep(0)
    assert site.failover.health.is_healthy
    assert site.failover.status().outages == 0


async def test_a_replay_is_over_although_the_tier_never_answers(site: Site) -> None:
    site.log.mode = "away"
    assert await site.push(0) == "spool"
    site.log.mode = "there"
    async with asyncio.timeout(60):
        while not await site.failover.is_empty():  # noqa: ASYNC110 - it happens by itself
            await asyncio.sleep(0)
    assert await payloads_of(site.log, "orders") == [b"0"]
    assert site.failover.health.is_healthy


async def test_a_fault_of_our_own_is_the_callers_and_nothing_is_spooled(site: Site) -> None:
    async def write() -> None:
        raise TypeError("a bug")

    with pytest.raises(TypeError, match="a bug"):
        await site.failover.push("orders", Block.of([Message(b"x")]), write)  # type: ignore[arg-type]
    assert site.failover.health.is_healthy
    assert site.failover.status().pending == 0
    assert await site.push(1) == "log"
