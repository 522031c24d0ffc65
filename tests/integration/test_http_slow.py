"""Slow, stalled and vanished clients hold nothing up; waiting takers cost next to nothing."""

import asyncio
import json
import re
import resource
import select
import signal
import socket
import struct
import time
from collections.abc import Callable, Iterator
from itertools import count
from typing import Final

import pytest

from tests.integration.http_wire import Wire, ask, request, scrape
from tests.servers import ForebayServer

LIMITS: Final = {"request_seconds": 2.0, "idle_seconds": 2.0, "connections_max": 40}
"""As little patience as a busy machine allows: who isn't slow on purpose is to be in time."""
TAKE: Final = "/v1/queues/orders/take"
MESSAGES: Final = "/v1/queues/orders/messages"
WAITERS: Final = 2_000
DEADLINE_SECONDS: Final = 60.0


@pytest.fixture(scope="module")
def forebay_server() -> Iterator[ForebayServer]:
    """Give a server without patience."""
    with ForebayServer(limits=LIMITS) as server:
        ask(server.port, "PUT", "/v1/queues/orders", {})
        yield server


def metric(port: int, name: str) -> float:
    """A number of the server's own."""
    text = scrape(port)
    found = re.search(rf"^{re.escape(name)} (\S+)$", text, re.MULTILINE)
    return float(found[1]) if found else 0.0


def until(condition: Callable[[], bool]) -> None:
    """Ask again until it is so; each time the server is asked."""
    end = time.monotonic() + DEADLINE_SECONDS
    while not condition():
        assert time.monotonic() < end, "it did not come true"


def trickle(wire: Wire, data: bytes) -> None:
    """Send byte by byte, slower than the server likes, until it answers."""
    wire.socket.settimeout(0.1)
    for i in count():
        try:
            wire.send(data[i % len(data) : i % len(data) + 1])
            if wire.socket.recv(1, socket.MSG_PEEK):
                break
        except TimeoutError:
            continue
    wire.socket.settimeout(10)


def test_a_head_that_comes_byte_by_byte_is_late(forebay_server: ForebayServer) -> None:
    with Wire(forebay_server.port) as wire:
        wire.send(b"GET /healthz HTTP/1.1\r\nX-Slow: ")
        trickle(wire, b"v")
        wire.answer().problem(408)
        assert wire.is_closed()


def test_a_body_that_comes_byte_by_byte_is_late(forebay_server: ForebayServer) -> None:
    with Wire(forebay_server.port) as wire:
        wire.send(request("POST", MESSAGES, None, {"Content-Length": "1000"}))
        trickle(wire, b" ")
        wire.answer().problem(408)
        assert wire.is_closed()


def test_a_stream_that_comes_byte_by_byte_is_late_and_says_what_it_kept(
    forebay_server: ForebayServer,
) -> None:
    lines = b"".join(b'{"payload": %d}\n' % i for i in range(1_000))
    with Wire(forebay_server.port) as wire:
        headers = {"Content-Length": "1000000", "Content-Type": "application/x-ndjson"}
        wire.send(request("POST", "/v1/queues/slow/messages", lines, headers))
        trickle(wire, b"\n")
        assert wire.answer().problem(408)["accepted"] == 1_000
        assert wire.is_closed()


def test_who_connects_and_says_nothing_is_told_so(forebay_server: ForebayServer) -> None:
    with Wire(forebay_server.port) as wire:
        wire.answer().problem(408)
        assert wire.is_closed()


def test_an_idle_connection_is_closed(forebay_server: ForebayServer) -> None:
    with Wire(forebay_server.port) as wire:
        assert wire.ask("GET", "/healthz").status == 200
        assert wire.is_closed()


def test_empty_lines_between_requests_keep_no_connection_open(forebay_server: ForebayServer) -> None:
    with Wire(forebay_server.port) as wire:
        assert wire.ask("GET", "/healthz").status == 200
        wire.send(b"\r\n")
        wire.answer().problem(408)
        assert wire.is_closed()


def test_a_head_that_waits_behind_a_long_poll_may_take_as_long(forebay_server: ForebayServer) -> None:
    later = request("GET", "/healthz")
    with Wire(forebay_server.port) as wire:
        wire.send(request("POST", TAKE, b'{"wait_seconds": 4}') + later[:8])
        assert wire.answer().json() == {"tasks": []}
        wire.send(later[8:])
        assert wire.answer().status == 200


def test_who_does_not_read_is_cut_off_and_forgotten(forebay_server: ForebayServer) -> None:
    port = forebay_server.port
    item = {"payload": "x" * 900_000}
    for _ in range(16):
        assert ask(port, "POST", "/v1/queues/large/messages", [item]).status == 201
    refused = 'forebay_http_refused_total{reason="client does not read"}'
    before = metric(port, refused)
    with Wire(port, receive_bytes=4_096) as wire:
        wire.send(request("GET", "/v1/queues/large/peek?count=16"))
        until(lambda: metric(port, refused) > before)
        until(lambda: metric(port, "forebay_http_connections") <= 1)


def test_who_reads_slowly_gets_all_of_it() -> None:
    with ForebayServer(limits=LIMITS) as server:
        for _ in range(8):
            item = {"payload": "x" * 900_000}
            assert ask(server.port, "POST", "/v1/queues/slowly/messages", [item]).status == 201
        with Wire(server.port, receive_bytes=65_536) as wire:
            wire.send(request("GET", "/v1/queues/slowly/peek?count=8"))
            for _ in range(2):  # twice the server's time passes, while others wait for it
                with Wire(server.port) as waiting:
                    while not select.select([waiting.socket], [], [], 0.1)[0]:
                        wire.receive(32_768)
                    waiting.answer().problem(408)
            assert len(wire.answer().json()["messages"]) == 8


def test_connections_beyond_the_limit_are_told_so(forebay_server: ForebayServer) -> None:
    port = forebay_server.port
    until(lambda: metric(port, "forebay_http_connections") <= 1)
    taking = request("POST", TAKE, b'{"wait_seconds": 30}')
    held = [Wire(port) for _ in range(40)]
    for wire in held:
        wire.send(taking)
    with Wire(port) as one_more:
        one_more.send(request("GET", "/healthz"))
        answer = one_more.answer()
        answer.problem(503)
        assert answer.headers["retry-after"]
    for wire in held:
        wire.socket.close()
    until(lambda: forebay_server.answers("/readyz"))


@pytest.mark.parametrize("how", ["closed", "reset", "half-closed", "pipelined"])
def test_a_long_poller_that_leaves_takes_nothing(forebay_server: ForebayServer, how: str) -> None:
    port = forebay_server.port
    queue = f"/v1/queues/left-{how}"
    ask(port, "PUT", queue, {})
    with Wire(port) as wire:
        wire.send(request("POST", f"{queue}/take", b'{"wait_seconds": 30}'))
        until(lambda: metric(port, "forebay_http_waiting") == 1)
        if how == "pipelined":
            wire.send(request("GET", "/healthz"))
        if how == "reset":
            wire.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        if how == "half-closed":
            wire.socket.shutdown(socket.SHUT_WR)
        else:
            wire.socket.close()
        until(lambda: metric(port, "forebay_http_waiting") == 0)
    ask(port, "POST", f"{queue}/messages", [{"payload": 1}])
    assert ask(port, "GET", "/v1/running").json() == {"running": []}
    assert len(ask(port, "GET", f"{queue}/peek").json()["messages"]) == 1


async def wait_for_a_task(port: int) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request("POST", TAKE, b'{"wait_seconds": 60}'))
    await reader.readuntil(b"HTTP/1.1 ")
    status = await reader.readuntil(b"\r\n\r\n")
    assert status.startswith(b"200")
    body = await reader.readexactly(len(b'{"tasks":[]}'))
    writer.close()
    return body


async def test_thousands_of_waiting_takers_cost_little_and_are_sent_home() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < WAITERS + 500:
        pytest.skip(f"only {hard} files may be open here")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, WAITERS + 500), hard))
    try:
        with ForebayServer() as server:
            await asyncio.to_thread(ask, server.port, "PUT", "/v1/queues/orders", {})
            before = server.rss_mb
            takers = [asyncio.create_task(wait_for_a_task(server.port)) for _ in range(WAITERS)]

            def all_wait() -> bool:
                return metric(server.port, "forebay_http_waiting") == WAITERS

            await asyncio.to_thread(until, all_wait)
            assert server.rss_mb - before < WAITERS * 0.04
            assert (await asyncio.to_thread(ask, server.port, "GET", "/readyz")).status == 200
            server.signal(signal.SIGTERM)
            bodies = await asyncio.gather(*takers)
            assert {json.dumps(json.loads(body)) for body in bodies} == {'{"tasks": []}'}
            assert await asyncio.to_thread(server.wait) == 0
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
