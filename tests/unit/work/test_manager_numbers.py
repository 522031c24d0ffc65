"""What a Manager counts, with a clock that is moved by hand."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from prometheus_client import CollectorRegistry

from forebay.log.memory import MemoryLog
from forebay.model import ManualClock, Unavailable
from forebay.store.store import LogStore
from forebay.work.board import LEAD_SECONDS, Crew, LogBoard
from forebay.work.managing import Manager
from forebay.work.values import QueueReport, WorkerReport


def report(worker: str) -> WorkerReport:
    """What a worker says that takes a second for each task of `a`."""
    queue = QueueReport(
        processed=10, errors=0, retried=0, seconds_per_task=1.0, in_progress=0, processors=0, processors_max=4
    )
    return WorkerReport(worker=worker, processors=4, queues={"a": queue})


class Board(LogBoard):
    """A board that may be away, and makes Managers."""

    is_away = False

    def __init__(self, store: LogStore, clock: ManualClock) -> None:
        super().__init__(store.log, clock=clock)
        self._store = store
        self._now = clock.now

    def manager(self, name: str) -> Manager:
        """One with a registry that is given to it."""
        registry = CollectorRegistry()
        made = Manager(
            self._store, board=self, name=name, elapsed=lambda: self._now() / 1_000_000, registry=registry
        )
        assert made.registry is registry
        return made

    async def crew(self) -> Crew:
        """All that is on it."""
        if self.is_away:
            raise Unavailable("the board is away")
        return await super().crew()


def number(manager: Manager, name: str, **labels: str) -> float | None:
    return manager.registry.get_sample_value(f"forebay_manager_{name}", labels)


@pytest.fixture
def clock() -> ManualClock:
    """Give a clock that stands still."""
    return ManualClock(1_767_225_600_000_000)


@pytest.fixture
async def board(clock: ManualClock) -> AsyncIterator[Board]:
    """Give a board with two workers, that have thirty tasks to do."""
    async with LogStore(MemoryLog(clock=clock), clock=clock) as store:
        await store.create_queue("a")
        await store.put_task("a", *[b"x"] * 30)
        made = Board(store, clock)
        for name in ("v", "w"):
            await made.report_work(report(name))
        yield made


async def test_who_leads_shows_its_rounds_and_its_plan_and_who_does_not_shows_none(board: Board) -> None:
    one, two = board.manager("one"), board.manager("two")
    assert number(one, "leading") == 0
    for _ in range(3):
        await one.round()
        await two.round()
    assert (number(one, "leading"), number(two, "leading")) == (1, 0)
    assert number(one, "rounds_total", result="led") == 3
    assert number(two, "rounds_total", result="stood_by") == 3
    assert number(one, "instructions_total") == 6
    assert number(one, "plan_changes_total") == 1
    assert number(one, "workers") == 2
    assert number(one, "processors_wanted", queue="a") == 8
    assert number(two, "processors_wanted", queue="a") is None


async def test_a_leader_whose_rounds_fail_says_so_and_leads_no_longer_than_its_lead(
    board: Board, clock: ManualClock
) -> None:
    one = board.manager("one")
    await one.round()
    board.is_away = True
    for is_leading in (1, 0):
        clock.advance(seconds=LEAD_SECONDS / 2)
        with pytest.raises(Unavailable):
            await one.round()
        assert number(one, "leading") == is_leading
    assert number(one, "rounds_total", result="failed") == 2
    assert number(one, "workers") == 0


async def test_a_leader_that_stops_leads_no_longer(board: Board) -> None:
    one = board.manager("one")
    await one.round()
    one.stop()
    await one.run()
    assert number(one, "leading") == 0
    assert number(one, "rounds_total", result="led") == 1
