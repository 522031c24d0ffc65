"""The server dies under load, several times: what was acknowledged holds, and nothing is there twice."""

import asyncio
import random
from collections.abc import Iterator

import pytest

from forebay.log.groupcommit import Item
from forebay.log.intake import Intake
from forebay.log.postgres import PostgresLog
from forebay.log.postgres.writing import write
from forebay.model import Limits, Unavailable, mint
from tests.chaos.log_load import Load
from tests.conformance.steps import (
    append_of,
    check_ledger,
    counts,
    drain,
    push,
    stored,
    take_one,
)
from tests.servers import PostgresServer, ServerUnavailableError, absent

pytestmark = pytest.mark.chaos


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    """Give a server of the test's own, to be killed; what nobody waits for stays in its memory."""
    try:
        server = PostgresServer("wheel-18", settings={"wal_writer_delay": "10s"})
        server.start()
    except ServerUnavailableError as error:
        absent(str(error))
    with server:
        yield server


@pytest.mark.parametrize("give_up", [0.0, 0.4])
async def test_a_server_that_dies_under_load(
    server: PostgresServer, give_up: float, rng: random.Random
) -> None:
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
        await log.heartbeat("owner")  # waits for the disk, and takes the claim along
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


async def test_a_claim_that_was_handed_out_outlives_a_crash(server: PostgresServer) -> None:
    """Claims are committed lazily, but waited for: so nobody has seen a message that a crash takes back."""
    dsn = server.create_database()
    async with asyncio.timeout(60):
        async with PostgresLog(dsn) as log:
            queue = await log.create_queue("orders")
            group = await log.create_group(queue, "workers")
            await push(log, queue, "a", "b")
            claim = await take_one(log, group)
            server.kill()
        server.start()
        async with PostgresLog(dsn) as log:
            assert (await counts(log, group)).held == 2
            assert not (await log.commit(settlements=[claim.settle_all()])).conflicts
            await check_ledger(log)


async def test_a_mark_outlives_a_crash_once_anything_is_committed(server: PostgresServer) -> None:
    dsn = server.create_database()
    async with asyncio.timeout(60):
        async with PostgresLog(dsn) as log:
            queue = await log.create_queue("orders")
            group = await log.create_group(queue, "workers")
            await push(log, queue, "a", "b")
            claim = await take_one(log, group)
            await log.mark([claim.mark(handed=b"\x02")])
            await push(log, queue, "c")
            server.kill()
        server.start()
        async with PostgresLog(dsn) as log:
            (taken,) = (await log.reclaim(group, "new", of=["owner"])).claims
            assert taken.handed == b"\x02"


@pytest.mark.parametrize("atomic", [False, True])
async def test_what_is_known_is_on_disk_too(server: PostgresServer, *, atomic: bool) -> None:
    """Another server has committed the block and not yet synced: whoever is told of it keeps it."""
    dsn = server.create_database()
    async with asyncio.timeout(60):
        async with PostgresLog(dsn) as log:
            queue = await log.create_queue("orders")
            append = append_of(queue, "a")
            lazy = Item(b"", [Intake(append, queue, Limits())])
            async with log._database.connection() as connection:
                await write(connection, [lazy], None, lazy=True)
            receipt = await log.commit([append], atomic=atomic)
            server.kill()
            assert receipt.appended[0].known
        server.start()
        async with PostgresLog(dsn) as log:
            assert await stored(log, queue) == ["a"]


async def test_a_log_whose_server_is_gone_closes(server: PostgresServer) -> None:
    async with asyncio.timeout(30):
        async with PostgresLog(server.create_database(), retry_seconds=0.1) as log:
            queue = await log.create_queue("orders")
            await push(log, queue, "a")
            server.kill()
        with pytest.raises(Unavailable):
            await push(log, queue, "b")
