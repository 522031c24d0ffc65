"""`forebay manager` with `forebay worker`, as processes on one log, and over HTTP."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, ExitStack
from pathlib import Path

import aiohttp
import pytest

import forebay
from forebay.client import Client
from forebay.model import Conflict, Rejected
from forebay.store.seam import Store
from forebay.work.board import Board, Crew, Lead, Orders, board_of
from forebay.work.managing import Manager, ManagerSettings
from forebay.work.values import WorkerReport
from tests.integration.client.serving import Server
from tests.integration.pages import get
from tests.servers import ForebayServer
from tests.servers.forebay import environment
from tests.servers.process import ServerProcess, free_port, log_tail

SECONDS = 50


class Processes:
    """Programs of ours on one store, each in a process; all are ended."""

    def __init__(self, url: str, folder: Path) -> None:
        self._url = url
        self._folder = folder
        self._started: list[ServerProcess] = []

    def start(self, *arguments: str) -> ServerProcess:
        """Start `forebay` with these arguments, and wait for nothing."""
        process = ServerProcess.spawn(
            [sys.executable, "-m", "forebay.app.cli", *arguments, "--store", self._url],
            log=self._folder / "processes.log",
            directory=self._folder,
            environment=environment(),
        )
        self._started.append(process)
        return process

    def said(self) -> str:
        """What they have written."""
        return log_tail(self._folder / "processes.log")

    def end(self) -> None:
        """End all."""
        for process in self._started:
            process.end(signal.SIGKILL)


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Give the address of an empty log that several processes can work on."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/forebay.db"
    dsn: str = request.getfixturevalue("postgres_dsn")
    return dsn


@pytest.fixture
def processes(url: str, tmp_path: Path) -> Iterator[Processes]:
    """Give what starts processes on that log."""
    started = Processes(url, tmp_path)
    with ExitStack() as stack:
        stack.callback(started.end)
        yield started


async def seen(board: Board, right: Callable[[Crew], bool], processes: Processes) -> Crew:
    """The board as soon as it is right."""
    crew, never = await board.crew(), asyncio.get_running_loop().create_future()
    try:
        async with asyncio.timeout(SECONDS):
            while not right(crew):
                await asyncio.wait([never], timeout=0.05)  # looking all the time would hold up the others
                crew = await board.crew()
    except TimeoutError:
        pytest.fail(f"{crew}\n{processes.said()}")
    return crew


def told(crew: Crew, queue: str) -> int:
    """How many processors of workers that are there may be at a queue."""
    return sum(
        crew.instructions[report.worker].processors.get(queue, 0)
        for report in crew.workers
        if report.worker in crew.instructions
    )


def at_work(crew: Crew, queue: str) -> int:
    """How many processors are at a queue."""
    return sum(report.queues[queue].processors for report in crew.workers if queue in report.queues)


async def put(store: Store, queue: str, count: int) -> None:
    """Put as many tasks."""
    await store.put_task(queue, *[b"x"] * count)


@pytest.mark.timeout(180)
async def test_a_burst_moves_processors_to_the_slow_queue(url: str, processes: Processes) -> None:
    async with forebay.open(url) as store:
        board = board_of(store)
        assert board is not None
        for queue, count in (("quick", 10_000), ("slow", 60)):
            await store.create_queue(queue)
            await put(store, queue, count)
        first = processes.start("worker", "tests.integration.managed_worker:worker")
        processes.start("worker", "tests.integration.managed_worker:worker")
        leader = processes.start("manager", "--round", "0.5")
        await seen(board, lambda crew: told(crew, "quick") >= 6 and at_work(crew, "quick") >= 5, processes)
        processes.start("manager", "--round", "0.5")

        await put(store, "slow", 10_000)
        await seen(board, lambda crew: told(crew, "slow") >= 5 and at_work(crew, "slow") >= 4, processes)
        crew = await board.crew()
        assert told(crew, "quick") >= 1

        first.end(signal.SIGKILL)
        leader.end(signal.SIGTERM)
        crew = await seen(board, lambda now: len(now.workers) == 1 and told(now, "slow") == 3, processes)
        assert told(crew, "quick") == 1
        assert crew.lead.version > 1


async def test_a_manager_shows_its_numbers(url: str, processes: Processes) -> None:
    page = f"127.0.0.1:{free_port()}"
    async with forebay.open(url) as store, aiohttp.ClientSession() as session:
        board = board_of(store)
        assert board is not None
        processes.start("manager", "--round", "0.1", "--metrics", page)
        await seen(board, lambda crew: crew.lead.version > 1, processes)  # its first round is counted
        async with session.get(f"http://{page}/healthz") as health:
            assert (health.status, await health.text()) == (200, "ok\n")
        async with session.get(f"http://{page}/metrics") as numbers:
            text = await numbers.text()
    assert "forebay_manager_leading 1.0" in text
    assert 'forebay_manager_rounds_total{result="failed"} 0.0' in text


def test_a_manager_begins_when_the_store_is_there_and_ends_also_while_it_is_not(tmp_path: Path) -> None:
    page, log = f"127.0.0.1:{free_port()}", tmp_path / "processes.log"
    with ForebayServer() as server, ExitStack() as stack:
        server.stop()
        processes = Processes(server.url, tmp_path)
        stack.callback(processes.end)
        one = processes.start("manager", "--round", "0.1", "--metrics", page)
        one.wait_ready(
            lambda: get(f"http://{page}/healthz") == (503, "the Manager hasn't begun\n"), SECONDS, log
        )
        other = processes.start("manager")
        other.wait_ready(lambda: processes.said().count("which is tried again") == 2, SECONDS, log)
        os.kill(other.pid, signal.SIGTERM)
        assert other.wait(SECONDS) == 0
        server.start()
        one.wait_ready(lambda: get(f"http://{page}/healthz") == (200, "ok\n"), SECONDS, log)


async def test_workers_and_managers_meet_over_http() -> None:
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(Server())
        store = await stack.enter_async_context(Client(server.url))
        assert board_of(store) is store
        await store.create_queue("slow")
        await put(store, "slow", 50)
        report = WorkerReport(worker="w/1", processors=2, queues={})
        assert await store.report_work(report) is None
        one = Manager(store, name="one", settings=ManagerSettings(weights={"slow": 2.0}))
        two = Manager(store, name="two")
        assert (await one.round(), await two.round()) == (True, False)
        told = await store.report_work(report)
        assert told is not None
        assert (told.manager, told.processors) == ("one", {})
        with pytest.raises(Conflict):
            await store.direct_work(Orders(manager="two", version=0))
        with pytest.raises(Rejected):
            await store.direct_work(Orders(manager="two", version=1, instructions={"w/1": {"slow": -1}}))
        assert (await store.crew()).lead == Lead(manager="one", version=1)
