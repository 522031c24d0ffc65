"""What a server has answered 2xx is durable, however it ends; and it waits for a store that is away."""

import asyncio
import signal
from collections.abc import Iterator
from contextlib import suppress
from typing import Final

import pytest

import forebay
from forebay.model import sequence_of
from tests.integration.http_wire import Answer, Wire, ask, request
from tests.servers import ForebayServer, PostgresServer, ServerUnavailableError, absent

pytestmark = pytest.mark.chaos

PUSHERS: Final = 8
ANSWERED_MIN: Final = 200
BODY: Final = b"[" + b",".join([b'{"payload": {"some": "payload"}}'] * 10) + b"]"


class Pushers:
    """Connections that push as fast as they are answered; `first` ids of what was answered 201."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.answered: list[str] = []
        self.enough = asyncio.Event()

    async def push(self) -> None:
        """Push until the connection ends."""
        push = request("POST", "/v1/queues/orders/messages", BODY)
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        try:
            while True:
                writer.write(push)
                head = await reader.readuntil(b"\r\n\r\n")
                length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
                self._note(Answer(int(head.split(b" ", 2)[1]), {}, await reader.readexactly(length)))
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()

    def _note(self, answer: Answer) -> None:
        if answer.status != 201:
            assert answer.status == 503, answer.body
            return
        self.answered += [result["id"] for result in answer.json()["results"]]
        if len(self.answered) >= ANSWERED_MIN:
            self.enough.set()


async def push_until(server: ForebayServer, sign: signal.Signals) -> list[str]:
    """Push with several connections, and signal the server in the middle of it."""
    pushers = Pushers(server.port)
    tasks = [asyncio.create_task(pushers.push()) for _ in range(PUSHERS)]
    await pushers.enough.wait()
    server.signal(sign)
    await asyncio.wait_for(asyncio.gather(*tasks), 30)
    return pushers.answered


async def stored(url: str) -> set[str]:
    """The ids of all messages in the store."""
    ids, following = set[str](), 1
    async with forebay.open(url) as store:
        while found := await store.read("orders", following):
            for block in found:
                ids.update(str(block.first + i) for i in range(block.count))
            following = sequence_of(found[-1].last) + 1
    return ids


@pytest.mark.parametrize("log", ["sqlite", "postgres"])
async def test_what_was_answered_before_a_stop_is_there(log: str, request: pytest.FixtureRequest) -> None:
    url = None if log == "sqlite" else request.getfixturevalue("postgres_dsn")
    with ForebayServer(url) as server:
        answered = await push_until(server, signal.SIGTERM)
        assert await asyncio.to_thread(server.wait) == 0, server.tail()
        assert set(answered) <= await stored(server.store_url)
        assert len(answered) == len(set(answered))


async def test_what_was_answered_before_a_kill_is_there() -> None:
    with ForebayServer() as server:
        for _ in range(2):
            answered = await push_until(server, signal.SIGKILL)
            assert await asyncio.to_thread(server.wait) == -signal.SIGKILL
            assert set(answered) <= await stored(server.store_url)
            await asyncio.to_thread(server.start)


def test_a_stop_lets_a_request_finish_within_its_deadline() -> None:
    with ForebayServer() as server, Wire(server.port) as wire:
        push = request("POST", "/v1/queues/orders/messages", BODY)
        wire.send(push[:-5])
        until_it_stops(server)
        wire.send(push[-5:])
        answer = wire.answer()
        assert answer.status == 201
        assert answer.headers["connection"] == "close"
        assert server.wait() == 0


def half_a_push() -> bytes:
    """A push whose end is never sent."""
    return request("POST", "/v1/queues/orders/messages", BODY[:-5], {"Content-Length": str(len(BODY))})


def test_a_second_signal_hurries() -> None:
    limits = {"shutdown_seconds": 60.0, "request_seconds": 60.0}
    with ForebayServer(limits=limits) as server, Wire(server.port) as wire:
        wire.send(half_a_push())
        until_it_stops(server)
        server.signal()
        assert server.wait(10) == 0
        wire.answer().problem(503)


def test_the_deadline_of_a_stop_is_kept() -> None:
    limits = {"shutdown_seconds": 0.5, "request_seconds": 60.0}
    with ForebayServer(limits=limits) as server, Wire(server.port) as wire:
        wire.send(half_a_push())
        until_it_stops(server)
        assert server.wait(10) == 0
        wire.answer().problem(503)


def until_it_stops(server: ForebayServer) -> None:
    """Tell it to stop, and return once it accepts nobody any more."""
    with Wire(server.port) as wire:
        wire.send(request("GET", "/healthz"))
        assert wire.answer().status == 200
        server.signal()
        assert wire.is_closed()  # idle connections are closed when it begins to stop


@pytest.fixture
def postgres() -> Iterator[PostgresServer]:
    """Give a PostgreSQL of the test's own, which isn't running."""
    try:
        server = PostgresServer("wheel-18")
        server.start()
    except ServerUnavailableError as error:
        absent(str(error))
    server.stop()
    yield server
    server.close()


def test_a_store_that_is_away_is_waited_for(postgres: PostgresServer) -> None:
    server = ForebayServer(postgres.dsn(), sections={"spool": {"enabled": False}})
    try:
        server.start(ready=False)
        readiness = ask(server.port, "GET", "/readyz")
        assert readiness.status == 503
        assert "ok" not in readiness.json()["parts"]["store"]
        answer = ask(server.port, "POST", "/v1/queues/orders/messages", BODY)
        answer.problem(503)
        assert int(answer.headers["retry-after"]) >= 1
        postgres.start()
        with Wire(server.port) as wire:
            while wire.ask("GET", "/readyz").status != 200:
                pass
        assert ask(server.port, "POST", "/v1/queues/orders/messages", BODY).status == 201
        postgres.kill()
        ask(server.port, "POST", "/v1/queues/orders/messages", BODY).problem(503)
        assert ask(server.port, "GET", "/healthz").status == 200
        postgres.start()
        with Wire(server.port) as wire:
            while wire.ask("POST", "/v1/queues/orders/messages", BODY).status != 201:
                pass
        assert server.stop() == 0
    finally:
        server.close()


def test_a_store_that_never_comes_does_not_keep_the_server_from_stopping(postgres: PostgresServer) -> None:
    server = ForebayServer(postgres.dsn())
    try:
        server.start(ready=False)
        assert server.stop() == 0
    finally:
        server.close()
