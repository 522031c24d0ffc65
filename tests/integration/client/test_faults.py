"""What a client does when the network or the server fails: again where it may, and never twice the same."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import trustme

from forebay.client import Client
from forebay.client import client as client_module
from forebay.log.sqlite import SqliteLog
from forebay.model import LeaseLost, Misconfigured, Rejected, Unauthorized, Unavailable
from tests.integration.client.serving import Server
from tests.servers import FaultProxy


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    async with Server() as started:
        yield started


@pytest.fixture
async def proxy(server: Server) -> AsyncIterator[FaultProxy]:
    async with FaultProxy(server.port) as started:
        yield started


@pytest.fixture
async def client(proxy: FaultProxy) -> AsyncIterator[Client]:
    async with Client(f"http://127.0.0.1:{proxy.port}", timeout_seconds=10) as opened:
        await opened.create_queue("orders")
        yield opened


async def accepted(server: Server) -> int:
    """How many messages were written."""
    return (await server.store.ledger()).queues[0].groups[0].accepted


async def test_a_push_whose_answer_is_lost_is_one_write(
    server: Server, proxy: FaultProxy, client: Client
) -> None:
    lost = proxy.cut_after_client_bytes(b"POST /v1/queues/orders/messages")
    ids = await client.put_task("orders", b"a", b"b")
    assert lost.is_set()
    assert await accepted(server) == 2
    assert [task.id for task in await client.get_task("orders", 9)] == ids


async def test_a_delayed_push_whose_answer_is_lost_is_one_write(
    server: Server, proxy: FaultProxy, client: Client
) -> None:
    lost = proxy.cut_after_client_bytes(b"delay_seconds=5")
    (first,) = await client.put_task("orders", b"a", delay=5)
    assert lost.is_set()
    assert (await accepted(server), first > 0) == (1, True)


async def test_a_request_that_never_arrived_is_sent_again(
    server: Server, proxy: FaultProxy, client: Client
) -> None:
    lost = proxy.cut_before_client_bytes(b"POST /v1/queues/orders/messages")
    await client.put_task("orders", b"a")
    assert lost.is_set()
    assert await accepted(server) == 1


async def test_idle_connections_that_were_cut_are_made_anew(proxy: FaultProxy, client: Client) -> None:
    for _ in range(3):
        assert proxy.cut() > 0
        await client.put_task("orders", b"a")
    assert len(await client.get_task("orders", 9)) == 3


async def settled(
    client: Client, path: bytes, proxy: FaultProxy, work: Callable[[], Awaitable[object]]
) -> None:
    """Settle, with the first answer lost."""
    lost = proxy.cut_after_client_bytes(b"POST " + path)
    await work()
    assert lost.is_set()
    assert await client.get_task("orders", 9) == []


async def test_tasks_that_come_back_are_not_lost_with_the_answer(proxy: FaultProxy, client: Client) -> None:
    await client.put_task("orders", b"a", b"b")
    tasks = await client.get_task("orders", 2)
    await settled(client, b"/v1/retry", proxy, lambda: client.retry_task(tasks, delay=60))


async def test_done_is_done_though_its_answer_was_lost(
    server: Server, proxy: FaultProxy, client: Client
) -> None:
    await client.put_task("orders", b"a", b"b", b"c")
    tasks = await client.get_task("orders", 3)
    await client.retry_task(tasks[2:])
    tasks[2:] = await client.get_task("orders")
    await settled(client, b"/v1/settle", proxy, lambda: client.done_task(tasks))
    assert (await server.store.ledger()).queues[0].groups[0].done == 3


async def test_buried_is_dead_though_its_answer_was_lost(proxy: FaultProxy, client: Client) -> None:
    await client.put_task("orders", b"a", b"b")
    tasks = await client.get_task("orders", 2)
    await settled(client, b"/v1/settle", proxy, lambda: client.settle(done=tasks[:1], bury=tasks[1:]))
    assert len(await client.dead_letters("orders")) == 1


async def test_a_lease_that_was_lost_before_is_lost_though_an_answer_was_too(
    proxy: FaultProxy, client: Client
) -> None:
    await client.put_task("orders", b"a", b"b")
    tasks = await client.get_task("orders", 2)
    await client.retry_task(tasks[:1])
    (again,) = await client.get_task("orders")
    await client.done_task([again])  # somebody else has done it, after one more attempt
    lost = proxy.cut_after_client_bytes(b"POST /v1/settle")
    with pytest.raises(LeaseLost) as caught:
        await client.done_task(tasks)
    assert lost.is_set()
    assert caught.value.ids == [tasks[0].id]


async def test_when_nothing_can_be_found_out_the_doubt_is_told(
    server: Server, proxy: FaultProxy, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def hidden(_: int) -> Any:
        raise Rejected("not for you")

    await client.put_task("orders", b"a")
    tasks = await client.get_task("orders")
    monkeypatch.setattr(server.store, "where", hidden)
    proxy.cut_after_client_bytes(b"POST /v1/settle")
    with pytest.raises(LeaseLost, match=r"maybe by your own doing.*look with `where`") as caught:
        await client.done_task(tasks)
    assert caught.value.in_doubt


async def test_what_is_lost_does_not_hide_what_was_not_looked_at(
    proxy: FaultProxy, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("forebay.client.client.LOOKED_AT_MAX", 1)
    await client.put_task("orders", b"a", b"b")
    tasks = await client.get_task("orders", 2)
    await client.retry_task(tasks[:1])
    await client.get_task("orders")
    proxy.cut_after_client_bytes(b"POST /v1/settle")
    with pytest.raises(LeaseLost) as caught:
        await client.done_task(tasks)
    assert caught.value.ids == [task.id for task in tasks]
    assert caught.value.in_doubt


async def test_what_can_not_be_repeated_says_that_nobody_knows(proxy: FaultProxy, client: Client) -> None:
    lost = proxy.cut_after_client_bytes(b"POST /v1/queues/orders/dead/redrive")
    with pytest.raises(Unavailable, match="nobody knows whether it was done"):
        await client.redrive("orders")
    assert lost.is_set()


async def test_what_can_not_be_repeated_is_when_it_was_never_sent(server: Server) -> None:
    async with Client(server.url, timeout_seconds=10) as client:
        await client.create_queue("orders")
        await server.stop()
        redriving = asyncio.create_task(client.redrive("orders", dry_run=False))
        await asyncio.sleep(0)
        await server.start()
        assert len(await redriving) == 0


async def test_a_server_that_is_not_there_is_unavailable_with_a_hint(server: Server) -> None:
    await server.stop()
    async with Client(server.url, key="s3cret", timeout_seconds=2) as client:
        with pytest.raises(Unavailable, match=r"no server at http.*`forebay serve`") as caught:
            await client.put_task("orders", b"a")
    assert "s3cret" not in repr(caught.value)
    assert caught.value.__cause__ is caught.value.__context__ is None  # those would show the request


async def test_a_server_that_says_nothing_is_given_up_in_time(proxy: FaultProxy) -> None:
    proxy.blackhole()
    async with Client(f"http://127.0.0.1:{proxy.port}", timeout_seconds=0.2) as client:
        with pytest.raises(Unavailable, match="did not answer in time"):
            async with asyncio.timeout(10):
                await client.queues()


async def test_who_waits_outlives_a_restart_of_the_server(tmp_path: Path) -> None:
    async with Server(SqliteLog(tmp_path / "log.db")) as server, Client(server.url) as client:
        await client.create_queue("orders")
        waiting = asyncio.create_task(client.get_task("orders", wait_seconds=300))
        await server.waiting()
        await server.stop()
        await server.start()
        await client.put_task("orders", b"a")
        async with asyncio.timeout(20):
            assert [task.data for task in await waiting] == [b"a"]


async def test_a_long_wait_is_made_of_short_ones(
    server: Server, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_module, "WAIT_SECONDS", 0.05)
    assert await client.get_task("orders", wait_seconds=0.5) == []
    assert server.requests("/v1/queues/{queue}/take") >= 2


async def test_who_stops_waiting_lets_go_of_the_server(server: Server, client: Client) -> None:
    waiting = asyncio.create_task(client.get_task("orders", wait_seconds=300))
    await server.waiting()
    waiting.cancel()
    await server.waiting(0)
    await client.put_task("orders", b"a")
    assert len(await client.get_task("orders")) == 1


async def test_takes_that_wait_take_no_connection_from_the_others(server: Server) -> None:
    async with Client(server.url, connections_max=2) as client:
        await client.create_queue("orders")
        waiting = [asyncio.create_task(client.get_task("orders", wait_seconds=300)) for _ in range(2)]
        await server.waiting(2)
        async with asyncio.timeout(10):
            await client.put_task("orders", b"a", b"b")
            assert [len(await task) for task in waiting] == [1, 1]


async def test_an_error_is_the_same_as_that_of_a_store_here(client: Client) -> None:
    with pytest.raises(Rejected, match="did you mean 'orders'"):
        await client.get_task("order")
    await client.put_task("orders", b"a")
    (task,) = await client.get_task("orders")
    await client.done_task([task])
    with pytest.raises(LeaseLost) as caught:
        await client.done_task([task])
    assert caught.value.ids == [task.id]


async def test_a_client_that_is_not_open_says_so(server: Server) -> None:
    client = Client(server.url)
    with pytest.raises(Rejected, match="async with"):
        await client.queues()
    async with client:
        with pytest.raises(Rejected, match="open already"):
            await client.__aenter__()
        await client.create_queue("orders")
    with pytest.raises(Rejected, match="async with"):
        await client.put_task("orders", b"x")


async def test_a_server_that_is_none_of_ours_is_recognised() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 0\r\n\r\n")
        await writer.drain()
        writer.close()

    stranger = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = stranger.sockets[0].getsockname()[1]
    async with stranger, Client(f"http://127.0.0.1:{port}", timeout_seconds=5) as client:
        with pytest.raises(Rejected, match="answered 302, and not as a Forebay server does"):
            await client.queues()


async def test_a_full_server_is_asked_again_when_it_said(server: Server, client: Client) -> None:
    await client.put_task("orders", b"a")
    answers: list[int] = []
    read = server.store.queues

    async def busy(**page: Any) -> Any:
        answers.append(len(answers))
        if len(answers) < 3:
            raise Unavailable("full", retry_after_seconds=0.01)
        return await read(**page)

    server.store.queues = busy  # type: ignore[method-assign]
    assert [queue.name for queue in await client.queues()] == ["orders"]
    assert answers == [0, 1, 2]


async def test_a_server_that_stays_full_is_given_up_with_its_own_words(server: Server) -> None:
    async with Client(server.url, timeout_seconds=0.5) as client:

        async def busy(**_: Any) -> Any:
            raise Unavailable("full", retry_after_seconds=7)

        server.store.queues = busy  # type: ignore[method-assign]
        async with asyncio.timeout(5):
            with pytest.raises(Unavailable, match="full") as caught:
                await client.queues()
    assert caught.value.retry_after_seconds == 7


async def test_many_small_puts_share_requests_and_each_gets_its_own_ids(
    server: Server, client: Client
) -> None:
    ids = await asyncio.gather(*(client.put_task("orders", b"%d" % i) for i in range(500)))
    assert len({id for (id,) in ids}) == 500
    tasks = {task.id: task.data for task in await client.get_task("orders", 1_000)}
    assert [tasks[id] for (id,) in ids] == [b"%d" % i for i in range(500)]
    assert server.requests("/v1/queues/{queue}/messages") < 20


class OneKey:
    """A ring with one key."""

    def admit(self, authorization: str | None, scope: str) -> None:
        assert scope == "read"
        if authorization != "Bearer s3cret":
            raise Unauthorized("no valid key", hint="give one")


async def test_a_key_is_sent_and_not_told() -> None:
    async with Server(keys=OneKey()) as server:
        async with Client(server.url, key="s3cret") as client:
            assert await client.queues() == []
        async with Client(server.url, key="an0ther") as client:
            with pytest.raises(Unauthorized) as caught:
                await client.queues()
    told = "".join(traceback.format_exception(caught.value)) + repr(caught.value)
    assert "an0ther" not in told


async def test_a_certificate_is_checked(tmp_path: Path) -> None:
    authority = trustme.CA()
    certificate = authority.issue_cert("127.0.0.1")
    certificate.private_key_and_cert_chain_pem.write_to_path(tmp_path / "server.pem")
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    pem = str(tmp_path / "server.pem")
    async with Server(tls_certificate=pem, tls_key=pem) as server:
        async with Client(server.url, ca_file=tmp_path / "ca.pem") as client:
            await client.create_queue("orders")
        async with Client(server.url, timeout_seconds=5) as client:
            with pytest.raises(Misconfigured, match="ca_file"):
                await client.queues()
