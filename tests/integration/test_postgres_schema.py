"""Opening a database: whatever state it is in, it becomes a log, or the error says what to do."""

import asyncio
from typing import TYPE_CHECKING
from uuid import UUID

import pytest

from forebay.log.postgres import PostgresLog
from forebay.log.postgres.database import PACKAGE
from forebay.log.sqlfile import load_migrations
from forebay.model import (
    Block,
    Flow,
    ForebayError,
    Message,
    Misconfigured,
    Unavailable,
    encode,
    mint,
    pack,
)
from tests.awake import Awake
from tests.conformance.steps import check_ledger, drain, finish, push, stored
from tests.integration.postgres_steps import connected
from tests.servers import FaultProxy, PostgresServer
from tests.servers.process import free_port

if TYPE_CHECKING:
    import asyncpg

    Connection = asyncpg.Connection[asyncpg.Record]

MIGRATIONS = load_migrations(PACKAGE)


async def work(log: PostgresLog, name: str = "orders") -> None:
    """A message goes all the way."""
    queue = await log.create_queue(name)
    group = await log.create_group(queue, "workers")
    await push(log, queue, "a")
    assert await drain(log, group) == ["a"]


async def connections(dsn: str) -> int:
    """How many others are connected to the database."""
    async with connected(dsn) as connection:
        count: int = await connection.fetchval(
            "SELECT count(*) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
    return count


async def test_an_empty_database_becomes_a_log(postgres_dsn: str) -> None:
    async with PostgresLog(postgres_dsn) as log:
        await work(log)
    async with connected(postgres_dsn) as user:
        version = await user.fetchval("SELECT max(number) FROM forebay.schema_version")
    assert version == len(MIGRATIONS)


async def test_opening_at_the_same_time_is_fine(postgres_dsn: str) -> None:
    logs = [PostgresLog(postgres_dsn, connections_max=2) for _ in range(6)]
    await asyncio.gather(*(log.__aenter__() for log in logs))
    await asyncio.gather(*(work(log, f"queue-{n}") for n, log in enumerate(logs)))
    assert len(await logs[0].queues()) == 6
    await asyncio.gather(*(log.__aexit__(None, None, None) for log in logs))


async def install(user: "Connection", version: int) -> None:
    """Make the schema as it was at a version."""
    await user.execute(
        "CREATE SCHEMA forebay;"
        "CREATE TABLE forebay.schema_version (number int PRIMARY KEY, name text NOT NULL,"
        " applied_at timestamptz NOT NULL DEFAULT now());"
        "CREATE TABLE forebay.functions (digest text);"
        "INSERT INTO forebay.functions VALUES (NULL)"
    )
    for migration in MIGRATIONS[:version]:
        await user.execute(migration.sql)
        await user.execute(
            "INSERT INTO forebay.schema_version (number, name) VALUES ($1, $2)",
            migration.number,
            migration.name,
        )


@pytest.mark.parametrize("version", range(len(MIGRATIONS)))
async def test_every_earlier_schema_is_brought_up_to_date(postgres_dsn: str, version: int) -> None:
    async with connected(postgres_dsn) as user:
        await install(user, version)
    async with PostgresLog(postgres_dsn) as log:
        await work(log)


async def test_blocks_and_dead_letters_of_the_first_version_are_as_good(postgres_dsn: str) -> None:
    body = encode(Block.of([Message(b"a", "p", headers={"flow": "f"})], id=(block_id := mint())))
    first = pack(1, 1)
    async with connected(postgres_dsn) as user:
        await install(user, 1)
        await user.execute(
            "INSERT INTO forebay.queue VALUES (1, 'orders', '{\"ordered\": true}', true, 0, 1, 1);"
            "INSERT INTO forebay.head VALUES (1, 3, 1);"
            "INSERT INTO forebay.consumer_group (queue, name, start, created_at) VALUES (1, 'workers', 1, 1);"
            "INSERT INTO forebay.cursor VALUES (1, 1, 3, 1, 1, 0);"
            "INSERT INTO forebay.tally VALUES (1, 1, 0, 1, 0, 0);"
            f"INSERT INTO forebay.lane VALUES (1, 'p', {first + 1}, {first + 1});"
            "CREATE TABLE forebay.block_0 PARTITION OF forebay.block FOR VALUES FROM (0) TO (10)"
        )
        block = "INSERT INTO forebay.block VALUES ($1, 1, $2, 1, 'p', $3)"
        for last in (first, first + 1):
            await user.execute(block, last, UUID(bytes=block_id), body)
        await user.execute("INSERT INTO forebay.dead_letter VALUES (1, $1, 1, 'r', 1, $2)", first, body)
    async with PostgresLog(postgres_dsn) as log:
        (group,) = await log.groups(queue := await log.queue("orders"))
        assert [(c.flow, c.count) for c in await log.flows(group)] == [(Flow(), 1)]
        assert len(await log.read(queue)) == 2
        assert await log.redrive(group, [first]) == [first]
        assert await drain(log, group) == []  # its partition is held up
        await finish(log, *(await log.due(group, "owner")).claims)
        assert await drain(log, group) == ["a"]
        await check_ledger(log)


async def test_a_newer_schema_is_refused(postgres_dsn: str) -> None:
    async with PostgresLog(postgres_dsn):
        pass
    async with connected(postgres_dsn) as user:
        await user.execute("INSERT INTO forebay.schema_version VALUES (99, 'later')")
    with pytest.raises(Misconfigured, match="newer Forebay: its schema is 99") as caught:
        await PostgresLog(postgres_dsn).__aenter__()
    assert "upgrade this Forebay" in str(caught.value.hint)
    assert await connections(postgres_dsn) == 0


async def test_a_user_without_rights_is_refused(postgres_dsn: str) -> None:
    async with connected(postgres_dsn) as user:
        await user.execute("DROP ROLE IF EXISTS guest")
        await user.execute("CREATE ROLE guest LOGIN")
        guest = postgres_dsn.replace("//forebay@", "//guest@")
        with pytest.raises(Misconfigured, match="permission denied") as caught:
            await PostgresLog(guest).__aenter__()
        assert caught.value.hint
        await user.execute("DROP ROLE guest")
    assert await connections(postgres_dsn) == 0


@pytest.mark.parametrize(
    "change",
    [("/test_", "/no_such_"), ("//forebay@", "//stranger@"), ("postgresql:", "mysql:"), (".1:", ".1:x")],
    ids=["database", "user", "scheme", "port"],
)
async def test_a_wrong_address_is_refused(postgres_dsn: str, change: tuple[str, str]) -> None:
    with pytest.raises(Misconfigured, match="refuses the address") as caught:
        await PostgresLog(postgres_dsn.replace(*change)).__aenter__()
    assert caught.value.hint


async def test_a_wrong_password_is_refused(postgres_server: PostgresServer, postgres_dsn: str) -> None:
    async with connected(postgres_dsn) as user:
        await user.execute("DROP ROLE IF EXISTS locked")
        await user.execute("CREATE ROLE locked LOGIN PASSWORD 'right'")
    rules = postgres_server._data / "pg_hba.conf"
    before = rules.read_text()
    try:
        rules.write_text("host all locked 127.0.0.1/32 scram-sha-256\n" + before)
        postgres_server.run_sql("SELECT pg_reload_conf()")
        wrong = postgres_dsn.replace("//forebay@", "//locked:wrong@")
        # The postmaster reads the rules a moment later; until then no password is asked for.
        with pytest.raises(Misconfigured, match="password authentication failed"):
            await until_refused(wrong)
    finally:
        rules.write_text(before)
        postgres_server.run_sql("SELECT pg_reload_conf()")
    async with connected(postgres_dsn) as user:
        await user.execute("DROP ROLE locked")


async def until_refused(dsn: str) -> None:
    """Open again and again, as long as it is only the rights that are missing."""
    async with asyncio.timeout(20):
        while True:
            try:
                await PostgresLog(dsn).__aenter__()
            except Misconfigured as error:
                if "permission denied" not in str(error):
                    raise


async def test_a_server_that_is_not_there_is_unavailable_at_once(awake: Awake) -> None:
    began = awake()
    with pytest.raises(Unavailable):
        await PostgresLog(f"postgresql://forebay@127.0.0.1:{free_port()}/x").__aenter__()
    assert awake() - began < 5


async def test_a_server_that_says_nothing_is_unavailable_in_time(
    postgres_server: PostgresServer, awake: Awake
) -> None:
    async with FaultProxy(postgres_server.port) as proxy:
        proxy.blackhole()
        dsn = f"postgresql://forebay@127.0.0.1:{proxy.port}/postgres"
        began = awake()
        with pytest.raises(Unavailable):
            await PostgresLog(dsn, timeout_seconds=0.5).__aenter__()
        assert awake() - began < 5


async def test_changed_functions_are_installed_again(postgres_dsn: str) -> None:
    async with PostgresLog(postgres_dsn) as log:
        await work(log)
    async with connected(postgres_dsn) as user:
        await user.execute("DROP FUNCTION forebay.write")
        async with PostgresLog(postgres_dsn):
            pass  # the digest says that all is well
        assert await user.fetchval("SELECT to_regproc('forebay.write')") is None
        await user.execute("UPDATE forebay.functions SET digest = 'of an earlier version'")
    async with PostgresLog(postgres_dsn) as log:
        await push(log, await log.queue("orders"), "b")


async def test_servers_that_run_go_on_while_functions_are_replaced(postgres_dsn: str) -> None:
    """A rolling upgrade: what is in flight may have to be tried again, and nothing is lost."""
    done = asyncio.Event()
    pushed: list[str] = []

    async def push_on(log: PostgresLog, name: str) -> None:
        queue = await log.queue("orders")
        group = await log.create_group(queue, name)
        number = 0
        while not done.is_set():
            try:
                await push(log, queue, f"{name}-{number}")
            except Unavailable:
                continue
            pushed.append(f"{name}-{number}")
            number += 1
            try:
                claims = (await log.claim(group, "owner")).claims
                await log.commit(settlements=[claim.settle_all() for claim in claims], atomic=True)
            except ForebayError as error:
                assert isinstance(error, Unavailable), error  # noqa: PT017 - only this one

    async with PostgresLog(postgres_dsn) as log, connected(postgres_dsn) as user:
        queue = await log.create_queue("orders")
        async with asyncio.TaskGroup() as tasks:
            for name in "abcd":
                tasks.create_task(push_on(log, name))
            for _ in range(8):
                await user.execute("UPDATE forebay.functions SET digest = 'older'")
                async with PostgresLog(postgres_dsn):
                    pass
            done.set()
        found = await stored(log, queue)
        assert len(found) == len(set(found))
        assert set(pushed) <= set(found)


async def test_the_databases_own_defaults_are_overridden(postgres_dsn: str) -> None:
    """Under a stricter isolation a lock would be followed by an old snapshot."""
    name = postgres_dsn.rpartition("/")[2]
    async with connected(postgres_dsn) as user:
        await user.execute(f"ALTER DATABASE {name} SET default_transaction_isolation = 'repeatable read'")
    async with PostgresLog(postgres_dsn) as one, PostgresLog(postgres_dsn) as two:
        queue = await one.create_queue("orders")
        group = await one.create_group(queue, "workers")
        for _ in range(10):
            await asyncio.gather(
                *(push(log, queue, "a") for _ in range(4) for log in (one, two)),
                *(drain(log, group) for log in (one, two)),
            )


async def test_one_connection_is_enough(postgres_dsn: str) -> None:
    async with PostgresLog(postgres_dsn, connections_max=1, timeout_seconds=5) as log:
        await work(log)
        with pytest.raises(ForebayError, match="did you mean 'orders'"):
            await log.configure_queue("order", {})
        await log.sweep()
        await log.trim()
