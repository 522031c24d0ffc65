"""The synchronous face: the same verbs from any thread, closed in order, and refused after a fork."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

import forebay
from forebay.client import SyncClient
from forebay.deliver.destination_board import DestinationReport
from forebay.model import LeaseLost, Misconfigured, Rejected, Unavailable
from forebay.work.board import Orders
from forebay.work.values import WorkerReport
from tests.integration.client.threads import ServerThread


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerThread]:
    with ServerThread(tmp_path / "log.db") as started:
        yield started


def loop_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "forebay-client"]


def test_the_verbs_are_those_of_the_store(server: ServerThread) -> None:
    with forebay.open_sync(server.url) as client:
        client.create_queue("orders")
        (first, _) = client.put_task("orders", b"a", b"b")
        tasks = client.get_task("orders", 2)
        assert [task.data for task in tasks] == [b"a", b"b"]
        assert tasks[0].id == first
        client.done_task(tasks)
        with pytest.raises(LeaseLost):
            client.done_task(tasks)
    assert loop_threads() == []


def test_the_board_of_workers_can_be_read_and_written(server: ServerThread) -> None:
    with forebay.open_sync(server.url) as client:
        assert isinstance(client, SyncClient)
        assert (
            client.report_work(WorkerReport(worker="one", processors=2, group="workers", queues={})) is None
        )
        lead = client.direct_work(Orders(manager="first", instructions={"one": {"orders": 2}}))
        crew = client.crew()
        assert ([found.worker for found in crew.workers], crew.lead) == (["one"], lead)
        assert crew.instructions["one"].processors == {"orders": 2}


def test_destinations_are_listed_paused_resumed_and_tested(server: ServerThread) -> None:
    with forebay.open_sync(server.url) as client:
        assert isinstance(client, SyncClient)
        report = DestinationReport(
            name="hooks", process="p", url="http://x/", queue="jobs", group="hooks", breaker="closed"
        )
        assert client.report_destination(report).pause is None
        assert client.pause_destination("hooks", "moving").pause is not None
        (found,) = client.destinations().destinations
        assert (found.name, found.pause and found.pause.reason) == ("hooks", "moving")
        assert client.resume_destination("hooks").pause is None
        with pytest.raises(Rejected, match="no destination 'hooks'"):
            client.test_destination("hooks")


def test_it_works_without_with_and_is_closed_once(server: ServerThread) -> None:
    client = SyncClient(server.url)
    client.create_queue("orders")
    client.close()
    client.close()
    with pytest.raises(Rejected, match="closed"):
        client.queues()


def test_threads_share_it(server: ServerThread) -> None:
    with SyncClient(server.url) as client, ThreadPoolExecutor(16) as threads:
        client.create_queue("orders")
        ids = list(threads.map(lambda i: client.put_task("orders", b"%d" % i), range(200)))
        assert len(loop_threads()) == 1
        assert len({id for (id,) in ids}) == 200
        tasks = {task.id: task.data for task in client.get_task("orders", 1_000)}
    assert [tasks[id] for (id,) in ids] == [b"%d" % i for i in range(200)]


def test_closing_ends_the_wait_of_another_thread(server: ServerThread) -> None:
    client = SyncClient(server.url)
    client.create_queue("orders")
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(client.get_task, "orders", wait_seconds=300)
        server.all_waiting(1)
        client.close()
        with pytest.raises(Unavailable, match="closed"):
            waiting.result(10)
        server.all_waiting(0)


def test_who_is_interrupted_while_waiting_lets_go_of_the_server(
    server: ServerThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(self: Future[object], timeout: float | None = None) -> object:
        assert (self.done(), timeout) == (False, None)
        monkeypatch.undo()
        server.all_waiting(1)
        raise KeyboardInterrupt

    with SyncClient(server.url) as client:
        client.create_queue("orders")
        monkeypatch.setattr(Future, "result", interrupted)
        with pytest.raises(KeyboardInterrupt):
            client.get_task("orders", wait_seconds=300)
        server.all_waiting(0)


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")  # newer Pythons warn of just this
def test_a_child_of_a_fork_is_told_to_open_its_own(server: ServerThread) -> None:
    with SyncClient(server.url) as client:
        client.create_queue("orders")
        child = os.fork()
        if child == 0:
            try:
                client.queues()
            except Rejected as error:
                os._exit(7 if "forked" in str(error) else 1)
            os._exit(2)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        assert len(client.queues()) == 1


def test_only_servers_have_a_synchronous_face() -> None:
    with pytest.raises(Misconfigured, match="address of a server"):
        forebay.open_sync("sqlite:///forebay.db")
