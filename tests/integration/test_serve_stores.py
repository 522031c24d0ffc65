"""A server on PostgreSQL and Valkey: the whole way of a message, and messages that come in by SQL."""

import asyncio
import contextlib
from collections.abc import Iterator

import asyncpg
import pytest

import forebay
from tests.awake import Awake
from tests.integration.http_wire import ask
from tests.servers import ForebayServer


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
