"""A relay takes any request in, intact, and bounds what a client may do."""

import asyncio
import json

import pytest

from forebay.deliver.failure import of_status
from forebay.relay.settings import RelayLimits
from tests.integration.relay.rigs import a_relay, post

SMALL = RelayLimits(body_bytes_max=1 << 10, header_bytes_max=1 << 10, headers_max=10)


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
async def test_a_request_arrives_as_it_was_sent(method: str) -> None:
    async with a_relay() as rig, await rig.client() as client:
        body = bytes(range(256))
        headers = ("X-Mixed: One", "x-mixed: two", "Content-Encoding: snappy", "Authorization: Bearer t")
        client.send(post(body, "/api/v1/write?a=1&b=%20", *headers, method=method))
        assert (await client.answer())[0] == 202
        (request,) = await rig.destination.until(1)
        assert request.method == method.encode()
        assert request.target == b"/api/v1/write?a=1&b=%20"
        assert request.body == body
        assert request.headers == (
            (b"X-Mixed", b"One"), (b"x-mixed", b"two"), (b"Content-Encoding", b"snappy"),
            (b"Authorization", b"Bearer t"),
        )  # fmt: skip


async def test_headers_of_the_connection_stay_with_it() -> None:
    async with a_relay() as rig, await rig.client() as client:
        client.send(post(b"x", "/", "Connection: keep-alive, X-Hop", "X-Hop: 1", "TE: trailers", "X-Kept: 2"))
        await client.answer()
        (request,) = await rig.destination.until(1)
        assert request.headers == ((b"X-Kept", b"2"),)


async def test_a_connection_is_kept_and_answers_come_in_order() -> None:
    async with a_relay() as rig, await rig.client() as client:
        client.send(*(post(b"%d" % number) for number in range(50)), b"GET /healthz HTTP/1.1\r\n\r\n")
        answers = [await client.answer() for _ in range(51)]
        assert [status for status, _, _ in answers] == [202] * 50 + [200]
        seen = await rig.destination.until(50)
        assert sorted(int(request.body) for request in seen) == list(range(50))


async def test_more_requests_sent_ahead_than_are_read_at_once_are_all_answered() -> None:
    async with a_relay(max_size=100_000) as rig, await rig.client() as client:
        client.send(*(post(b"%d" % number) for number in range(3000)))
        assert {(await client.answer())[0] for _ in range(3000)} == {202}


async def test_a_chunked_body_arrives_whole_and_its_trailers_are_left_out() -> None:
    async with a_relay() as rig, await rig.client() as client:
        client.send(b"POST /x HTTP/1.1\r\nHost: r\r\nTransfer-Encoding: chunked\r\n\r\n")
        client.send(b"3\r\nabc\r\n2;ext=1\r\nde\r\n0\r\nX-Trailer: 1\r\n\r\n")
        assert (await client.answer())[0] == 202
        (request,) = await rig.destination.until(1)
        assert (request.body, request.headers) == (b"abcde", ())


async def test_a_request_in_single_bytes_is_taken() -> None:
    async with a_relay() as rig, await rig.client() as client:
        for byte in post(b"slow"):
            client.send(bytes([byte]))
            await client.writer.drain()
        assert (await client.answer())[0] == 202
        assert (await rig.destination.until(1))[0].body == b"slow"


async def test_an_expectation_is_met() -> None:
    async with a_relay() as rig, await rig.client() as client:
        client.send(post(b"", "/", "Expect: 100-continue").replace(b"Length: 0", b"Length: 3"))
        assert (await client.reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 100")
        client.send(b"abc")
        assert (await client.answer())[0] == 202
        (request,) = await rig.destination.until(1)
        assert (request.body, request.headers) == (b"abc", ())


async def test_an_expectation_is_met_after_the_answer_to_the_request_before() -> None:
    async with a_relay() as rig, await rig.client() as client:
        client.send(
            post(b"first"), post(b"", "/", "Expect: 100-continue").replace(b"Length: 0", b"Length: 3")
        )
        assert (await client.answer())[0] == 202
        assert (await client.reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 100")
        client.send(b"abc")
        assert (await client.answer())[0] == 202
        assert len(await rig.destination.until(2)) == 2


async def test_bodies_in_hand_are_bounded_and_forgotten_with_their_answers() -> None:
    limits = RelayLimits(body_bytes_max=2048, pending_bytes_max=2048)
    async with a_relay(limits=limits) as rig, await rig.client() as first, await rig.client() as second:
        first.send(post(b"x" * 2000)[:-100])
        await first.writer.drain()
        while rig.relay.pending_bytes < 1900:
            await asyncio.to_thread(lambda: None)
        second.send(post(b"y" * 1000))
        assert (await second.answer())[0] == 503
        first.send(b"x" * 100)
        assert (await first.answer())[0] == 202
        assert rig.relay.pending_bytes == 0


async def test_an_expectation_of_too_much_is_refused_before_the_body() -> None:
    async with a_relay(limits=SMALL) as rig, await rig.client() as client:
        client.send(post(b"", "/", "Expect: 100-continue").replace(b"Length: 0", b"Length: 9999"))
        assert (await client.answer())[0] == 413
        assert await client.ends()


@pytest.mark.parametrize(
    ("path", "kind", "status", "answered", "body"),
    [
        ("/v1/metrics", "application/x-protobuf", 200, "application/x-protobuf", b""),
        ("/otlp/v1/logs?x=1", "application/json; charset=utf-8", 200, "application/json", b"{}"),
        ("/v1/traces", "application/x-protobuf", 200, "application/x-protobuf", b""),
        ("/api/v1/write", "application/x-protobuf", 202, None, b""),
        ("/v1/metricsx", "application/json", 202, None, b""),
    ],
)
async def test_clients_of_otlp_get_the_answer_that_they_know(
    path: str, kind: str, status: int, answered: str | None, body: bytes
) -> None:
    async with a_relay() as rig, await rig.client() as client:
        client.send(post(b"x", path, f"Content-Type: {kind}"))
        got = await client.answer()
        assert (got[0], got[1].get("content-type"), got[2]) == (status, answered, body)


async def test_a_body_over_the_limit_is_refused_and_nothing_of_it_relayed() -> None:
    async with a_relay(limits=SMALL) as rig:
        for sent in (
            post(b"x" * 2000),
            b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n7d0\r\n" + b"x" * 2000,
        ):
            async with await rig.client() as client:
                client.send(sent)
                status, headers, _ = await client.answer()
                assert (status, headers["connection"]) == (413, "close")
                assert await client.ends()
        assert rig.relay.pending_bytes == 0
        assert rig.destination.seen == []


@pytest.mark.parametrize(
    "headers",
    [
        tuple(f"X-{number}: 1" for number in range(11)),
        ("X-Long: " + "x" * 1100,),
    ],
)
async def test_too_many_headers_are_refused(headers: tuple[str, ...]) -> None:
    async with a_relay(limits=SMALL) as rig, await rig.client() as client:
        client.send(post(b"x", "/", *headers))
        assert (await client.answer())[0] == 431
        assert await client.ends()


async def test_a_head_without_end_is_refused() -> None:
    async with a_relay(limits=SMALL) as rig, await rig.client() as client:
        client.send(b"POST / HTTP/1.1\r\nX: ", b"x" * (1 << 20))
        assert (await client.answer())[0] == 431


@pytest.mark.parametrize(
    "sent",
    [
        b"garbage\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: x\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
        b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00",
    ],
)
async def test_nonsense_is_refused_and_never_relayed(sent: bytes) -> None:
    async with a_relay() as rig, await rig.client() as client:
        client.send(sent)
        assert (await client.answer())[0] == 400
        assert await client.ends()
        assert rig.destination.seen == []


async def test_requests_before_nonsense_are_answered() -> None:
    async with a_relay() as rig, await rig.client() as client:
        client.send(post(b"good"), b"nonsense\r\n\r\n", post(b"hidden"))
        assert (await client.answer())[0] == 202
        assert (await client.answer())[0] == 400
        assert await client.ends()
        assert [request.body for request in await rig.destination.until(1)] == [b"good"]


async def test_a_slow_client_is_cut_off() -> None:
    async with a_relay(limits=RelayLimits(request_seconds=0.1)) as rig, await rig.client() as client:
        client.send(b"POST / HTTP/1.1\r\nContent-Length: 100\r\n\r\nonly this")
        assert (await client.answer())[0] == 408
        assert await client.ends()
        assert rig.relay.pending_bytes == 0


async def test_an_idle_connection_is_closed() -> None:
    async with a_relay(limits=RelayLimits(idle_seconds=0.1)) as rig, await rig.client() as client:
        assert await client.ends()


async def test_too_many_connections_are_refused() -> None:
    async with a_relay(limits=RelayLimits(connections_max=1)) as rig, await rig.client() as first:
        first.send(post())
        await first.answer()
        async with await rig.client() as second:
            assert (await second.answer())[0] == 503
        first.send(post())
        assert (await first.answer())[0] == 202


async def test_a_client_that_leaves_in_the_middle_leaves_nothing() -> None:
    async with a_relay() as rig:
        async with await rig.client() as client:
            client.send(b"POST / HTTP/1.1\r\nContent-Length: 100\r\n\r\nonly this")
            await client.writer.drain()
        async with await rig.client() as client:
            client.send(post(b"whole"))
            await client.answer()
        assert [request.body for request in await rig.destination.until(1)] == [b"whole"]


async def test_connection_close_is_honoured() -> None:
    async with a_relay() as rig, await rig.client() as client:
        client.send(post(b"x", "/", "Connection: close"), post(b"hidden"))
        status, headers, _ = await client.answer()
        assert (status, headers["connection"]) == (202, "close")
        assert await client.ends()
        assert len(rig.destination.seen) <= 1


async def test_a_client_that_sends_no_more_still_gets_its_answer() -> None:
    async with a_relay() as rig, await rig.client() as client:
        client.send(post())
        client.half_close()
        assert (await client.answer())[0] == 202
        assert await client.ends()


async def test_an_offer_of_another_protocol_is_declined_and_the_request_taken() -> None:
    offer = ("Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABkAAQAAP__")
    async with a_relay() as rig, await rig.client() as client:
        client.send(post(b"first", "/", *offer), post(b"second"))
        assert [(await client.answer())[0] for _ in range(2)] == [202, 202]
        seen = await rig.destination.until(2)
        assert sorted(request.body for request in seen) == [b"first", b"second"]
        assert [request.headers for request in seen] == [(), ()]


async def test_an_offer_with_a_body_in_pieces_loses_nothing_of_it() -> None:
    offer = "Connection: Upgrade\r\nUpgrade: h2c\r\nX-Kept: 1"
    async with a_relay() as rig, await rig.client() as client:
        client.send(f"POST /x HTTP/1.1\r\n{offer}\r\nTransfer-Encoding: chunked\r\n\r\n".encode())
        await client.writer.drain()
        for piece in (b"3\r\nabc\r\n", b"2\r\nde\r\n0\r\n\r\n"):
            client.send(piece)
            await client.writer.drain()
        assert (await client.answer())[0] == 202
        (request,) = await rig.destination.until(1)
        assert (request.body, request.headers) == (b"abcde", ((b"X-Kept", b"1"),))


async def test_a_tunnel_is_refused() -> None:
    async with a_relay() as rig, await rig.client() as client:
        client.send(b"CONNECT host:443 HTTP/1.1\r\nHost: host\r\n\r\n")
        assert (await client.answer())[0] == 405
        assert await client.ends()
        assert rig.destination.seen == []


@pytest.mark.parametrize(("method", "status"), [("GET", 404), ("OPTIONS", 405), ("TRACE", 405)])
async def test_other_methods_arent_relayed(method: str, status: int) -> None:
    async with a_relay() as rig, await rig.client() as client:
        client.send(post(b"", "/api/v1/write", method=method))
        assert (await client.answer())[0] == status
        assert rig.destination.seen == []


async def test_pages_of_its_own_collide_with_no_relayed_path() -> None:
    async with a_relay() as rig, await rig.client() as client:
        for path in ("/healthz", "/readyz", "/metrics"):
            client.send(f"GET {path} HTTP/1.1\r\n\r\n".encode(), post(b"x", path))
            assert (await client.answer())[0] == 200
            assert (await client.answer())[0] == 202
        assert len(await rig.destination.until(3)) == 3


async def test_a_head_request_gets_no_body() -> None:
    async with a_relay() as rig, await rig.client() as client:
        client.send(b"HEAD /healthz HTTP/1.1\r\n\r\n", post())
        head = await client.reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200")
        assert (await client.answer())[0] == 202


async def test_a_full_queue_is_503_with_a_time_to_come_back() -> None:
    async with a_relay(max_size=1, full_behavior="drop_newest") as rig, await rig.client() as client:
        rig.destination.answer = lambda _: of_status(503)
        client.send(post(), post())
        assert (await client.answer())[0] == 202
        status, headers, body = await client.answer()
        assert (status, headers["retry-after"]) == (503, "1")
        assert "queue is full" in json.loads(body)["detail"]
        client.send(b"GET /readyz HTTP/1.1\r\n\r\n")
        status, _, text = await client.answer()
        assert (status, b"full" in text) == (503, True)


async def test_every_destination_gets_every_request() -> None:
    async with a_relay(count=3) as rig, await rig.client() as client:
        client.send(*(post(b"%d" % number) for number in range(20)))
        assert {(await client.answer())[0] for _ in range(20)} == {202}
        for destination in rig.destinations:
            assert len(await destination.until(20)) == 20


async def test_one_full_queue_refuses_for_all_and_none_has_the_request() -> None:
    async with a_relay(count=2, max_size=1, full_behavior="drop_newest") as rig, await rig.client() as client:
        rig.destinations[1].answer = lambda _: of_status(503)
        client.send(post(b"first"))
        assert (await client.answer())[0] == 202
        await rig.destinations[0].until(1)
        client.send(post(b"second"))
        assert (await client.answer())[0] == 503
        await asyncio.sleep(0)
        assert [request.body for request in rig.destinations[0].seen] == [b"first"]
        assert rig.deliveries[0].queue.size == 0


async def test_without_a_queue_the_destination_has_its_say() -> None:
    async with a_relay(enabled=False) as rig, await rig.client() as client:
        client.send(post(b"a"))
        assert (await client.answer())[0] == 202
        assert [request.body for request in rig.destination.seen] == [b"a"]
        rig.destination.answer = lambda _: of_status(418)
        client.send(post(b"b"))
        assert (await client.answer())[0] == 418
        assert rig.deliveries[0].queue.pushed == 0


async def test_a_request_is_tried_first_and_queued_when_that_fails() -> None:
    async with a_relay(always_queue=False, retry_interval=0.001) as rig, await rig.client() as client:
        client.send(post(b"a"))
        assert (await client.answer())[0] == 202
        assert rig.deliveries[0].queue.pushed == 0
        answers = [of_status(503), of_status(200)]
        rig.destination.answer = lambda _: answers.pop(0)
        client.send(post(b"b"))
        assert (await client.answer())[0] == 202
        assert [request.body for request in await rig.destination.until(3)] == [b"a", b"b", b"b"]
        assert rig.deliveries[0].queue.pushed == 1
