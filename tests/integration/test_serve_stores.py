"""A server on PostgreSQL and Valkey: the whole way of a message, and messages that come in by SQL."""

import asyncio
import contextlib
from collections.abc import Iterator
from pathlib import Path

import asyncpg
import pytest

import forebay
from tests.awake import Awake
from tests.integration.http_wire import ask, scrape
from tests.integration.test_commands import forebay as command
from tests.servers import ForebayServer, ValkeyServer


@pytest.fixture
def server(postgres_dsn: str, valkey_url: str) -> Iterator[ForebayServer]:
    """Give a server that shares its log and its warm tier."""
    with ForebayServer(postgres_dsn, flags=["--warm", valkey_url]) as server:
        yield server


async def test_messages_go_through_and_two_servers_share_them(
    server: ForebayServer, postgres_dsn: str, valkey_url: str
) -> None:
    with contextlib.closing(ForebayServer(postgres_dsn, flags=["--warm", valkey_url])) as other:
        await asyncio.to_thread(other.start)
        async with forebay.open(server.url) as here, forebay.open(other.url) as there:
            await here.create_queue("orders")
            ids = await here.put_task("orders", *[b"%d" % number for number in range(100)])
            taken: dict[int, bytes] = {}
            while len(taken) < 100:
                for store in (here, there):
                    tasks = await store.get_task("orders", 30, wait_seconds=1)
                    taken |= {task.id: task.data for task in tasks}
                    await store.done_task(tasks)
            assert sorted(taken) == ids
            (books,) = (await there.ledger()).queues
            assert (books.groups[0].done, books.groups[0].ready) == (100, 0)
        assert ask(other.port, "GET", "/v1/config").json()["store.warm"] == valkey_url


async def test_what_is_pushed_in_sql_reaches_a_taker_that_waits(
    server: ForebayServer, postgres_dsn: str, awake: Awake
) -> None:
    async with forebay.open(server.url) as store:
        await store.create_queue("orders")
        connection = await asyncpg.connect(postgres_dsn)
        try:
            taking = asyncio.create_task(store.get_task("orders", 10, wait_seconds=20))
            async with connection.transaction():
                await connection.execute("SELECT forebay.push('orders', '{\"order\": 42}')")
                assert not taking.done()
            began = awake()
            (task,) = await taking
        finally:
            await connection.close()
        assert task.data == b'{"order": 42}'
        # A sweep a second, and a busy machine.
        assert awake() - began < 5
        await store.done_task([task])


def test_a_warm_tier_that_is_not_there_is_told_everywhere_until_it_is(awake: Awake) -> None:
    with (
        contextlib.closing(ValkeyServer()) as valkey,
        ForebayServer(flags=["--warm", valkey.url]) as server,
    ):
        assert f"Valkey at 127.0.0.1:{valkey.port}/0 is out of reach" in server.log.read_text()
        ready = ask(server.port, "GET", "/readyz")
        assert (ready.status, ready.json()["ready"]) == (200, True), "it works from its own memory"
        assert ready.json()["parts"]["warm"].startswith("away, and this server works from its own memory")
        health = ask(server.port, "GET", "/health")
        assert (health.status, health.json()["status"]) == (200, "degraded")
        assert (health.json()["database"], health.json()["warm"]) == ("connected", "disconnected")
        assert "forebay_warm_healthy 0.0" in scrape(server.port)
        valkey.start()
        until = awake() + 60
        while ask(server.port, "GET", "/health").json()["status"] != "healthy":
            assert awake() < until, "it is back, and nobody has noticed"
        assert ask(server.port, "GET", "/readyz").json()["parts"]["warm"] == "ok"


def test_a_server_with_its_own_warm_tier_says_nothing_of_another(forebay_server: ForebayServer) -> None:
    assert "warm" not in ask(forebay_server.port, "GET", "/readyz").json()["parts"]
    health = ask(forebay_server.port, "GET", "/health").json()
    assert (health["status"], health["warm"]) == ("healthy", None)
    assert "forebay_warm_healthy" not in scrape(forebay_server.port)


def test_the_log_of_a_server_may_come_from_the_variable_of_commands(tmp_path: Path) -> None:
    variables = {"FOREBAY_STORE": f"sqlite:///{tmp_path / 'mine.db'}"}
    with ForebayServer(variables=variables) as server:
        assert ask(server.port, "GET", "/v1/config").json()["store.url"] == variables["FOREBAY_STORE"]
        assert not (server.data / "forebay.db").exists()
    assert (tmp_path / "mine.db").exists()


async def test_rows_that_the_inbox_rejects_are_told_everywhere(
    postgres_dsn: str, awake: Awake, tmp_path: Path
) -> None:
    with ForebayServer(postgres_dsn) as server:
        async with forebay.open(server.url) as store:
            await store.create_queue("orders")
            assert await store.inbox_rejected() == []
            assert "forebay_inbox_rejected 0.0" in scrape(server.port)
            connection = await asyncpg.connect(postgres_dsn)
            try:
                await connection.execute("SELECT forebay.push('orders', 'x', partition => E'\\t')")
            finally:
                await connection.close()
            until = awake() + 60
            while "forebay_inbox_rejected 1.0" not in scrape(server.port):
                assert awake() < until, "nobody has counted it"
            (row,) = await store.inbox_rejected()
        assert (row.queue, row.partition) == ("orders", "\t")
        assert "rows of the SQL inbox are rejected" in server.log.read_text()
        (listed,) = ask(server.port, "GET", "/v1/inbox/rejected?limit=5").json()["rejected"]
        assert (listed["queue"], listed["reason"]) == ("orders", row.reason)
        for address in (server.url, postgres_dsn):
            run = await asyncio.to_thread(command, "inbox", "--store", address, cwd=tmp_path)
            assert (run.returncode, run.stdout.count("orders")) == (1, 1)
        findings = await asyncio.to_thread(command, "doctor", "--store", postgres_dsn, cwd=tmp_path)
        assert "inbox: 1 rows are rejected, and reach no queue" in findings.stdout
        swept = await asyncio.to_thread(command, "upkeep", "--store", postgres_dsn, cwd=tmp_path)
        assert "see `forebay inbox`" in swept.stderr
