"""A worker's end of the board: it does what it is told, and goes on when it is told nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import pytest

from forebay.model import Unavailable, cancel
from forebay.work.board import Crew, Instructions, Lead, Orders
from forebay.work.following import Follower
from forebay.work.settings import WorkerSettings
from forebay.work.values import QueueReport, WorkerReport


class Worker:
    """A worker with the queues `a` and `b`."""

    name = "worker"
    settings = WorkerSettings()

    def __init__(self) -> None:
        self.told: list[dict[str, int]] = []

    def report(self) -> WorkerReport:
        """Say that nothing has happened."""
        nothing = QueueReport(
            processed=0, errors=0, retried=0, seconds_per_task=None, in_progress=0, processors=0,
            processors_max=4,
        )  # fmt: skip
        return WorkerReport(worker="worker", processors=4, queues={"a": nothing, "b": nothing})

    def instruct(self, processors: Mapping[str, int]) -> None:
        """Remember."""
        self.told.append(dict(processors))


class Board:
    """Says what the test wants."""

    def __init__(self) -> None:
        self.says: dict[str, int] | None = None
        self.is_away = False
        self.fault: Exception = Unavailable("away")
        self.heard: list[WorkerReport] = []

    async def report_work(self, report: WorkerReport) -> Instructions | None:
        """Hear a report."""
        if self.is_away:
            raise self.fault
        self.heard.append(report)
        return None if self.says is None else Instructions(manager="m", processors=self.says)

    async def crew(self) -> Crew:
        """Nothing."""
        return Crew(workers=[], instructions={})

    async def direct_work(self, orders: Orders) -> Lead:
        """Nothing."""
        return Lead(version=orders.version)


@pytest.fixture
def worker() -> Worker:
    """Give a worker."""
    return Worker()


@pytest.fixture
def board() -> Board:
    """Give a board."""
    return Board()


@pytest.fixture
def follower(worker: Worker, board: Board) -> Follower:
    """Give what leads the one to the other."""
    return Follower(worker, board, 2.0)


async def test_without_instructions_a_worker_goes_on_as_it_was(worker: Worker, follower: Follower) -> None:
    await follower.follow()
    assert worker.told == []


async def test_instructions_are_passed_on_once(worker: Worker, board: Board, follower: Follower) -> None:
    board.says = {"a": 3, "b": 1}
    await follower.follow()
    await follower.follow()
    board.says = {"a": 1, "b": 1}
    await follower.follow()
    assert worker.told == [{"a": 3, "b": 1}, {"a": 1, "b": 1}]


async def test_queues_that_it_does_not_have_are_left_out(
    worker: Worker, board: Board, follower: Follower
) -> None:
    board.says = {"a": 3, "other": 1}
    await follower.follow()
    assert worker.told == [{"a": 3}]


async def test_a_board_that_is_away_changes_nothing(worker: Worker, board: Board, follower: Follower) -> None:
    board.says = {"a": 3, "b": 0}
    await follower.follow()
    board.is_away = True
    with pytest.raises(Unavailable):
        await follower.follow()
    board.is_away = False
    await follower.follow()
    assert worker.told == [{"a": 3, "b": 0}]


async def test_whatever_the_board_does_its_worker_goes_on_and_says_so_once(
    worker: Worker, board: Board, caplog: pytest.LogCaptureFixture
) -> None:
    follower = Follower(worker, board, 0.0)
    following = asyncio.create_task(follower.run())
    board.is_away, board.fault = True, ValueError("strange")
    for _ in range(10):
        await asyncio.sleep(0)
    assert caplog.text.count("no Manager hears of this worker, which goes on: strange") == 1
    board.is_away, board.says = False, {"a": 2}
    for _ in range(10):
        await asyncio.sleep(0)
    assert worker.told == [{"a": 2}]
    board.is_away = True
    await cancel(following)
    await follower.leave()


async def test_after_long_silence_no_queue_is_left_alone(
    worker: Worker, board: Board, follower: Follower
) -> None:
    board.says = {"a": 3, "b": 0}
    await follower.follow()
    board.says = None
    await follower.follow()
    await follower.follow()
    assert worker.told == [{"a": 3, "b": 0}, {"b": 1}]
    board.says = {"a": 3, "b": 0}
    await follower.follow()
    assert worker.told[-1] == {"a": 3, "b": 0}


async def test_workers_of_one_name_are_told_apart(worker: Worker, board: Board, follower: Follower) -> None:
    await follower.follow()
    await Follower(worker, board, 2.0).follow()
    one, two = (report.worker for report in board.heard)
    assert one != two
    assert one.startswith("worker@")


async def test_who_leaves_has_no_processors(board: Board, follower: Follower) -> None:
    await follower.leave()
    assert [(report.processors, report.queues) for report in board.heard] == [(0, {})]
    board.is_away = True
    await follower.leave()
