"""Pieces by time: made and dropped while others write, read, or sit idle in a transaction."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from forebay.log.postgres import PostgresLog
from forebay.log.values import Deferral
from forebay.model import ManualClock
from tests.conformance.rigs import BEGIN, DAY
from tests.conformance.steps import (
    ALL,
    check_ledger,
    drain,
    finish,
    push,
    stored,
    take,
    take_one,
)
from tests.integration.postgres_steps import WAITERS, connected, until_waiting


@pytest.fixture
def clock() -> ManualClock:
    """Give a clock that the test moves."""
    return ManualClock(BEGIN)


@asynccontextmanager
async def idle_in_transaction(dsn: str) -> AsyncIterator[None]:
    """Hold a snapshot, and a lock on the blocks and on the other pieces, as a forgotten session does."""
    async with connected(dsn) as user, user.transaction(isolation="repeatable_read"):
        for table in ("block", "receipt", "outcome", "dedupe"):
            await user.fetch(f"SELECT * FROM forebay.{table} LIMIT 1")
        yield


async def test_a_session_idle_in_transaction_holds_up_nobody(postgres_dsn: str, clock: ManualClock) -> None:
    async with asyncio.timeout(60), PostgresLog(postgres_dsn, clock=clock) as log:
        queue = await log.create_queue("orders", {"keep_seconds": 1.0})
        group = await log.create_group(queue, "workers")
        await push(log, queue, "0", transaction_ids=["t0"])
        assert await drain(log, group) == ["0"]
        async with idle_in_transaction(postgres_dsn):
            for day in range(1, 12):
                clock.advance(seconds=DAY)
                await push(log, queue, f"{day}", "later", transaction_ids=[f"t{day}", None])
                claim = await take_one(log, group)
                deferral = Deferral(1, clock.now(), 1)
                await log.commit(settlements=[claim.settle(done=b"\x01", deferred=(deferral,))])
                await finish(log, *(await log.due(group, "owner", ALL)).claims)
                if day % 5 == 0:
                    trimmed = await log.trim()
                    assert trimmed.postponed > 0
                    assert trimmed.blocks == 0
            assert len(await stored(log, queue)) == 23
        clock.advance(seconds=DAY)
        trimmed = await log.trim()
        assert (trimmed.postponed, trimmed.blocks) == (0, 12)
        assert await stored(log, queue) == []
        await check_ledger(log)


async def test_a_postponed_trim_lets_writers_through(postgres_dsn: str, clock: ManualClock) -> None:
    """Waiting for one piece is enough: all of a table wait for the same lock."""
    async with asyncio.timeout(60), PostgresLog(postgres_dsn, clock=clock) as log:
        queue = await log.create_queue("orders", {"keep_seconds": 1.0})
        for _ in range(20):
            await push(log, queue, "a")
            clock.advance(seconds=DAY)
        async with idle_in_transaction(postgres_dsn):
            began = asyncio.get_running_loop().time()
            trimmed, _ = await asyncio.gather(
                log.trim(), asyncio.gather(*(push(log, queue, "b") for _ in range(20)))
            )
            assert trimmed.postponed > 20
            assert asyncio.get_running_loop().time() - began < 5


async def test_servers_that_trim_at_once_drop_each_piece_once(postgres_dsn: str, clock: ManualClock) -> None:
    async with (
        asyncio.timeout(60),
        PostgresLog(postgres_dsn, clock=clock) as one,
        PostgresLog(postgres_dsn, clock=clock) as two,
    ):
        queue = await one.create_queue("orders", {"keep_seconds": 1.0})
        for _ in range(12):
            await push(one, queue, "a")
            clock.advance(seconds=DAY)
        clock.advance(seconds=30 * DAY)
        rounds = await asyncio.gather(one.trim(), two.trim(), one.trim(), two.trim())
        last = await one.trim()
        assert sum(trimmed.blocks for trimmed in (*rounds, last)) == 12
        assert sum(trimmed.receipts for trimmed in (*rounds, last)) == 12
        assert await stored(one, queue) == []


async def test_trimming_under_load_drops_nothing_that_is_needed(
    postgres_dsn: str, clock: ManualClock
) -> None:
    async with (
        asyncio.timeout(60),
        PostgresLog(postgres_dsn, clock=clock) as one,
        PostgresLog(postgres_dsn, clock=clock) as two,
    ):
        queue = await one.create_queue("orders", {"keep_seconds": 0.0})
        group = await one.create_group(queue, "workers")
        found: list[str] = []
        pushed: list[str] = []

        async def write(log: PostgresLog, name: str) -> None:
            for number in range(25):
                await push(log, queue, f"{name}{number}")
                pushed.append(f"{name}{number}")
                clock.advance(seconds=DAY / 3)

        async def read() -> None:
            while len(found) < 50:
                found.extend(await drain(two, group))

        async def trim() -> None:
            while len(found) < 50:
                await one.trim()

        await asyncio.gather(write(one, "a"), write(two, "b"), read(), trim())
        assert sorted(found) == sorted(pushed)
        await check_ledger(one)


async def test_a_clock_set_back_behind_dropped_pieces_finds_its_place(
    postgres_dsn: str, clock: ManualClock
) -> None:
    async with asyncio.timeout(30), PostgresLog(postgres_dsn, clock=clock) as log:
        queues = [await log.create_queue(name, {"keep_seconds": 1.0}) for name in "abc"]
        groups = [await log.create_group(queue, "workers") for queue in queues]
        for queue, group in zip(queues, groups, strict=True):
            clock.advance(seconds=5 * DAY)
            await push(log, queue, "old")
            assert await drain(log, group) == ["old"]
        clock.advance(seconds=30 * DAY)
        assert (await log.trim()).blocks == 3
        clock.advance(seconds=-45 * DAY)
        for queue, group in zip(queues, groups, strict=True):
            await push(log, queue, "new")
            assert len(await take(log, group)) == 1


async def test_what_is_written_into_a_piece_while_it_is_dropped_stays(
    postgres_dsn: str, clock: ManualClock
) -> None:
    """A clock set back lets a server write into a piece that another one finds old enough to drop."""
    behind = ManualClock(BEGIN)
    async with (
        asyncio.timeout(30),
        PostgresLog(postgres_dsn, clock=clock) as one,
        PostgresLog(postgres_dsn, clock=behind) as two,
        connected(postgres_dsn) as user,
        connected(postgres_dsn) as watch,
    ):
        queue = await one.create_queue("orders", {"keep_seconds": 0.0})
        group = await one.create_group(queue, "workers")
        await push(two, queue, "old")
        assert await drain(one, group) == ["old"]
        clock.advance(seconds=10 * DAY)
        holding = user.transaction()
        await holding.start()
        await user.execute("SELECT forebay.lock_queue($1)", queue.number)
        writing = asyncio.create_task(push(two, queue, "late"))
        await until_waiting(watch)
        trimming = asyncio.create_task(one.trim())
        while await watch.fetchval(WAITERS) < 2 and not trimming.done():
            pass  # it gives up after a moment
        await holding.rollback()
        await asyncio.gather(writing, trimming)
        assert await drain(one, group) == ["late"]
