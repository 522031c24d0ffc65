"""HTTP itself, over real sockets: lies, garbage, floods, pipelines. The server answers, and goes on."""

import gzip
from collections.abc import Iterator
from typing import Final

import pytest

from tests.integration.http_wire import Wire, ask, request
from tests.servers import ForebayServer

MESSAGES: Final = "/v1/queues/orders/messages"
BODY: Final = b'[{"payload": 1}]'
CHUNKED: Final = {"Transfer-Encoding": "chunked"}


@pytest.fixture(scope="module")
def forebay_server() -> Iterator[ForebayServer]:
    """Give a server with little patience and short heads."""
    limits = {"request_seconds": 1.0, "header_bytes_max": 16 << 10, "body_bytes_max": 1 << 20}
    with ForebayServer(limits=limits) as server:
        yield server


@pytest.fixture
def wire(forebay_server: ForebayServer) -> Iterator[Wire]:
    """Give a connection; the server must be well after whatever is sent."""
    with Wire(forebay_server.port) as wire:
        yield wire
    assert ask(forebay_server.port, "GET", "/readyz").json()["ready"]
    assert "Traceback" not in forebay_server.log.read_text(encoding="utf-8"), forebay_server.tail()


def chunks(*parts: bytes) -> bytes:
    """A chunked body."""
    return b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n"


def test_a_chunked_body_is_read(wire: Wire) -> None:
    wire.send(request("POST", MESSAGES, chunks(BODY[:5], BODY[5:]), CHUNKED))
    assert wire.answer().status == 201


OFFER: Final = {"Connection": "Upgrade, HTTP2-Settings", "Upgrade": "h2c", "HTTP2-Settings": "AAMAAABk"}


@pytest.mark.parametrize("cut", [None, 20, -len(BODY), -5], ids=["whole", "head", "body", "end"])
def test_a_request_that_offers_http_2_is_taken_with_its_body(wire: Wire, cut: int | None) -> None:
    data = request("POST", MESSAGES, BODY, {**OFFER, "Content-Length": str(len(BODY))})
    for part in (data,) if cut is None else (data[:cut], data[cut:]):
        wire.send(part)
    assert wire.answer().status == 201
    wire.send(request("POST", MESSAGES, chunks(BODY), {**OFFER, **CHUNKED}) + request("GET", "/readyz"))
    assert wire.answer().status == 201
    assert wire.answer().json()["ready"]


def test_a_chunked_body_that_is_too_large_is_refused(wire: Wire) -> None:
    wire.send(request("POST", MESSAGES, chunks(*[b" " * 65_536] * 17), CHUNKED))
    wire.answer().problem(413)


def test_a_body_that_is_announced_as_too_large_is_refused_at_once(wire: Wire) -> None:
    wire.send(request("POST", MESSAGES, b"", {"Content-Length": str(1 << 40)}))
    wire.answer().problem(413)
    assert wire.is_closed()


def test_a_body_that_is_shorter_than_it_says_is_late(wire: Wire) -> None:
    wire.send(request("POST", MESSAGES, BODY, {"Content-Length": "100"}))
    answer = wire.answer()
    answer.problem(408)
    assert answer.headers["connection"] == "close"
    assert answer.headers["retry-after"]


def test_a_body_that_is_shorter_than_it_says_and_ends_is_not_used(
    wire: Wire, forebay_server: ForebayServer
) -> None:
    path = "/v1/queues/cut/messages"
    wire.send(request("POST", path, BODY, {"Content-Length": "100"}))
    wire.socket.close()
    assert ask(forebay_server.port, "GET", "/v1/queues/cut").status == 404


def test_what_follows_a_body_that_is_longer_than_it_says_is_no_request(wire: Wire) -> None:
    wire.send(request("POST", MESSAGES, BODY + b"surplus\r\n\r\n", {"Content-Length": str(len(BODY))}))
    assert wire.answer().status == 201
    wire.answer().problem(400)
    assert wire.is_closed()


@pytest.mark.parametrize(
    "headers",
    [
        [("Content-Length", "-1")],
        [("Content-Length", "x")],
        [("Content-Length", "5"), ("Content-Length", "6")],
        [("Content-Length", "16"), ("Transfer-Encoding", "chunked")],
        [("Content-Length", "99999999999999999999999")],
    ],
)
def test_a_length_that_cannot_be_is_refused(wire: Wire, headers: list[tuple[str, str]]) -> None:
    wire.send(request("POST", MESSAGES, BODY, headers))
    wire.answer().problem(400)
    assert wire.is_closed()


@pytest.mark.parametrize("body", [b"zz\r\n", b"5\r\n[{}]xx\r\n", b"-1\r\n"])
def test_chunks_that_are_none_are_refused(wire: Wire, body: bytes) -> None:
    wire.send(request("POST", MESSAGES, body, CHUNKED))
    wire.answer().problem(400)
    assert wire.is_closed()


@pytest.mark.parametrize(
    "data",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 64,
        b"\x00" * 64,
        b"hello\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET / HTTP/1.1\r\nno colon\r\n\r\n",
        b"GET / HTTP/1.1\r\nbad\x00name: 1\r\n\r\n",
        b"CONNECT a:1 HTTP/1.1\r\nHost: a\r\n\r\n",
        b"GET /\xff\xfe HTTP/1.1\r\nHost: a\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ],
    ids=["tls", "zeros", "words", "no path", "version", "colon", "nul", "connect", "bytes", "http/2"],
)
def test_what_is_no_http_is_refused(wire: Wire, data: bytes) -> None:
    wire.send(data)
    wire.answer().problem(400)
    assert wire.is_closed()


def test_many_headers_are_too_many(wire: Wire) -> None:
    wire.send(request("GET", "/healthz", None, [(f"X-{i}", "v" * 100) for i in range(1_000)]))
    wire.answer().problem(431)
    assert wire.is_closed()


def test_a_header_without_an_end_is_too_long(wire: Wire) -> None:
    wire.send(b"GET /healthz HTTP/1.1\r\nX-Long: ")
    wire.send(b"v" * (1 << 20))  # more than is read at once
    wire.answer().problem(431)
    assert wire.is_closed()


def test_a_head_in_two_parts_is_too_long_as_a_whole(wire: Wire) -> None:
    wire.send(b"GET /healthz HTTP/1.1\r\nX-Long: " + b"v" * 30_000)
    wire.send(b"\r\nX-Last: 1\r\n\r\n")
    wire.answer().problem(431)
    assert wire.is_closed()


def test_a_path_without_an_end_is_too_long(wire: Wire) -> None:
    wire.send(b"GET /" + b"v" * 40_000 + b" HTTP/1.1\r\nHost: a\r\n\r\n")
    wire.answer().problem(431)


def test_trailers_are_no_headers_and_have_an_end(wire: Wire) -> None:
    trailer = b"1\r\n1\r\n0\r\nContent-Type: text/plain\r\n\r\n"
    wire.send(request("PATCH", "/v1/queues/none", trailer, CHUNKED))
    wire.answer().problem(400)  # JSON, but no object; not 415
    wire.send(request("POST", MESSAGES, b"1\r\n[\r\n0\r\nX: ", CHUNKED))
    wire.send(b"v" * (1 << 20))  # more than is read at once
    wire.answer().problem(431)


def test_a_large_body_before_the_next_head_is_no_part_of_it(wire: Wire) -> None:
    body = b'[{"payload": "%s"}]' % (b"x" * 60_000)
    next_one = request("GET", "/healthz")
    wire.send(request("POST", MESSAGES, body) + next_one[:10])
    assert wire.answer().status == 201
    wire.send(next_one[10:])
    assert wire.answer().status == 200


def test_pipelined_requests_are_answered_in_order(wire: Wire) -> None:
    wire.send(b"".join(request("GET", f"/v1/queues/q{i}") for i in range(30)) + request("GET", "/healthz"))
    for i in range(30):
        assert f"'q{i}'" in wire.answer().problem(404)["detail"]
    assert wire.answer().status == 200


def test_garbage_after_a_request_is_refused_after_its_answer(wire: Wire) -> None:
    wire.send(request("GET", "/healthz") + request("GET", "/readyz") + b"\x00garbage\r\n\r\n")
    assert wire.answer().status == 200
    assert "ready" in wire.answer().json()
    wire.answer().problem(400)
    assert wire.is_closed()


def test_more_pipelined_requests_than_may_wait_are_refused(wire: Wire) -> None:
    wire.send(request("POST", "/v1/queues/idle/messages", BODY))
    assert wire.answer().status == 201
    assert wire.ask("POST", "/v1/queues/idle/take", {}).status == 200
    waiting = request("POST", "/v1/queues/idle/take", b'{"wait_seconds": 0.5}')
    wire.send(waiting + request("GET", "/healthz") * 200)
    assert wire.answer().json() == {"tasks": []}
    answers = [wire.answer() for _ in range(65)]
    assert [answer.status for answer in answers] == [200] * 64 + [429]
    answers[-1].problem(429)
    assert wire.is_closed()


def test_expect_continue_is_answered_before_the_body(wire: Wire) -> None:
    headers = {"Expect": "100-continue", "Content-Length": str(len(BODY))}
    wire.send(request("POST", MESSAGES, None, headers))
    assert wire.answer().status == 100
    wire.send(BODY)
    assert wire.answer().status == 201


def test_a_body_that_is_refused_is_not_asked_for(wire: Wire) -> None:
    wire.send(request("POST", MESSAGES, None, {"Expect": "100-continue", "Content-Length": str(1 << 30)}))
    wire.answer().problem(413)


def test_http_1_0_is_answered_and_closed(wire: Wire) -> None:
    wire.send(b"GET /healthz HTTP/1.0\r\n\r\n")
    assert wire.answer().status == 200
    assert wire.is_closed()


def test_head_has_no_body(wire: Wire) -> None:
    wire.send(request("HEAD", "/healthz") + request("GET", "/healthz"))
    head, whole = wire.answer(head_only=True), wire.answer()
    assert head.status == 200
    assert head.headers["content-length"] == str(len(whole.body))


def test_not_modified_has_no_body(wire: Wire) -> None:
    etag = wire.ask("PUT", "/v1/queues/same", {}).headers["etag"]
    answer = wire.ask("GET", "/v1/queues/same", headers={"If-None-Match": etag})
    assert answer.status == 304
    assert "content-length" not in answer.headers
    assert answer.headers["etag"] == etag
    assert wire.ask("GET", "/healthz").status == 200


def test_an_upgrade_is_not_done(wire: Wire) -> None:
    headers = {"Connection": "Upgrade, HTTP2-Settings", "Upgrade": "h2c", "HTTP2-Settings": "AAMAAABk"}
    assert wire.ask("GET", "/healthz", headers=headers).status == 200


def test_request_ids_come_back(wire: Wire) -> None:
    assert wire.ask("GET", "/healthz", headers={"X-Request-Id": "mine-1"}).headers["x-request-id"] == "mine-1"
    odd = wire.ask("GET", "/nothing", headers={"X-Request-Id": "x" * 129})
    assert odd.problem(404)["request_id"] != "x" * 129


def test_an_unread_body_of_a_get_closes_the_connection(wire: Wire) -> None:
    answer = wire.ask("GET", "/healthz", gzip.compress(b"x" * 100))
    assert answer.status == 200
    assert answer.headers["connection"] == "close"
    assert wire.is_closed()
