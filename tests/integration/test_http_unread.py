"""Answers that are not read hold a bounded amount of memory, and give it back."""

import json
import re
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import pytest
import trustme

from tests.integration.http_wire import SCRAPER, Wire, ask, request, scrape
from tests.servers import ForebayServer

UNREAD_BYTES_MAX: Final = 16 << 20
LARGE: Final = "/v1/queues/large/peek?count=16"
LARGE_BYTES: Final = 16 * 900_000
"""More than the kernel keeps of one connection, and less than the limit."""
REFUSED: Final = 'forebay_http_refused_total{reason="unread answers"}'
HELD: Final = "forebay_http_unread_bytes"
DEADLINE_SECONDS: Final = 60.0


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


def fill(port: int) -> None:
    """Put the messages of `LARGE`."""
    for _ in range(16):
        item = {"payload": "x" * 900_000}
        assert ask(port, "POST", "/v1/queues/large/messages", [item]).status == 201


@pytest.fixture
def forebay_server() -> Iterator[ForebayServer]:
    """Give a server with little room for unread answers; its clients may take their time."""
    with ForebayServer(limits={"unread_bytes_max": UNREAD_BYTES_MAX, "request_seconds": 600.0}) as server:
        fill(server.port)
        yield server


@pytest.fixture
def readers() -> Iterator[ExitStack]:
    """Hold connections whose answers are not read."""
    with ExitStack() as stack:
        yield stack


def take_all_room(port: int, readers: ExitStack) -> None:
    """Ask for more than there is room for, one answer after the other, and read none of it."""
    for number in (1, 2):
        readers.enter_context(Wire(port, receive_bytes=4_096)).send(request("GET", LARGE))
        until(lambda: metric(port, HELD) > number * LARGE_BYTES)  # noqa: B023 - it is called at once


def test_beyond_the_limit_reads_are_refused_until_answers_are_read_or_given_up(
    forebay_server: ForebayServer, readers: ExitStack
) -> None:
    port = forebay_server.port
    take_all_room(port, readers)
    held = metric(port, HELD)
    for _ in range(3):
        answer = ask(port, "GET", LARGE)
        assert "wait for their clients to read them" in answer.problem(503)["detail"]
        assert answer.headers["retry-after"] == "1"
    assert metric(port, HELD) == held
    assert metric(port, REFUSED) == 3
    assert ask(port, "POST", "/v1/queues/other/messages", [{"payload": 1}]).status == 201
    assert ask(port, "GET", "/v1/stats").status == 200
    readers.close()
    until(lambda: metric(port, HELD) == 0)
    assert len(ask(port, "GET", LARGE).json()["messages"]) == 16


def test_many_that_ask_at_once_do_not_pass_the_limit_together(
    forebay_server: ForebayServer, readers: ExitStack
) -> None:
    port = forebay_server.port
    wires = [readers.enter_context(Wire(port, receive_bytes=4_096)) for _ in range(12)]
    for wire in wires:
        wire.send(request("GET", LARGE))
    until(lambda: metric(port, REFUSED) == 10)
    assert metric(port, HELD) < UNREAD_BYTES_MAX + 1.1 * LARGE_BYTES


def test_an_answer_larger_than_the_limit_is_sent_when_there_is_room() -> None:
    with ForebayServer(limits={"unread_bytes_max": 1 << 20}) as server:
        fill(server.port)
        for _ in range(2):
            assert len(ask(server.port, "GET", LARGE).json()["messages"]) == 16


def test_a_log_is_not_read_while_too_much_is_unread_but_its_records_are(
    forebay_server: ForebayServer, readers: ExitStack
) -> None:
    port = forebay_server.port
    large = ask(port, "POST", "/v1/log/queue", {"name": "large"}).json()
    assert ask(port, "POST", "/v1/log/read", {"queue": large}).status == 200
    take_all_room(port, readers)
    ask(port, "POST", "/v1/log/read", {"queue": large}).problem(503)
    assert ask(port, "POST", "/v1/log/records", {"space": "s", "keys": ["k"]}).json() == []


def test_a_take_is_refused_before_anything_is_leased(
    forebay_server: ForebayServer, readers: ExitStack
) -> None:
    port = forebay_server.port
    take_all_room(port, readers)
    ask(port, "POST", "/v1/queues/large/take", {"count": 16}).problem(503)
    ask(port, "POST", "/v1/take", {"queues": ["large"], "count": 16}).problem(503)
    assert ask(port, "GET", "/api/v1/pop/queue/large?batch=16&wait=false").status == 503
    assert ask(port, "GET", "/v1/running").json() == {"running": []}
    assert metric(port, 'forebay_messages_total{what="taken"}') == 0


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/v1/queues/late/take", b'{"count": 3, "wait_seconds": 50}'),
        ("GET", "/api/v1/pop/queue/late?batch=3&wait=true&timeout=50000", None),
        ("GET", "/api/v1/pop/queue/late?batch=3&wait=true&timeout=50000&autoAck=true", None),
    ],
)
def test_tasks_of_a_take_that_waited_go_back_uncounted_and_in_order(
    forebay_server: ForebayServer, readers: ExitStack, method: str, path: str, body: bytes | None
) -> None:
    port = forebay_server.port
    configured = {"queue": "late", "options": {}}
    assert ask(port, "POST", "/api/v1/configure", configured).status in (200, 201)
    with Wire(port, timeout_seconds=DEADLINE_SECONDS) as waiting:
        waiting.send(request(method, path, body))
        until(lambda: metric(port, "forebay_http_waiting") == 1)
        take_all_room(port, readers)
        items = [
            {"payload": f"{number}" * 100_000, "partition": "Default", "transaction_id": f"tx-{number}"}
            for number in range(3)
        ]
        assert ask(port, "POST", "/v1/queues/late/messages", items).status == 201
        answer = waiting.answer()
        assert answer.status == 503, answer.body[:500]
        assert answer.headers["retry-after"] == "1"
    assert ask(port, "GET", "/v1/running").json() == {"running": []}
    readers.close()
    until(lambda: metric(port, HELD) == 0)
    again = ask(port, "POST", "/v1/queues/late/take", {"count": 3}).json()["tasks"]
    assert [(task["transaction_id"], task["attempts"]) for task in again] == [
        ("tx-0", 0), ("tx-1", 0), ("tx-2", 0),
    ]  # fmt: skip


def test_requests_that_are_sent_ahead_are_answered_as_their_answers_are_read(
    forebay_server: ForebayServer,
) -> None:
    port = forebay_server.port
    with Wire(port, receive_bytes=4_096) as wire:
        wire.send(3 * request("GET", LARGE) + request("GET", "/healthz"))
        until(lambda: metric(port, HELD) > 0)
        assert metric(port, HELD) < 1.1 * LARGE_BYTES
        for _ in range(3):
            assert len(wire.answer().json()["messages"]) == 16
        assert wire.answer().status == 200
    until(lambda: metric(port, HELD) == 0)


def test_a_client_that_sends_no_more_still_gets_the_rest_of_its_answer(
    forebay_server: ForebayServer,
) -> None:
    port = forebay_server.port
    with Wire(port, receive_bytes=4_096) as wire:
        wire.send(request("GET", LARGE))
        until(lambda: metric(port, HELD) > 0)
        wire.socket.shutdown(socket.SHUT_WR)
        assert len(wire.answer().json()["messages"]) == 16
        assert wire.is_closed()


def test_a_server_that_stops_gives_up_on_answers_that_nobody_reads() -> None:
    with ForebayServer(limits={"shutdown_seconds": 0.5}) as server:
        fill(server.port)
        with Wire(server.port, receive_bytes=4_096) as wire:
            wire.send(request("GET", LARGE))
            until(lambda: metric(server.port, HELD) > 0)
            assert server.stop() == 0
        assert "Traceback" not in server.tail()


def test_over_tls_who_does_not_read_is_counted_and_cut_off(tmp_path: Path) -> None:
    authority = trustme.CA()
    issued = authority.issue_cert("127.0.0.1")
    certificate, key = tmp_path / "certificate.pem", tmp_path / "key.pem"
    issued.cert_chain_pems[0].write_to_path(str(certificate))
    issued.private_key_pem.write_to_path(str(key))
    context = ssl.create_default_context()
    authority.configure_trust(context)
    files: dict[str, Any] = {"tls_certificate": str(certificate), "tls_key": str(key)}

    def connect(server: ForebayServer) -> ssl.SSLSocket:
        plain = socket.socket()
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        plain.settimeout(DEADLINE_SECONDS)
        plain.connect(("127.0.0.1", server.port))
        return context.wrap_socket(plain, server_hostname="127.0.0.1")

    def tls_ask(server: ForebayServer, data: bytes) -> str:
        with connect(server) as wire:
            wire.sendall(data)
            return b"".join(iter(lambda: wire.recv(1 << 16), b"")).decode()

    closing = {"Connection": "close"}
    with ForebayServer(tls=context, limits={"request_seconds": 2.0}, **files) as server:
        body = json.dumps([{"payload": "x" * 900_000}] * 16).encode()
        assert " 201 " in tls_ask(server, request("POST", "/v1/queues/large/messages", body, closing))[:20]
        with connect(server) as wire:
            wire.sendall(request("GET", LARGE))
            numbers = request("GET", "/metrics", headers={**closing, **SCRAPER})
            until(lambda: re.search(rf"^{HELD} [1-9]", tls_ask(server, numbers), re.MULTILINE) is not None)
            cut = 'reason="client does not read"} 1.0'
            until(lambda: cut in tls_ask(server, numbers))
            until(lambda: f"\n{HELD} 0.0\n" in tls_ask(server, numbers))
