"""The server dies under load, several times: what was acknowledged holds, and nothing is there twice."""

import asyncio
from collections.abc import Iterator

import pytest

from forebay.log.postgres import PostgresLog
from forebay.model import Unavailable, mint
from tests.chaos.postgres_load import Load
from tests.conformance.steps import append_of, counts, drain, push, stored, take_one
from tests.integration.postgres_steps import new_seed
from tests.servers import PostgresServer, ServerUnavailableError, absent

pytestmark = pytest.mark.chaos


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    """Give a server of the test's own, to be killed."""
    try:
        server = PostgresServer("wheel-18")
        server.start()
    except ServerUnavailableError as error:
        absent(str(error))
    with server:
        yield server


@pytest.mark.parametrize("give_up", [0.0, 0.4])
async def test_a_server_that_dies_under_load(server: PostgresServer, give_up: float) -> None:
    rng = new_seed()
    dsn = server.create_database()
    async with (
        asyncio.timeout(100),
        PostgresLog(dsn, retry_seconds=0.1) as one,
        PostgresLog(dsn, retry_seconds=0.1) as two,
    ):
        queue = await one.create_queue("orders")
        load = Load(rng, queue, await one.create_group(queue, "workers"), give_up=give_up)

        async def kill_and_start() -> None:
            for death in (server.stop_immediate, server.kill, server.stop_immediate, server.kill):
                await load.reached(load.steps + rng.randrange(10, 120))
                load.up.clear()
                await asyncio.to_thread(death)
                await asyncio.to_thread(server.start)
                load.up.set()

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(load.run([one, two], pushers=8, blocks=100, workers=4))
            tasks.create_task(kill_and_start())
        await load.check(one)
        assert load.failures > 0


async def test_a_log_outlives_its_server(server: PostgresServer) -> None:
    """Down, everything is Unavailable; up again, the same log goes on and the same ids are one copy."""
    dsn = server.create_database()
    async with asyncio.timeout(60), PostgresLog(dsn, retry_seconds=0.2) as log:
        queue = await log.create_queue("orders")
        group = await log.create_group(queue, "workers")
        await push(log, queue, "a")
        claim = await take_one(log, group)
        append, commit_id = append_of(queue, "b"), mint()
        server.kill()
        outcomes = await asyncio.gather(
            log.commit([append], [claim.settle_all()], id=commit_id),
            log.commit([append], [claim.settle_all()], id=commit_id, atomic=True),
            log.claim(group, "owner"),
            log.due(group, "owner"),
            log.reclaim(group, "new", of=["owner"]),
            log.retire("owner"),
            log.heartbeat("owner"),
            log.read(queue),
            log.stats(),
            log.queues(),
            log.create_queue("more"),
            log.delete_group(group),
            log.stage("s", [append]),
            log.publish("s", [append.block.id]),
            log.sweep(),
            log.trim(),
            log.dead_letters(group),
            log.outcomes(group, claim.first),
            log.quarantined(queue),
            return_exceptions=True,
        )
        assert {type(outcome) for outcome in outcomes} == {Unavailable}
        server.start()
        receipt = await log.commit([append], [claim.settle_all()], id=commit_id)
        assert not receipt.conflicts
        assert await stored(log, queue) == ["a", "b"]
        assert await drain(log, group) == ["b"]
        assert (await counts(log, group)).done == 2


async def test_a_log_whose_server_is_gone_closes(server: PostgresServer) -> None:
    async with asyncio.timeout(30):
        async with PostgresLog(server.create_database(), retry_seconds=0.1) as log:
            queue = await log.create_queue("orders")
            await push(log, queue, "a")
            server.kill()
        with pytest.raises(Unavailable):
            await push(log, queue, "b")
