"""Whatever a destination does: a class, a reason, bounds of memory and time, and the next request is fine."""

import asyncio
import socket

import pytest

from forebay.deliver.values import ANSWER_BYTES_KEPT, ErrorClass
from tests.integration.deliver.sending import HANG_SECONDS, deliver, destination
from tests.integration.work.steps import until
from tests.servers.destination import DestinationServer, Received, answer, answers


@pytest.mark.parametrize(
    "raw",
    [
        b"garbage that is no HTTP at all\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01",
        b"HTTP/1.1 abc OK\r\n\r\n",
        b"HTTP/9.9 200 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: many\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"SSH-2.0-OpenSSH_9.2p1\r\n",
        b"220 mail.example ESMTP\r\n",
    ],
)
async def test_garbage_is_a_network_failure(raw: bytes) -> None:
    async with DestinationServer(answers(raw, answer())) as server, destination(server.url) as to:
        outcome = await deliver(to)
        assert (outcome.error_class, outcome.status, outcome.is_retried) == (ErrorClass.NETWORK, None, True)
        assert (await deliver(to)).is_delivered
        assert server.connections == 2


async def test_a_destination_that_hangs_times_out() -> None:
    gate = asyncio.Event()

    async def hang(_: Received, __: asyncio.StreamWriter) -> None:
        await gate.wait()

    async with DestinationServer(hang) as server, destination(server.url, timeout_seconds=HANG_SECONDS) as to:
        outcome = await deliver(to)
        gate.set()
    assert (outcome.error_class, outcome.is_retried) == (ErrorClass.TIMEOUT, True)
    assert "in time" in outcome.reason


async def test_a_destination_that_accepts_nothing_times_out() -> None:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(0)
        url = f"http://127.0.0.1:{listening.getsockname()[1]}/"
        async with destination(url, timeout_seconds=HANG_SECONDS) as to:
            assert (await deliver(to)).error_class is ErrorClass.TIMEOUT


async def test_a_head_that_trickles_times_out() -> None:
    async def trickle(_: Received, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\n")
        while not writer.is_closing():
            writer.write(b"x: y\r\n")
            await asyncio.wait([over_task], timeout=0.01)

    over = asyncio.Event()
    over_task = asyncio.create_task(over.wait())
    async with (
        DestinationServer(trickle) as server,
        destination(server.url, timeout_seconds=HANG_SECONDS) as to,
    ):
        assert (await deliver(to)).error_class is ErrorClass.TIMEOUT
    over.set()
    await over_task


async def test_nothing_listening_is_a_network_failure() -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
    async with destination(f"http://127.0.0.1:{port}/") as to:
        outcome = await deliver(to)
    assert (outcome.error_class, outcome.is_retried) == (ErrorClass.NETWORK, True)
    assert f"127.0.0.1:{port}" in outcome.reason


async def test_a_name_that_does_not_resolve_is_a_network_failure() -> None:
    async with destination("http://no-such-host.invalid/") as to:
        outcome = await deliver(to)
    assert outcome.error_class is ErrorClass.NETWORK
    assert "no-such-host.invalid" in outcome.reason


@pytest.mark.parametrize("raw", [b"", b"HT", b"HTTP/1.1 200 OK\r\nContent-Le"])
@pytest.mark.parametrize("how", ["close", "abort"])
async def test_an_end_before_the_whole_head_is_a_network_failure(raw: bytes, how: str) -> None:
    async def end(_: Received, writer: asyncio.StreamWriter) -> None:
        writer.write(raw)
        await writer.drain()
        writer.close() if how == "close" else writer.transport.abort()

    async with DestinationServer(end) as server, destination(server.url) as to:
        outcome = await deliver(to)
        assert (outcome.error_class, outcome.is_retried) == (ErrorClass.NETWORK, True)
        assert len(server.received) == 1


@pytest.mark.parametrize(("status", "kind"), [(200, None), (503, ErrorClass.SERVER_ERROR)])
async def test_once_the_head_is_there_its_status_counts_although_the_body_is_cut(
    status: int, kind: ErrorClass | None
) -> None:
    async def cut(_: Received, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 %d X\r\nContent-Length: 100\r\n\r\nstart" % status)
        await writer.drain()
        writer.close()

    async with DestinationServer(cut) as server, destination(server.url) as to:
        outcome = await deliver(to)
        assert (outcome.status, outcome.error_class, outcome.answer) == (status, kind, b"start")


async def test_a_body_that_ends_with_the_connection_is_read() -> None:
    async def until_end(_: Received, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 X\r\n\r\nwhy it is bad")
        await writer.drain()
        writer.close()

    async with DestinationServer(until_end) as server, destination(server.url) as to:
        outcome = await deliver(to)
        assert (outcome.error_class, outcome.answer) == (ErrorClass.CLIENT_ERROR, b"why it is bad")


@pytest.mark.parametrize(
    "head", [b"Content-Length: 1000000000000\r\n", b"Transfer-Encoding: chunked\r\n", b""]
)
async def test_an_endless_body_is_cut_off_and_its_start_kept(head: bytes) -> None:
    sent = 0

    async def endless(_: Received, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        part = b"x" * 10_000
        writer.write(b"HTTP/1.1 500 X\r\n" + head + b"\r\n")
        while True:
            writer.write(b"2710\r\n" + part + b"\r\n" if b"chunked" in head else part)
            sent += len(part)
            await writer.drain()

    async with DestinationServer(endless) as server, destination(server.url) as to:
        outcome = await deliver(to)
        assert (outcome.status, outcome.answer) == (500, b"x" * ANSWER_BYTES_KEPT)
        server.behaviour = answers(answer())
        assert (await deliver(to)).is_delivered
    assert sent < 64 << 20


async def test_a_body_that_hangs_is_given_up_and_its_status_counts() -> None:
    gate = asyncio.Event()

    async def hang(_: Received, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nstart")
        await gate.wait()

    async with DestinationServer(hang) as server, destination(server.url) as to:
        sending = asyncio.create_task(deliver(to))
        await server.arrived.wait()
        (connection,) = to._pool._open
        await until(lambda: connection._parser.body == b"start", "the head and the start are there")
        # On a machine that stalls its own timer might come before the head.
        connection._time_out()
        outcome = await sending
        gate.set()
    assert (outcome.is_delivered, outcome.answer) == (True, b"start")


async def test_an_endless_head_is_a_network_failure() -> None:
    async def endless(_: Received, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\n")
        while True:
            writer.write(b"X-Header: " + b"y" * 1_000 + b"\r\n")
            await writer.drain()

    async with DestinationServer(endless) as server, destination(server.url) as to:
        outcome = await deliver(to)
        assert outcome.error_class is ErrorClass.NETWORK
        assert "head" in outcome.reason


async def test_an_endless_line_in_the_head_is_a_network_failure() -> None:
    async def endless(_: Received, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nX: ")
        while True:
            writer.write(b"y" * 1_000)
            await writer.drain()

    async with DestinationServer(endless) as server, destination(server.url) as to:
        assert (await deliver(to)).error_class is ErrorClass.NETWORK


async def test_interim_answers_without_end_are_a_network_failure() -> None:
    async def endless(_: Received, writer: asyncio.StreamWriter) -> None:
        while True:
            writer.write(b"HTTP/1.1 100 Continue\r\n\r\n" * 100)
            await writer.drain()

    async with DestinationServer(endless) as server, destination(server.url) as to:
        assert (await deliver(to)).error_class is ErrorClass.NETWORK


async def test_an_answer_that_nobody_asked_for_is_never_taken_for_another_one() -> None:
    async def twice(got: Received, writer: asyncio.StreamWriter) -> None:
        writer.write(answer(200, got.body) + answer(500, b"forged"))
        await writer.drain()

    async with DestinationServer(twice) as server, destination(server.url) as to:
        for body in (b"one", b"two", b"three"):
            outcome = await deliver(to, body)
            assert (outcome.status, outcome.answer) == (200, body)
        assert server.connections == 3


async def test_an_answer_that_comes_while_nothing_is_out_ends_the_connection() -> None:
    gate = asyncio.Event()

    async def later(got: Received, writer: asyncio.StreamWriter) -> None:
        writer.write(answer(200, got.body))
        if got.body == b"one":
            await gate.wait()
            writer.write(answer(500, b"forged"))

    async with DestinationServer(later) as server, destination(server.url, idle_seconds=600.0) as to:
        assert (await deliver(to, b"one")).answer == b"one"
        gate.set()
        await asyncio.wait_for(server.emptied.wait(), 60)
        outcome = await deliver(to, b"two")
        assert (outcome.status, outcome.answer) == (200, b"two")


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_is_not_followed(status: int) -> None:
    async with DestinationServer() as other, DestinationServer() as server, destination(server.url) as to:
        server.behaviour = answers(answer(status, b"", f"Location: {other.url}"))
        outcome = await deliver(to)
        assert (outcome.error_class, outcome.is_retried) == (ErrorClass.CLIENT_ERROR, False)
        assert other.connections == 0


async def test_a_switch_of_protocols_is_refused() -> None:
    raw = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\nframes"
    async with DestinationServer(answers(raw)) as server, destination(server.url) as to:
        assert (await deliver(to)).error_class is ErrorClass.CLIENT_ERROR
        assert (await deliver(to)).error_class is ErrorClass.CLIENT_ERROR
        assert server.connections == 2


async def test_retry_after_is_kept() -> None:
    async with (
        DestinationServer(answers(answer(429, b"slow down", "Retry-After: 7"))) as server,
        destination(server.url) as to,
    ):
        outcome = await deliver(to)
    assert (outcome.error_class, outcome.retry_after_seconds) == (ErrorClass.RATE_LIMIT, 7.0)
    assert outcome.answer == b"slow down"


async def test_an_early_answer_to_a_large_body_counts_and_costs_the_connection() -> None:
    connections = 0

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer(413, b"too large"))
        await writer.drain()
        await over.wait()
        writer.transport.abort()

    over = asyncio.Event()
    server = await asyncio.start_server(refuse, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
    async with server, destination(url) as to:
        for expected in (1, 2):
            outcome = await deliver(to, bytes(32 << 20))
            assert (outcome.error_class, outcome.answer) == (ErrorClass.TOO_LARGE, b"too large")
            assert connections == expected
        over.set()


@pytest.mark.parametrize("url", ["http://127.0.0.1:{}/", "http://localhost:{}/", "http://127.1:{}/"])
async def test_a_loopback_address_is_refused_unless_allowed(url: str) -> None:
    async with DestinationServer() as server:
        async with destination(url.format(server.port), allow_private=False) as to:
            outcome = await deliver(to)
        assert (outcome.error_class, outcome.status) == (ErrorClass.NETWORK, None)
        assert "loopback" in outcome.reason
        assert server.connections == 0


async def test_a_network_can_be_allowed() -> None:
    async with (
        DestinationServer() as server,
        destination(server.url, allow_private=False, allowed_networks=("127.0.0.0/8",)) as to,
    ):
        assert (await deliver(to)).is_delivered


async def test_the_address_of_every_connection_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    """DNS rebinding: a name that resolves otherwise the second time gains nothing."""
    found = ["127.0.0.1", "127.0.0.2"]
    async with DestinationServer(answers(answer(200, b"", "Connection: close"))) as server:

        async def resolve(*_: object, **__: object) -> list[tuple[object, ...]]:
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (found.pop(0), server.port))]

        monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", resolve)
        url = f"http://rebound.example:{server.port}/"
        async with destination(url, allow_private=False, allowed_networks=("127.0.0.1/32",)) as to:
            assert (await deliver(to)).is_delivered
            assert "127.0.0.2 (loopback)" in (await deliver(to)).reason
        assert server.connections == 1
