"""Requests arrive as they were given, on connections that are kept."""

import asyncio
import time

import pytest

from forebay.deliver.settings import AuthSettings
from forebay.deliver.signature import parse_secret, signature_headers
from forebay.deliver.values import ErrorClass, Request
from forebay.model import Rejected
from tests.integration.deliver.sending import HANG_SECONDS, deliver, destination, request
from tests.servers.destination import DestinationServer, Received, answer, answers


async def test_method_path_query_headers_and_body_arrive_intact() -> None:
    body = bytes(range(256)) * 10
    sent = Request(
        b"PATCH",
        b"/a%20b/c?x=1&y=%C3%A9",
        (
            (b"Content-Type", b"application/x-protobuf"),
            (b"X-Twice", b"1"),
            (b"Caf", b"\xe9"),
        ),
        body,
    )
    async with DestinationServer() as server, destination(server.url) as to:
        outcome = await to.send(to.prepare(sent, id="x"))
        assert outcome.is_delivered
        (got,) = server.received
    assert (got.method, got.target, got.body) == ("PATCH", "/a%20b/c?x=1&y=%C3%A9", body)
    assert got.headers["content-type"] == "application/x-protobuf"
    assert got.headers["caf"] == "\xe9"
    assert got.headers["host"] == f"127.0.0.1:{server.port}"
    assert got.headers["content-length"] == str(len(body))
    assert got.headers["user-agent"] == "forebay"


async def test_headers_of_a_connection_are_not_passed_on() -> None:
    async with DestinationServer() as server, destination(server.url) as to:
        await deliver(
            to,
            Connection="close",
            Host="elsewhere",
            Transfer_Encoding="chunked",
            Expect="100-continue",
            TE="trailers",
            User_Agent="mine",
        )
        (got,) = server.received
    assert sorted(got.headers) == ["content-length", "host", "user-agent"]
    assert got.headers["user-agent"] == "mine"
    assert got.headers["host"] != "elsewhere"


async def test_fixed_headers_and_credentials_replace_those_of_the_request() -> None:
    headers, auth = {"X-Team": "blue"}, AuthSettings(bearer="s3cret")
    async with DestinationServer() as server, destination(server.url, headers=headers, auth=auth) as to:
        await deliver(to, x_team="red", authorization="Basic xyz")
        (got,) = server.received
    assert got.headers["x-team"] == "blue"
    assert got.headers["authorization"] == "Bearer s3cret"


async def test_user_and_password_in_the_address_are_sent_as_basic_authentication() -> None:
    async with DestinationServer() as server:
        url = server.url.replace("http://", "http://me:p%40ss@")
        async with destination(url) as to:
            await deliver(to)
            assert "p%40ss" not in to.name
            assert "me" not in to.name
        (got,) = server.received
    assert got.headers["authorization"] == "Basic bWU6cEBzcw=="


async def test_a_connection_is_used_again() -> None:
    async with DestinationServer(answers(answer(200, b"fine"))) as server, destination(server.url) as to:
        for number in range(50):
            outcome = await deliver(to, b"%d" % number)
            assert (outcome.status, outcome.answer) == (200, b"fine")
        assert server.connections == 1
        assert server.bodies == [b"%d" % number for number in range(50)]


@pytest.mark.parametrize(
    "raw",
    [
        b"HTTP/1.1 204 No Content\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1;x=y\r\na\r\n0\r\nTrailer: 1\r\n\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 202 Accepted\r\nContent-Length: 2\r\n\r\nok",
        b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
    ],
)
async def test_answers_of_every_shape_are_understood_and_keep_the_connection(raw: bytes) -> None:
    async with DestinationServer(answers(raw)) as server, destination(server.url) as to:
        for _ in range(3):
            assert (await deliver(to)).is_delivered
        assert server.connections == 1


@pytest.mark.parametrize(
    "raw",
    [
        b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok",
        b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok",
    ],
)
async def test_a_destination_that_closes_gets_a_new_connection_each_time(raw: bytes) -> None:
    async with DestinationServer(answers(raw)) as server, destination(server.url) as to:
        for _ in range(3):
            assert (await deliver(to)).is_delivered
        assert server.connections == 3


async def test_no_more_connections_are_open_than_may_be_at_a_time() -> None:
    gate, seen = asyncio.Event(), asyncio.Semaphore(0)

    async def behave(_: Received, writer: asyncio.StreamWriter) -> None:
        seen.release()
        await gate.wait()
        writer.write(answer())

    async with DestinationServer(behave) as server, destination(server.url, concurrency=3) as to:
        sends = [asyncio.create_task(deliver(to)) for _ in range(20)]
        for _ in range(3):
            await seen.acquire()
        assert server.connections == 3
        gate.set()
        assert all(outcome.is_delivered for outcome in await asyncio.gather(*sends))
        assert server.connections == 3
        assert len(server.received) == 20


async def test_waiting_for_a_connection_is_bounded_in_time() -> None:
    gate = asyncio.Event()

    async def behave(_: Received, __: asyncio.StreamWriter) -> None:
        await gate.wait()

    async with (
        DestinationServer(behave) as server,
        destination(server.url, concurrency=1, timeout_seconds=HANG_SECONDS) as to,
    ):
        outcomes = await asyncio.gather(deliver(to), deliver(to))
        assert [outcome.error_class for outcome in outcomes] == [ErrorClass.TIMEOUT] * 2
        gate.set()


async def test_a_kept_connection_that_has_ended_costs_nothing() -> None:
    async with DestinationServer() as server, destination(server.url) as to:
        for _ in range(5):
            assert (await deliver(to)).is_delivered
            server.cut()
        assert len(server.received) == 5


async def test_a_kept_connection_that_ends_with_the_request_is_tried_again_on_a_new_one() -> None:
    async def cut_the_second(got: Received, writer: asyncio.StreamWriter) -> None:
        if got.body == b"second" and got.connection == 1:
            writer.transport.abort()
        else:
            writer.write(answer())

    async with DestinationServer(cut_the_second) as server, destination(server.url) as to:
        assert (await deliver(to, b"first")).is_delivered
        assert (await deliver(to, b"second")).is_delivered
        assert [(got.body, got.connection) for got in server.received] == [
            (b"first", 1), (b"second", 1), (b"second", 2),
        ]  # fmt: skip
        assert to.stale == 1


async def test_idle_connections_are_ended() -> None:
    async with DestinationServer() as server, destination(server.url, idle_seconds=0.05) as to:
        assert (await deliver(to)).is_delivered
        await asyncio.wait_for(server.emptied.wait(), 60)
        assert (await deliver(to)).is_delivered
        assert server.connections == 2


async def test_a_cancelled_request_costs_its_connection_and_no_other_request() -> None:
    gate = asyncio.Event()

    async def behave(got: Received, writer: asyncio.StreamWriter) -> None:
        if got.body == b"slow":
            await gate.wait()
        writer.write(answer(200, got.body))

    async with DestinationServer(behave) as server, destination(server.url, concurrency=1) as to:
        slow = asyncio.create_task(deliver(to, b"slow"))
        await server.arrived.wait()
        slow.cancel()
        with pytest.raises(asyncio.CancelledError):
            await slow
        assert (await deliver(to, b"next")).answer == b"next"
        gate.set()


async def test_closing_ends_requests_that_are_out_and_refuses_others() -> None:
    gate = asyncio.Event()

    async def behave(_: Received, __: asyncio.StreamWriter) -> None:
        await gate.wait()

    async with DestinationServer(behave) as server, destination(server.url) as to:
        out = asyncio.create_task(deliver(to))
        await server.arrived.wait()
        await to.close()
        assert (await out).error_class is ErrorClass.NETWORK
        assert (await deliver(to)).error_class is ErrorClass.NETWORK
        await to.close()
        gate.set()


@pytest.mark.parametrize(
    "sent",
    [
        Request(b"POST", b"/", ((b"a", b"b\r\nEvil: 1"),), b""),
        Request(b"POST", b"/", ((b"a", b"b\rEvil: 1"),), b""),
        Request(b"POST", b"/", ((b"a", b"b\nEvil: 1"),), b""),
        Request(b"POST", b"/", ((b"a\n", b"b"),), b""),
        Request(b"POST", b"/", ((b"a b", b"c"),), b""),
        Request(b"POST", b"/", ((b"a:b", b"c"),), b""),
        Request(b"POST", b"/", ((b"", b"c"),), b""),
        Request(b"POST", b"/", ((b"a", b"\0"),), b""),
        Request(b"POST", b"/ HTTP/1.1\r\nEvil: 1", (), b""),
        Request(b"POST", b"//evil.example/ x", (), b""),
        Request(b"POST", b"http://evil.example/", (), b""),
        Request(b"POST", b"", (), b""),
        Request(b"HEAD", b"/", (), b""),
        Request(b"CONNECT", b"/", (), b""),
        Request(b"POST /\r\n", b"/", (), b""),
        Request(b"get", b"/", (), b""),
    ],
)
async def test_what_would_break_out_of_a_request_is_refused(sent: Request) -> None:
    async with destination("http://127.0.0.1:1/") as to:
        with pytest.raises(Rejected):
            to.prepare(sent, id="x")


async def test_a_prepared_request_can_be_sent_again() -> None:
    async with DestinationServer() as server, destination(server.url) as to:
        prepared = to.prepare(request(b"same"), id="x")
        await to.send(prepared)
        await to.send(prepared)
        assert server.bodies == [b"same", b"same"]


async def test_a_signed_request_says_who_sent_it_and_forged_headers_are_left_out() -> None:
    secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
    async with DestinationServer() as server, destination(server.url, signing_secrets=(secret,)) as to:
        sent = request(b"{}", webhook_id="forged", webhook_signature="v1,forged", webhook_timestamp="0")
        await to.send(to.prepare(sent, id="msg_7"))
        (got,) = server.received
    at = int(got.headers["webhook-timestamp"])
    expected = signature_headers([parse_secret(secret)], "msg_7", at, b"{}")
    assert {name.decode(): value.decode() for name, value in expected}.items() <= got.headers.items()
    assert abs(time.time() - at) < 120


@pytest.mark.parametrize("id", ["", "a.b", "a b", "a\r\nb", "x" * 129, "\u00e9"])
async def test_an_id_that_cannot_be_signed_is_refused(id: str) -> None:
    secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
    async with destination("http://127.0.0.1:1/", signing_secrets=(secret,)) as to:
        with pytest.raises(Rejected, match="webhook-id"):
            to.prepare(request(), id=id)


@pytest.mark.parametrize("status", [401, 403, 407])
async def test_a_refused_credential_of_ours_may_become_good_and_one_of_the_request_not(status: int) -> None:
    async with DestinationServer(answers(answer(status))) as server:
        async with destination(server.url) as to:
            assert (await deliver(to)).is_retried
            assert not (await deliver(to, authorization="Bearer of-the-client")).is_retried
        async with destination(server.url, auth=AuthSettings(bearer="ours")) as to:
            assert (await deliver(to, authorization="Bearer of-the-client")).is_retried
        async with destination(server.url, retry_auth=False) as to:
            assert not (await deliver(to)).is_retried
