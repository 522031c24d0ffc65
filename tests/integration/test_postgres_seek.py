"""Groups that go on from another place while servers settle."""

import asyncio

from forebay.log.postgres import PostgresLog
from forebay.log.values import Deferral, Position
from forebay.model import bitmap
from tests.conformance.steps import ALL, check_ledger, counts, drain, push, take_one
from tests.integration.postgres_steps import connected, until_waiting


async def test_a_seek_waits_for_a_settlement_and_counts_what_it_left(postgres_dsn: str) -> None:
    """The settlement finishes one message and defers another: the seek must not count from before it."""
    async with PostgresLog(postgres_dsn) as log, PostgresLog(postgres_dsn) as other:
        queue = await log.create_queue("orders")
        group = await log.create_group(queue, "workers")
        await push(log, queue, *"abcd")
        claim = await take_one(log, group)
        told = claim.settle(done=bitmap.of([0], 4), deferred=(Deferral(3, 0),))
        async with connected(postgres_dsn) as user, connected(postgres_dsn) as watch:
            holding = user.transaction()
            await holding.start()
            await user.execute("SELECT forebay.lock_tally($1)", group.number)
            settling = asyncio.create_task(log.commit(settlements=[told]))
            await until_waiting(watch)
            seeking = asyncio.create_task(other.seek(group, Position(3)))
            await until_waiting(watch, 2)
            await holding.rollback()
        assert list((await settling).conflicts) == []
        sought = await seeking
        assert (sought.skipped, sought.again, sought.returned) == (1, 0, 2)
        await check_ledger(log)
        assert (await counts(log, group)).done == 1
        assert await drain(log, group) == ["c", "d"]
        assert (await log.due(group, "owner", ALL)).claims == []


async def test_a_seek_that_is_cancelled_changes_nothing(postgres_dsn: str) -> None:
    async with PostgresLog(postgres_dsn) as log:
        queue = await log.create_queue("orders")
        group = await log.create_group(queue, "workers")
        await push(log, queue, *"abcd")
        async with connected(postgres_dsn) as user, connected(postgres_dsn) as watch:
            holding = user.transaction()
            await holding.start()
            await user.execute("SELECT forebay.lock_tally($1)", group.number)
            seeking = asyncio.create_task(log.seek(group, "latest"))
            await until_waiting(watch)
            seeking.cancel()
            await asyncio.gather(seeking, return_exceptions=True)
            await holding.rollback()
        assert await log.groups(queue) == [group]
        assert await drain(log, group) == ["a", "b", "c", "d"]
