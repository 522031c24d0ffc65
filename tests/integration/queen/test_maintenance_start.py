"""A server that is started while there may be maintenance: nothing is replayed before it knows."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from forebay.api.context import Context
from forebay.api.queen.maintenance import SPACE
from forebay.api.queen.messages import PushItem, headers_of
from forebay.api.queen.options import Facts
from forebay.api.serving import HttpServer
from forebay.disk import RealDisk
from forebay.failover.failover import Failover
from forebay.failover.settings import FailoverSettings
from forebay.log.memory import MemoryLog
from forebay.log.values import Kept, Record
from forebay.model import Block, Message
from forebay.store.store import LogStore
from forebay.wire.port import listen

QUICK = FailoverSettings(attempt_seconds=1.0, flush_seconds=0.01, file_seconds_max=0.02, reserve_bytes=0)


class SlowLog(MemoryLog):
    """A log that takes its time to say what it keeps."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = asyncio.Event()
        self.may_answer = asyncio.Event()

    async def records(self, space: str, keys: Sequence[str]) -> list[Kept]:
        self.asked.set()
        await self.may_answer.wait()
        return await super().records(space, keys)


@asynccontextmanager
async def started(log: SlowLog, folder: Path) -> AsyncIterator[tuple[Failover, HttpServer]]:
    async with await Failover.open(RealDisk(folder), QUICK) as failover:
        store = LogStore(failover.guard(log))  # type: ignore[arg-type,unused-ignore]
        server = HttpServer(Context(failover=failover), lambda: store, listen("127.0.0.1:0"))  # type: ignore[arg-type,return-value,unused-ignore]
        running = asyncio.create_task(server.run())
        try:
            yield failover, server
        finally:
            server.stop()
            await running


async def spool(folder: Path, queue: str = "q", headers: dict[str, str] | None = None) -> None:
    """Leave a message in the spool, as a server that was killed."""
    async with await Failover.open(RealDisk(folder), QUICK) as failover:
        await failover.push(queue, Block.of([Message(b"1", headers=headers)]), None)


async def rounds(failover: Failover, count: int = 5) -> None:
    """Wait until the spool was looked at so often."""
    seen, look = asyncio.Semaphore(0), failover._round

    async def looked() -> None:
        await look()
        seen.release()

    failover._round = looked  # type: ignore[method-assign]
    async with asyncio.timeout(10):
        for _ in range(count):
            await seen.acquire()


@pytest.mark.parametrize("is_on", [True, False])
async def test_nothing_is_replayed_before_the_switch_is_seen(tmp_path: Path, is_on: bool) -> None:  # noqa: FBT001 - a case
    await spool(tmp_path)
    log = SlowLog()
    queue = await log.create_queue("q")
    if is_on:
        await log.commit(records=[Record(SPACE, "push", b"1")])
    async with started(log, tmp_path) as (failover, server):
        async with asyncio.timeout(10):
            await log.asked.wait()
        await rounds(failover)
        assert await log.read(queue) == []
        log.may_answer.set()
        async with asyncio.timeout(10):
            await server.ready.wait()
        assert failover.held == ("maintenance" if is_on else None)
        await rounds(failover)
        assert len(await log.read(queue)) == (0 if is_on else 1)


async def test_a_queue_that_nobody_knew_while_the_log_was_away_is_ordered_if_it_is_one_of_queen_s(
    tmp_path: Path,
) -> None:
    await spool(tmp_path, "theirs", headers_of(PushItem("theirs"), None, sealed=False, spooled=Facts()))
    await spool(tmp_path, "ours")
    log = SlowLog()
    log.may_answer.set()
    async with started(log, tmp_path) as (failover, server):
        async with asyncio.timeout(10):
            await server.ready.wait()
        await rounds(failover)
        assert (await log.queue("theirs")).settings.ordered
        assert not (await log.queue("ours")).settings.ordered
