"""The whole cycle on every PostgreSQL that can be had here."""

import pytest

from forebay.log.postgres import PostgresLog
from forebay.log.values import Deferral
from forebay.model import ManualClock
from tests.conformance.rigs import BEGIN, DAY
from tests.conformance.steps import (
    ALL,
    append_of,
    check_ledger,
    drain,
    finish,
    push,
    stored,
    take,
)
from tests.integration.postgres_steps import connected
from tests.servers import PostgresServer, ServerUnavailableError, absent


@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize("flavour", ["wheel-16", "debian-15"])
async def test_push_claim_settle_trim(flavour: str, *, ordered: bool) -> None:
    try:
        server = PostgresServer(flavour)
    except ServerUnavailableError as error:
        absent(str(error))
    clock = ManualClock(BEGIN)
    with server:
        dsn = server.create_database()
        async with PostgresLog(dsn, clock=clock) as log, connected(dsn) as user:
            queue = await log.create_queue("orders", {"keep_seconds": 1.0, "ordered": ordered})
            group = await log.create_group(queue, "workers")
            await push(log, queue, "a", "b", "b", transaction_ids=["1", "2", "2"])
            await user.execute("SELECT forebay.push('orders', 'c')")
            assert await log.sweep() == 1
            await log.stage("s", [staged := append_of(queue, "d")])
            await log.publish("s", [staged.block.id])
            claim, *rest = await take(log, group)
            await log.commit(
                settlements=[claim.settle(done=b"\x01", deferred=(Deferral(1, clock.now()),))],
                atomic=True,
            )
            await finish(log, *rest)
            await finish(log, *(await log.due(group, "owner", ALL)).claims)
            await drain(log, group)
            await check_ledger(log)
            assert await stored(log, queue) == ["a", "b", "c", "d"]
            clock.advance(seconds=20 * DAY)
            assert (await log.trim()).blocks == 3
            assert await stored(log, queue) == []
            await push(log, queue, "e")
            assert await drain(log, group) == ["e"]
