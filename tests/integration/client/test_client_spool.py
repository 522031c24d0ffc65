"""A client with a spool: pushes succeed while the server is away, and come to it once and in order."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from time import monotonic

import msgspec
import pytest
from aiohttp import web

import forebay
from forebay.api.keys import Key, Scope, make_key
from forebay.client import Client, SyncClient
from forebay.failover.settings import FailoverSettings
from forebay.failover.status import SpoolStatus
from forebay.log.sqlite import SqliteLog
from forebay.log.values import QueueSettings
from forebay.model import (
    Block,
    Conflict,
    Forbidden,
    ForebayError,
    Full,
    Message,
    Misconfigured,
    Rejected,
    TooMany,
    Unauthorized,
    Unavailable,
    UnknownQueue,
    mint,
)
from forebay.wire.media import PROBLEM
from forebay.wire.problems import problem_of
from tests.awake import Awake
from tests.integration.client.serving import Server
from tests.integration.client.threads import ServerThread
from tests.servers import FaultProxy, ForebayServer
from tests.servers.process import free_port

SECONDS = 30.0
QUICK = FailoverSettings(attempt_seconds=1.0, retry_seconds=0.1)
PATIENT = FailoverSettings(attempt_seconds=20.0)


class Door:
    """Lets everybody in with one key, or nobody."""

    def __init__(self, *scopes: str, queues: Sequence[str] = ()) -> None:
        self.key = made_key(*scopes, queues=queues)
        self.error: ForebayError | None = None

    def admit(self, _authorization: str | None, scope: Scope) -> Key:
        if self.error is not None:
            raise self.error
        if not self.key.has(scope):
            self.key.check(scope)
        return self.key


def made_key(*scopes: str, queues: Sequence[str] = ()) -> Key:
    return make_key("test", scopes, now=0, queues=queues)[0]


@pytest.fixture
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Server]:
    """Give a server that is not started yet."""
    made = away(tmp_path_factory.mktemp("server"))
    yield made
    await made.stop()


def away(folder: Path, keys: Door | None = None) -> Server:
    """A server that is not started yet; its port is one that no client has by chance."""
    made = Server(SqliteLog(folder / "log.db"), keys=keys)
    made.port = free_port()
    return made


async def pushed(server: Server, queue: str = "orders") -> list[bytes]:
    """All payloads of a queue, in the order of the log."""
    blocks = await server.store.read(queue, 1)
    return [message.payload for stored in blocks for message in stored.decode()]


async def until(condition: Callable[[], bool], why: str = "") -> None:
    async with asyncio.timeout(SECONDS):
        while not condition():  # noqa: ASYNC110 - it is the disk, or a log line
            await asyncio.sleep(0)
    assert condition(), why


def status_of(client: Client | SyncClient) -> SpoolStatus:
    status = client.spool_status()
    assert status is not None
    return status


def url_of(proxy: FaultProxy) -> str:
    return f"http://127.0.0.1:{proxy.port}"


def spooled(folder: Path) -> list[Path]:
    return list(folder.glob("failover_*.buf*"))


async def test_pushes_succeed_without_a_server_and_reach_it_once_and_in_order(
    server: Server, tmp_path: Path
) -> None:
    async with Client(server.url, spool=tmp_path / "spool") as client:
        for number in range(50):
            assert await client.put_task("orders", b"%d" % number, partition="p") == []
        appended = await client.append("orders", Block.of([Message(b"50", "p"), Message(b"51", "p")]))
        assert (appended.where, appended.count, appended.ids()) == ("spool", 2, [])
        status = status_of(client)
        assert (status.healthy, status.pending, status.queues, status.outages) == (
            False,
            52,
            {"orders": 52},
            1,
        )
        assert "no server" in (status.reason or "")
        await server.start()
        assert await client.drain_spool(SECONDS)
        assert await client.put_task("orders", b"52", partition="p") != []
        assert await pushed(server) == [b"%d" % number for number in range(53)]
        status = status_of(client)
        assert (status.healthy, status.pending, status.flushed, status.files) == (True, 0, 52, 0)


async def test_what_one_process_spooled_the_next_one_delivers_before_its_own(
    server: Server, tmp_path: Path
) -> None:
    async with Client(server.url, spool=tmp_path, spool_settings=QUICK) as client:
        await client.put_task("orders", b"first")
    assert [path.suffix for path in spooled(tmp_path)] == [".buf"]
    await server.start()
    async with forebay.open(server.url, spool=tmp_path) as store:
        assert isinstance(store, Client)
        await store.put_task("orders", b"second")
        assert await store.drain_spool(SECONDS)
    assert await pushed(server) == [b"first", b"second"]
    assert spooled(tmp_path) == []


def test_programs_without_an_event_loop_have_the_same(tmp_path: Path) -> None:
    port = free_port()
    with forebay.open_sync(f"http://127.0.0.1:{port}", spool=tmp_path / "spool") as client:
        assert client.put_task("orders", b"a") == []
        assert client.put_task("orders", b"b") == []
        status = status_of(client)
        assert status.pending == 2
        with ServerThread(tmp_path / "log.db", port=port) as server:
            assert client.drain_spool(SECONDS)
            with SyncClient(server.url) as other:
                assert [task.data for task in other.get_task("orders", 10)] == [b"a", b"b"]
                assert other.spool_status() is None
                assert other.drain_spool(0)


async def test_an_outage_is_noticed_within_its_bound_and_waited_for_once(
    server: Server, tmp_path: Path, awake: Awake
) -> None:
    await server.start()
    async with FaultProxy(server.port) as proxy:
        url = f"http://127.0.0.1:{proxy.port}"
        async with Client(url, spool=tmp_path, spool_settings=QUICK) as client:
            assert await client.put_task("orders", b"0") != []
            proxy.blackhole()
            began, awake_at = monotonic(), awake()
            together = [client.append("orders", Block.of([Message(b"1", str(n))])) for n in range(10)]
            assert {appended.where for appended in await asyncio.gather(*together)} == {"spool"}
            assert monotonic() - began > 0.9
            assert awake() - awake_at < 1.5
            awake_at = awake()
            assert await client.put_task("orders", b"2") == []
            assert awake() - awake_at < 0.5
            proxy.heal()  # what was held back arrives now, after it was spooled
            assert await client.drain_spool(SECONDS)
        assert sorted(await pushed(server)) == [b"0", *[b"1"] * 10, b"2"]


async def test_a_push_whose_answer_is_lost_is_spooled_and_written_once(
    server: Server, tmp_path: Path
) -> None:
    await server.start()
    async with FaultProxy(server.port) as proxy, Client(url_of(proxy), spool=tmp_path) as client:
        await client.create_queue("orders")
        for _ in range(3):
            proxy.cut_after_client_bytes(b"POST /v1/queues/orders/messages")
        assert await client.put_task("orders", b"a") == []
        await client.put_task("orders", b"b")
        assert await client.drain_spool(SECONDS)
    assert await pushed(server) == [b"a", b"b"]


async def test_a_connection_that_was_cut_while_it_was_idle_is_no_outage(
    server: Server, tmp_path: Path
) -> None:
    await server.start()
    async with FaultProxy(server.port) as proxy, Client(url_of(proxy), spool=tmp_path) as client:
        await client.put_task("orders", b"a")
        lost = proxy.cut_before_client_bytes(b"POST /v1/queues/orders/messages")
        assert await client.put_task("orders", b"b") != []
        assert lost.is_set()
        assert status_of(client).outages == 0


class Answering:
    """A server that answers pushes as it is told, and counts them; `error` None is a success."""

    def __init__(self, error: ForebayError | int) -> None:
        self.error = error
        self.pushes = 0

    async def __call__(self, request: web.BaseRequest) -> web.Response:
        if request.method == "GET":
            return web.json_response({})
        self.pushes += 1
        if isinstance(self.error, int):
            return web.Response(status=self.error, text="<h1>not here</h1>", content_type="text/html")
        problem = problem_of(self.error)
        body = msgspec.json.encode(problem)
        return web.Response(status=problem.status, body=body, content_type=PROBLEM)


async def on(answering: Answering, work: Callable[[str], Awaitable[None]]) -> None:
    """Do some work with a server that answers so."""
    runner = web.ServerRunner(web.Server(answering), shutdown_timeout=0)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", port := free_port())
    await site.start()
    try:
        await work(f"http://127.0.0.1:{port}")
    finally:
        await runner.cleanup()


@pytest.mark.parametrize(
    "error",
    [500, 502, 503, 504, Unavailable("the log is away"), Full("no space"), TooMany("slowly"), 404, 403, 302],
    ids=str,
)
async def test_what_is_not_the_fault_of_the_messages_goes_to_the_spool(
    error: ForebayError | int, tmp_path: Path
) -> None:
    async def work(url: str) -> None:
        async with Client(url, spool=tmp_path, spool_settings=QUICK) as client:
            assert await client.put_task("orders", b"a") == []
            pushes = answering.pushes
            await until(lambda: answering.pushes > pushes)  # it is tried again
            assert await client.put_task("orders", b"b") == []
            assert status_of(client).pending == 2

    await on(answering := Answering(error), work)
    assert not (tmp_path / "failed").exists() or list((tmp_path / "failed").iterdir()) == []


@pytest.mark.parametrize(
    "error",
    [Rejected("no"), UnknownQueue("no"), Unauthorized("no"), Forbidden("no"), Conflict("no")],
    ids=lambda error: type(error).__name__,
)
async def test_what_the_server_refuses_is_raised(error: ForebayError, tmp_path: Path) -> None:
    async def work(url: str) -> None:
        async with Client(url, spool=tmp_path) as client:
            with pytest.raises(type(error)):
                await client.put_task("orders", b"a")
            assert status_of(client).pending == 0

    await on(Answering(error), work)


async def test_a_key_that_is_refused_loses_nothing_and_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    door = Door("push", "admin")
    server = away(tmp_path, door)
    for error in (Unauthorized("no valid key"), Forbidden("the key lacks the scope push")):
        async with Client(server.url, key="k", spool=tmp_path, spool_settings=QUICK) as client:
            assert await client.put_task("orders", b"a") == []
            door.error = error
            with caplog.at_level(logging.WARNING, "forebay.failover"):
                await server.start()
                await until(lambda text=error.message: text in caplog.text)  # type: ignore[misc]
            status = status_of(client)
            assert (status.healthy, status.pending, status.failed) == (False, 1, 0)
            assert error.message in (status.reason or "")
            assert caplog.text.count(error.message) == 1
            door.error = None
            assert await client.drain_spool(SECONDS)
            await server.stop()
    await server.start()
    assert await pushed(server) == [b"a", b"a"]
    await server.stop()


async def test_what_is_for_a_queue_that_the_key_is_not_for_holds_up_nobody(tmp_path: Path) -> None:
    door = Door("push", queues=["ours"])
    server = away(tmp_path, door)
    async with Client(server.url, key="k", spool=tmp_path, spool_settings=QUICK) as client:
        await client.put_task("theirs", b"x")
        await client.put_task("ours", b"a")
        await server.start()
        assert await client.drain_spool(SECONDS)
        assert await pushed(server, "ours") == [b"a"]
        status = status_of(client)
        assert (status.failed, status.healthy) == (1, True)
        door.key = made_key("push")
        await until(lambda: spooled(tmp_path / "failed") == [])
        assert await pushed(server, "theirs") == [b"x"]
    await server.stop()


@pytest.mark.parametrize("scopes", [("push", "read"), ("push",)])
async def test_partitions_of_an_ordered_queue_that_were_spooled_together_are_delivered(
    tmp_path: Path, scopes: tuple[str, ...]
) -> None:
    server = away(tmp_path, Door(*scopes))
    await server.start()
    await server.store.create_queue("orders", {"ordered": True})
    await server.stop()
    messages = [Message(b"%d" % number, "ab"[number % 2]) for number in range(10)]
    async with Client(server.url, key="k", spool=tmp_path) as client:
        assert await client.put_task("orders", *messages) == []
        assert await client.put_task("orders", Message(b"10", "a")) == []
        await server.start()
        assert await client.drain_spool(SECONDS)
        status = status_of(client)
        assert status.failed == 0
    found = await pushed(server)
    assert [p for p in found if int(p) % 2 == 0] == [b"0", b"2", b"4", b"6", b"8", b"10"]
    assert [p for p in found if int(p) % 2] == [b"1", b"3", b"5", b"7", b"9"]
    assert (await server.store.queue("orders")).settings == QueueSettings(ordered=True)
    await server.stop()


async def test_a_delay_counts_from_the_push_wherever_it_waits(server: Server, tmp_path: Path) -> None:
    async with Client(server.url, spool=tmp_path) as client:
        await client.put_task("orders", b"late", delay=3600)
        await server.start()
        assert await client.drain_spool(SECONDS)
        assert await client.put_task("orders", b"later", delay=7200) != []
        assert await client.get_task("orders") == []
    assert await pushed(server) == [b"late", b"later"]


async def test_the_same_push_twice_is_one_write(server: Server, tmp_path: Path) -> None:
    async with Client(server.url, spool=tmp_path) as client:
        id = mint()
        for _ in range(2):
            assert await client.put_task("orders", b"a", id=id) == []
        await server.start()
        assert await client.drain_spool(SECONDS)
        assert await client.put_task("orders", b"a", id=id) != []
    assert await pushed(server) == [b"a"]


async def test_a_folder_is_one_client_s_at_a_time(tmp_path: Path) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    second = SyncClient(url, spool=tmp_path)
    async with Client(url, spool=tmp_path):
        with pytest.raises(Misconfigured, match="another process uses the spool folder"):
            async with Client(url, spool=tmp_path):
                raise AssertionError
        for _ in range(2):
            with pytest.raises(Misconfigured, match="another process uses the spool folder"):
                await asyncio.to_thread(second.spool_status)
    assert await asyncio.to_thread(second.put_task, "orders", b"a") == []
    await asyncio.to_thread(second.close)


async def test_a_client_that_is_not_open_spools_nothing(tmp_path: Path) -> None:
    client = Client(f"http://127.0.0.1:{free_port()}", spool=tmp_path / "spool")
    with pytest.raises(Rejected, match="not open"):
        await client.put_task("orders", b"a")
    assert not (tmp_path / "spool").exists()
    assert client.spool_status() is None


def test_a_log_has_no_spool(tmp_path: Path) -> None:
    with pytest.raises(Misconfigured, match="a spool is for when a server is away"):
        forebay.open("memory://", spool=tmp_path)


async def test_settling_is_not_spooled(server: Server, tmp_path: Path) -> None:
    await server.start()
    async with Client(server.url, spool=tmp_path, timeout_seconds=0.5) as client:
        await client.put_task("orders", b"a")
        tasks = await client.get_task("orders")
        await server.stop()
        with pytest.raises(Unavailable):
            await client.done_task(tasks)
        assert status_of(client).pending == 0


async def test_a_server_that_spools_by_itself_is_not_away(tmp_path: Path) -> None:
    database = f"postgresql://nobody@127.0.0.1:{free_port()}/none"
    server = ForebayServer(database)
    try:
        await asyncio.to_thread(server.start, ready=False)
        async with Client(server.url, spool=tmp_path / "spool", spool_settings=PATIENT) as client:
            appended = await client.append("orders", Block.of([Message(b"a")]))
            assert appended.where == "spool"
            assert await client.put_task("orders", b"b") == []
            status = status_of(client)
            assert (status.healthy, status.pending, status.files) == (True, 0, 0)
        assert spooled(server.data / "spool") != []
    finally:
        server.close()
