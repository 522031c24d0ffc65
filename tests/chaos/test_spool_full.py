"""No space for the spool: pushes are refused with 507, what was acknowledged is safe, settling goes on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, Final

import pytest

from forebay.model import format_id, mint
from tests.chaos.outages import Refused, Stage, fill, small_disk
from tests.chaos.producers import prepare, problems_of
from tests.chaos.spooling import recovered, set_aside
from tests.history import Pushed
from tests.integration.http_wire import Answer, ask
from tests.servers import FaultProxy, ForebayServer, PostgresServer

pytestmark = [pytest.mark.chaos, pytest.mark.slow]

PUSH: Final = "/v1/queues/plain/messages"
FULL: Final = 507
PUSHES_MAX: Final = 500
PADDING: Final = "x" * 2_000


class Producer:
    """One partition, whose pushes are large."""

    def __init__(self, port: int) -> None:
        self.pushes: list[Pushed] = []
        self._port = port

    async def push(self, *, again: bool = False) -> Answer:
        """Push, or push what was refused last; what was acknowledged is written down."""
        if not again:
            self._key, self._names = format_id(mint()), (f"{len(self.pushes)}-{PADDING}",)
        items = [{"payload": name, "partition": "p"} for name in self._names]
        answer = await self.ask("POST", PUSH, items, {"Idempotency-Key": self._key})
        push = Pushed("plain/p", self._names, acknowledged=answer.status == 201)
        if again:
            self.pushes[-1] = push
        else:
            self.pushes.append(push)
        return answer

    async def until(self, status: int, *, again: bool = False) -> Answer:
        """Push until it is answered so."""
        for _ in range(PUSHES_MAX):
            answer = await self.push(again=again)
            if answer.status == status:
                return answer
            assert answer.status in {201, FULL}, answer.body
        raise AssertionError(f"{PUSHES_MAX} pushes, and no answer was {status}")

    async def ask(self, method: str, path: str, body: Any, headers: Any = ()) -> Answer:
        """Ask anything."""
        return await asyncio.to_thread(ask, self._port, method, path, body, headers)

    async def take(self, count: int) -> list[dict[str, str]]:
        """Take tasks."""
        tasks = (await self.ask("POST", "/v1/queues/plain/take", {"count": count})).json()["tasks"]
        return [{"id": task["id"], "lease": task["lease"]} for task in tasks]


@pytest.fixture
async def stage(postgres_server: PostgresServer, postgres_dsn: str) -> AsyncIterator[Stage]:
    """Give a database with queues, and the way to it."""
    await prepare(postgres_dsn)
    async with FaultProxy(postgres_server.port) as proxy:
        yield Stage(postgres_server, proxy, postgres_dsn)


async def begin(server: ForebayServer, stage: Stage) -> tuple[Producer, list[dict[str, str]]]:
    """Push and take while all is well, and then let the database go."""
    await asyncio.to_thread(server.start)
    producer = Producer(server.port)
    for _ in range(5):
        await producer.until(201)
    tasks = await producer.take(4)
    assert len(tasks) == 4
    await Refused().begin(stage)
    return producer, tasks


async def settle(producer: Producer, tasks: list[dict[str, str]]) -> None:
    """Settle in every way; it is taken."""
    for path, more in (("/v1/done", {}), ("/v1/retry", {}), ("/v1/bury", {"reason": "tired"})):
        answer = await producer.ask("POST", path, {"tasks": [tasks.pop()], **more})
        assert answer.status == 200, answer.body


async def finish(server: ForebayServer, stage: Stage, producer: Producer) -> None:
    """Everything that was acknowledged is in the log, once and in order."""
    folder = server.data / "spool"
    await recovered(folder, server.tail)
    assert not set_aside(folder)
    assert await asyncio.to_thread(server.stop) == 0
    problems = await problems_of(producer.pushes, stage.direct)
    assert not problems, [problem[:200] for problem in problems]


async def test_a_spool_that_has_what_it_may_have_refuses_until_some_of_it_is_replayed(stage: Stage) -> None:
    server = ForebayServer(stage.dsn, sections={"spool": {"total_bytes_max": 100_000, "reserve_bytes": 0}})
    try:
        producer, tasks = await begin(server, stage)
        for _ in range(2):
            (await producer.until(FULL)).problem(FULL)
            (await producer.push(again=True)).problem(FULL)
            if tasks:
                await settle(producer, tasks)
                tasks.clear()
            await Refused().end(stage)
            async with asyncio.timeout(20):
                while (await producer.push(again=True)).status != 201:
                    pass
            await Refused().begin(stage)
        await Refused().end(stage)
        await finish(server, stage, producer)
    finally:
        server.close()


async def test_a_full_disk_refuses_until_there_is_space_and_lets_tasks_be_settled(stage: Stage) -> None:
    """On a file system that is full indeed, where one can be mounted."""
    with small_disk(32 << 20) as disk:
        spool = {"folder": str(disk / "spool"), "reserve_bytes": 1 << 20}
        server = ForebayServer(stage.dsn, sections={"spool": spool})
        server.data.mkdir()
        (server.data / "spool").symlink_to(disk / "spool")  # where it is looked for
        try:
            producer, tasks = await begin(server, stage)
            assert (await producer.push()).json()["durable"] == "spool"
            fill(disk / "filler")
            (await producer.until(FULL)).problem(FULL)
            await settle(producer, tasks)
            (disk / "filler").unlink()
            answer = await producer.until(201, again=True)
            assert answer.json()["durable"] == "spool"
            await producer.until(201)
            await Refused().end(stage)
            await finish(server, stage, producer)
        finally:
            server.close()
