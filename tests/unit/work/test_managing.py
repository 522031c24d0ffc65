"""Managers on one board, with a clock that is moved by hand: who leads, what is told, what vanishes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import msgspec
import pytest

from forebay.log.memory import MemoryLog
from forebay.log.values import Record
from forebay.model import Conflict, ManualClock, Misconfigured, Rejected, Unavailable
from forebay.store.store import LogStore
from forebay.work.board import (
    INSTRUCTION_SECONDS,
    INSTRUCTIONS,
    LEAD_SECONDS,
    LEADS,
    REPORT_SECONDS,
    REPORTS,
    Crew,
    Instructions,
    Lead,
    LogBoard,
    Orders,
    board_of,
)
from forebay.work.managing import Manager, ManagerSettings
from forebay.work.values import QueueReport, WorkerReport

NOON = 1_767_225_600_000_000


@pytest.fixture
def clock() -> ManualClock:
    """Give a clock that stands still."""
    return ManualClock(NOON)


@pytest.fixture
async def store(clock: ManualClock) -> AsyncIterator[LogStore]:
    """Give a store with the queues `a` and `b`."""
    async with LogStore(MemoryLog(clock=clock), clock=clock) as store:
        await store.create_queue("a")
        await store.create_queue("b")
        yield store


@pytest.fixture
def board(store: LogStore) -> LogBoard:
    """Give the board of that store."""
    found = board_of(store)
    assert isinstance(found, LogBoard)
    return found


@pytest.fixture
def manager(store: LogStore, clock: ManualClock) -> Callable[..., Manager]:
    """Give what makes Managers on that store."""

    def make(name: str, **options: Any) -> Manager:
        return Manager(store, name=name, elapsed=lambda: clock.now() / 1_000_000, **options)

    return make


def report(
    worker: str = "w",
    processors: int = 4,
    *,
    group: str = "workers",
    seconds: float | None = 1.0,
    **limits: int,
) -> WorkerReport:
    """What a worker says that has done ten tasks of each of its queues."""
    queues = {
        queue: QueueReport(
            processed=10, errors=0, retried=0, seconds_per_task=seconds, in_progress=0, processors=0,
            processors_max=most,
        )
        for queue, most in (limits or {"a": 4, "b": 4}).items()
    }  # fmt: skip
    return WorkerReport(worker=worker, processors=processors, queues=queues, group=group)


def many_queues() -> WorkerReport:
    """One queue too many."""
    one = report(a=1)
    return msgspec.structs.replace(one, queues={f"q{number}": one.queues["a"] for number in range(101)})


async def fill(store: LogStore, **tasks: int) -> None:
    """Put so many tasks in queues."""
    for queue, count in tasks.items():
        await store.put_task(queue, *[b"x"] * count)


async def test_a_worker_hears_what_its_backlog_asks_for(
    store: LogStore, board: LogBoard, manager: Callable[..., Manager]
) -> None:
    await fill(store, a=30, b=10)
    assert await board.report_work(report()) is None
    assert await manager("m").round()
    told = await board.report_work(report())
    assert told is not None
    assert (told.manager, told.processors) == ("m", {"a": 3, "b": 1})


async def test_weights_and_paused_queues_count(
    store: LogStore, board: LogBoard, manager: Callable[..., Manager]
) -> None:
    await fill(store, a=20, b=20)
    await board.report_work(report())
    first = manager("m", settings=ManagerSettings(weights={"b": 3}))
    await first.round()
    assert first.plan == {"w": {"a": 1, "b": 3}}
    await store.pause("b")
    await first.round()
    assert first.plan == {"w": {"a": 4, "b": 4}}  # `b` is light: nobody is set aside for it


async def test_groups_are_planned_apart(
    store: LogStore, board: LogBoard, manager: Callable[..., Manager]
) -> None:
    await store.create_group("a", "audit")
    await fill(store, a=30, b=10)
    await store.done_task(await store.get_task("a", 30, group="audit"))
    await board.report_work(report())
    await board.report_work(report("x", group="audit"))
    one = manager("m")
    await one.round()
    assert one.plan == {"w": {"a": 3, "b": 1}, "x": {"a": 4, "b": 4}}


async def write(store: LogStore, kind: str, key: str, value: object) -> None:
    """Put something on the board, as another version would."""
    until = store.clock.now() + 10_000_000
    await store.log.commit(records=[Record(kind, key, msgspec.msgpack.encode(value), until)])


async def test_a_worker_of_a_newer_version_counts(
    store: LogStore, board: LogBoard, manager: Callable[..., Manager]
) -> None:
    newer = msgspec.to_builtins(report("newer"))
    newer["uptime"] = newer["queues"]["a"]["oldest"] = 3
    await write(store, REPORTS, "newer", newer)
    await write(store, INSTRUCTIONS, "w", {"manager": "m", "processors": {"a": 2}, "until": 7})
    assert await board.report_work(report()) == Instructions(manager="m", processors={"a": 2})
    one = manager("m")
    assert await one.round()
    assert sorted(one.plan) == ["newer", "w"]


@pytest.mark.parametrize("odd", [b"", 3, {"worker": 7}, msgspec.to_builtins(report("odd", processors=-1))])
async def test_what_cannot_be_read_is_left_out_and_said_once(
    store: LogStore,
    board: LogBoard,
    manager: Callable[..., Manager],
    odd: object,
    caplog: pytest.LogCaptureFixture,
) -> None:
    await write(store, REPORTS, "odd", odd)
    await write(store, INSTRUCTIONS, "w", {"manager": "m", "processors": {"a": "two"}})
    await write(store, LEADS, "lead", odd)
    assert await board.report_work(report()) is None
    crew = await board.crew()
    assert crew.unreadable == ("the report of odd", "what w is told", "who leads")
    assert crew.lead == Lead(version=1)
    one = manager("m")
    assert await one.round()
    assert await one.round()
    assert sorted(one.plan) == ["w"]
    assert await board.report_work(report()) == Instructions(manager="m", processors=one.plan["w"])
    assert caplog.text.count("can't be read here: the report of odd, what w is told, who leads") == 1
    assert caplog.text.count("can't be read here") == 1


async def test_a_round_that_breaks_is_tried_again(
    board: LogBoard, manager: Callable[..., Manager], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, crew = manager("m", settings=ManagerSettings(round_seconds=0.001)), board.crew
    calls = 0

    async def broken() -> Crew:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise ZeroDivisionError
        assert one.trouble == ("ZeroDivisionError" if calls == 2 else None)
        if calls == 3:
            one.stop()
        return await crew()

    monkeypatch.setattr(one._board, "crew", broken)
    await one.run()
    assert calls == 3


async def test_one_leads_and_the_other_stands_by(
    board: LogBoard, manager: Callable[..., Manager], clock: ManualClock
) -> None:
    one, two = manager("one"), manager("two")
    await board.report_work(report())
    for _ in range(10):
        assert (await one.round(), await two.round()) == (True, False)
        clock.advance(seconds=LEAD_SECONDS / 2)
    assert (await board.crew()).lead == Lead(manager="one", version=10)


async def test_of_two_that_begin_together_one_leads(manager: Callable[..., Manager]) -> None:
    one, two = manager("one"), manager("two")
    assert sorted(await asyncio.gather(one.round(), two.round())) == [False, True]
    assert one.leads != two.leads


async def test_another_leads_when_the_leader_says_nothing(
    manager: Callable[..., Manager], clock: ManualClock
) -> None:
    one, two = manager("one"), manager("two")
    await one.round()
    clock.advance(seconds=LEAD_SECONDS - 1)
    assert not await two.round()
    clock.advance(seconds=1)
    assert await two.round()
    assert not await one.round()
    assert not one.leads
    assert one.plan == {}


async def test_a_dead_leader_is_replaced_also_if_its_clock_was_ahead(
    store: LogStore, manager: Callable[..., Manager], clock: ManualClock
) -> None:
    ahead = LogBoard(store.log, clock=ManualClock(NOON + 3_600_000_000))
    one, two = manager("one", board=ahead), manager("two")
    for _ in range(5):  # while it lives, it leads
        assert (await one.round(), await two.round()) == (True, False)
        clock.advance(seconds=LEAD_SECONDS / 2)
    assert not await two.round()
    clock.advance(seconds=LEAD_SECONDS / 2)
    assert await two.round()


class Stale(LogBoard):
    """A board on which one sees what was there, as a Manager does that was paused after looking."""

    seen: Crew | None = None

    async def crew(self) -> Crew:
        """What was there."""
        return self.seen or await super().crew()


async def test_a_leader_that_was_paused_changes_nothing(
    store: LogStore, board: LogBoard, manager: Callable[..., Manager], clock: ManualClock
) -> None:
    stale = Stale(store.log, clock=clock)
    one, two = manager("one", board=stale), manager("two")
    await fill(store, a=30, b=10)
    await board.report_work(report())
    await one.round()
    stale.seen = await board.crew()
    clock.advance(seconds=LEAD_SECONDS)
    await board.report_work(report(a=1, b=1))
    assert await two.round()
    told = (await board.crew()).instructions["w"]
    assert not await one.round()
    assert (await board.crew()).instructions["w"] == told
    assert told.processors == {"a": 1, "b": 1}


async def test_a_leader_whose_lead_ended_unnoticed_leads_anew(
    manager: Callable[..., Manager], board: LogBoard, clock: ManualClock
) -> None:
    one = manager("one")
    await one.round()
    await one.round()
    clock.advance(seconds=LEAD_SECONDS * 3)
    assert await one.round()
    assert (await board.crew()).lead == Lead(manager="one", version=3)


async def test_a_leader_that_stops_is_replaced_at_once(
    manager: Callable[..., Manager], board: LogBoard
) -> None:
    one, two = manager("one"), manager("two")
    await one.round()
    assert not await two.round()
    one.stop()
    await one.run()
    assert (await board.crew()).lead.manager is None
    assert await two.round()


async def test_a_dead_worker_vanishes_and_its_work_moves(
    store: LogStore, board: LogBoard, manager: Callable[..., Manager], clock: ManualClock
) -> None:
    await fill(store, a=30, b=10)
    one = manager("m")
    for worker in ("w", "x"):
        await board.report_work(report(worker, 2))
    await one.round()
    assert sum(given["a"] for given in one.plan.values()) == 3
    clock.advance(seconds=REPORT_SECONDS - 1)
    await board.report_work(report("w", 2))
    clock.advance(seconds=1)
    await one.round()
    assert one.plan == {"w": {"a": 1, "b": 1}}


async def test_a_worker_that_leaves_is_given_nothing(
    store: LogStore, board: LogBoard, manager: Callable[..., Manager]
) -> None:
    await fill(store, a=30)
    await board.report_work(report("w"))
    await board.report_work(WorkerReport(worker="x", processors=0, queues={}))
    one = manager("m")
    await one.round()
    assert one.plan == {"w": {"a": 4, "b": 4}}


async def test_instructions_outlast_a_change_of_leader_and_then_vanish(
    board: LogBoard, manager: Callable[..., Manager], clock: ManualClock
) -> None:
    await board.report_work(report())
    await manager("one").round()
    clock.advance(seconds=LEAD_SECONDS * 2)
    assert await board.report_work(report()) is not None
    clock.advance(seconds=INSTRUCTION_SECONDS - LEAD_SECONDS * 2)
    assert await board.report_work(report()) is None


async def test_a_new_leader_goes_on_with_the_plan_that_holds(
    store: LogStore, board: LogBoard, manager: Callable[..., Manager], clock: ManualClock
) -> None:
    await fill(store, a=51, b=49)
    await board.report_work(report(processors=5, a=5, b=5))
    one, two = manager("one"), manager("two")
    await one.round()
    await fill(store, b=4)
    clock.advance(seconds=LEAD_SECONDS)
    await board.report_work(report(processors=5, a=5, b=5))
    await two.round()
    assert two.plan == {"w": {"a": 3, "b": 2}}


async def test_rounds_go_on_after_one_that_failed(store: LogStore) -> None:
    class Away(LogBoard):
        looks = 0

        async def crew(self) -> Crew:
            self.looks += 1
            if self.looks < 3:
                raise Unavailable("away")
            return await super().crew()

    board = Away(store.log, clock=store.clock)
    one = Manager(store, board=board, settings=ManagerSettings(round_seconds=0.001))
    running = asyncio.create_task(one.run())
    async with asyncio.timeout(10):
        while not one.leads:  # noqa: ASYNC110 - no event for it
            await asyncio.sleep(0)
        one.stop()
        await running
    assert (await board.crew()).lead.manager is None


@pytest.mark.parametrize(
    "bad",
    [
        report(""),
        report("w" * 201),
        report(processors=-1),
        report(processors=1001),
        report(seconds=float("nan")),
        report(seconds=-1.0),
        report(a=1001),
        many_queues(),
    ],
)
async def test_a_report_that_cannot_be_changes_nothing(board: LogBoard, bad: WorkerReport) -> None:
    with pytest.raises(Rejected):
        await board.report_work(bad)
    assert (await board.crew()).workers == []


@pytest.mark.parametrize(
    "bad",
    [
        Orders(manager=""),
        Orders(manager="m", instructions={"w": {"a": -1}}),
        Orders(manager="m", instructions={"w": {"a": 1001}}),
        Orders(manager="m", instructions={"": {}}),
        Orders(manager="m", instructions={f"w{number}": {} for number in range(1001)}),
        Orders(manager="m", instructions={"w": {f"q{number}": 1 for number in range(101)}}),
    ],
)
async def test_orders_that_cannot_be_change_nothing(board: LogBoard, bad: Orders) -> None:
    with pytest.raises(Rejected):
        await board.direct_work(bad)
    assert await board.crew() == Crew(workers=[], instructions={})


async def test_orders_of_another_version_are_a_conflict(board: LogBoard) -> None:
    with pytest.raises(Conflict):
        await board.direct_work(Orders(manager="m", version=3, instructions={"w": {"a": 1}}))
    assert await board.crew() == Crew(workers=[], instructions={})


@pytest.mark.parametrize(
    "bad",
    [
        {"round_seconds": 0.0},
        {"round_seconds": 6.0},
        {"round_seconds": float("nan")},
        {"weights": {"a": 0.0}},
        {"weights": {"a": float("nan")}},
        {"weights": {"a": 1e9}},
    ],
)
def test_settings_that_cannot_be_are_rejected(bad: dict[str, Any]) -> None:
    with pytest.raises(Rejected):
        ManagerSettings(**bad)


def test_a_store_without_a_board_is_refused() -> None:
    nothing: Any = object()
    with pytest.raises(Misconfigured):
        Manager(nothing)
