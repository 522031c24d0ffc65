"""The checker of histories finds every kind of bug, planted in a history and planted in the store itself."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any

import pytest

from forebay.log.memory import MemoryLog
from forebay.log.values import Claimed, Deferral
from forebay.model import LeaseLost, ManualClock, Message
from forebay.store import settling
from forebay.store.plans import Plan, Told
from forebay.store.settler import Settler
from forebay.store.store import LogStore
from forebay.store.values import Task
from forebay.warm.contents import Contents
from forebay.warm.memory import MemoryWarm
from tests.conformance.store.rigs import gone_process, kill
from tests.history import Handed, History, Pushed, check, check_log


def history() -> History:
    """Two messages of one partition, one transaction id; the first comes back once. Nothing is wrong."""
    made = History(put={"a": 1, "b": 2}, partitions={"a": "p", "b": "p"}, transaction_ids={"a": "t"})
    made.hand(Handed("a", "1", 3, 10, 0, asked=2.5, take="1", id=1)).settle("retry", 4, 5)
    made.hand(Handed("a", "2", 7, 12, 1, asked=6, take="2", id=1)).settle("done", 8, 9)
    made.hand(Handed("b", "3", 12, 20, 0, asked=11, take="3", id=2)).settle("bury", 13, 14)
    return made


def spoil(change: Callable[[History], object]) -> History:
    made = history()
    change(made)
    return made


def test_a_history_that_is_right_has_no_problems() -> None:
    assert check(history(), dead=["b"], ordered=True, differences=[0, 0]) == []


@pytest.mark.parametrize(
    ("wrong", "problem"),
    [
        (lambda h: h.put.update(c=3), "lost: c"),
        (lambda h: h.handed.pop(), "lost: b"),
        (lambda h: h.put.pop("a"), "invented: a"),
        (lambda h: h.hand(Handed("b", "4", 13, 14, 1, id=2)).settle("done", 13.5, 13.6), "settled twice: b"),
        (lambda h: h.hand(Handed("a", "4", 15, 20, 2, asked=14, id=1)), "handed out after its end: a"),
        (lambda h: h.hand(Handed("b", "4", 12.5, 20, 1, asked=12.1, id=2)), "two live leases: b"),
        (lambda h: h.handed[0].settle("done", 4, 5, "lost"), "lease lost early: a"),
        (lambda h: setattr(h.handed[1], "attempts", 0), "attempts: a went from 0 to 0"),
        (lambda h: setattr(h.handed[1], "attempts", 2), "attempts: a went from 0 to 2"),
        (lambda h: setattr(h.handed[2], "attempts", 1), "attempts: b came first with 1"),
        (lambda h: h.handed[0].settle("release", 4, 5), "attempts: a went from 0 to 1"),
        (lambda h: h.transaction_ids.update(b="t"), "not deduplicated"),
        (lambda h: setattr(h.handed[1], "id", 3), "there twice: a"),
        (lambda h: setattr(h.handed[2], "at", 6.5), "out of order in 'p': b"),
        (lambda h: h.hand(Handed("b", "1", 3, 10, 0, 2.5, "1", 2)).settle("done", 6, 6.5), "overtaking: b"),
    ],
)
def test_a_planted_problem_is_found(wrong: Callable[[History], object], problem: str) -> None:
    problems = check(spoil(wrong), ordered=True, dead=["b"] if problem != "lost: b" else [])
    assert any(found.startswith(problem) for found in problems), problems


def test_a_ledger_that_is_off_is_found() -> None:
    assert check(history(), dead=["b"], differences=[0, 1]) == ["the ledger is off by 1"]


def test_a_lease_that_was_lost_before_it_was_seen_is_not_held_beside_the_next() -> None:
    made = History(put={"a": 1}, partitions={"a": "p"}, losses=[(10, 10.2)])
    made.hand(Handed("a", "1", 10.3, 20, 0, asked=9.9, take="1", id=1))
    made.hand(Handed("a", "2", 10.25, 20, 1, asked=10.21, take="2", id=1)).settle("done", 11, 12)
    assert check(made, ordered=True) == []


def test_what_is_not_certain_is_no_problem() -> None:
    made = history()
    made.handed[0].settle("done", 4, float("inf"), "unknown")
    assert check(made, dead=["b"], ordered=True) == []
    made.handed[0].settle("done", 4, 5, "lost")
    made.losses.append((3.5, 3.6))
    assert check(made, dead=["b"], ordered=True) == []
    made.handed[1].attempts = 2
    made.doubts.append((3, 6))
    assert check(made, dead=["b"], ordered=True) == []


def test_a_lease_ends_when_something_before_it_comes_back() -> None:
    made = history()
    made.handed.insert(1, Handed("b", "1", 3, 10, 0, asked=2.5, take="1", id=2))
    made.handed[1].settle("done", 6, 6.5, "lost")
    assert check(made, dead=["b"], ordered=True) == []
    assert [p.split(":")[0] for p in check(made, dead=["b"])] == ["lease lost early", "attempts"]
    made.handed[1].settle("done", 3.5, 4.5)  # which of both came first, nobody knows
    made.handed.pop()
    assert check(made, ordered=True) == []


class Simulation:
    """Clients of a real store, in virtual time; every event takes a microsecond."""

    def __init__(self, seed: int, *, ordered: bool, dedupe: bool = True) -> None:
        self.rng = random.Random(seed)
        self.clock = ManualClock(1_800_000_000_000_000)
        self.log = MemoryLog(clock=self.clock)
        self.history = History()
        self.ordered = ordered
        self.dedupe = dedupe
        self.store = self._new_store()
        self._open: list[Handed] = []
        self._names = 0

    def _new_store(self) -> LogStore:
        return LogStore(self.log, clock=self.clock, name=f"{gone_process()}-{self.rng.random()}.")

    def now(self) -> float:
        self.clock.advance(seconds=0.000_001)
        return (self.clock.now() - 1_800_000_000_000_000) / 1e6

    async def run(self) -> list[str]:
        """Work, crash, work again, and finish what is left; the problems."""
        await self.store.__aenter__()
        settings = {
            "ordered": self.ordered, "in_memory_queue_size": 12, "visibility_seconds": 5,
            "dedupe_seconds": 3600 if self.dedupe else 0,
        }  # fmt: skip
        await self.store.create_queue("q", settings)
        await self._work()
        await kill(self.store)
        for handed in self._open:
            handed.ended = min(handed.ended, self.now())
        self.store = self._new_store()
        await self.store.__aenter__()
        await self._work()
        await self._drain()
        letters = await self.store.dead_letters("q", limit=1000)
        stats = await self.log.stats()
        await self.store.__aexit__(None, None, None)
        return check(
            self.history,
            dead=[letter.message().payload.decode() for letter in letters],
            ordered=self.ordered,
            differences=[g.difference for s in stats.queues for g in s.groups],
        )

    async def _work(self) -> None:
        await asyncio.gather(
            *(self._put() for _ in range(2)), *(self._take() for _ in range(4)), self._time()
        )

    async def _time(self) -> None:
        for _ in range(60):
            self.clock.advance(seconds=self.rng.random() * 0.5)
            await self.store.tick()
            await asyncio.sleep(0)

    async def _put(self) -> None:
        partition = f"p{self._names}"
        for _ in range(25):
            self._names += 1
            name = f"m{self._names}"
            known = f"t{self.rng.randrange(8)}-{partition}" if self.rng.random() < 0.3 else None
            self.history.maybe_put.add(name)
            self.history.partitions[name] = partition
            if known is not None:
                self.history.transaction_ids[name] = known
            await self.store.put_task("q", Message(name.encode(), partition, known))
            self.history.put[name] = self.now()
            await asyncio.sleep(0)

    async def _take(self) -> None:
        for _ in range(30):
            tasks = await self._get(self.rng.randrange(1, 4))
            await asyncio.sleep(0)
            for task, handed in tasks:
                how = self.rng.choice(("done", "done", "done", "retry", "release", "bury", "late", "none"))
                if how == "late":
                    self.clock.advance(seconds=self.rng.choice((1, 6)))
                    await asyncio.sleep(0)
                await self._settle(task, handed, "done" if how == "late" else how)

    async def _get(self, count: int) -> list[tuple[Task, Handed]]:
        asked = self.now()
        tasks = await self.store.get_task("q", count)
        at = self.now()
        if at > asked + 5:
            self.history.doubts.append((asked, at))
        found = []
        for task in tasks:
            handed = Handed(
                task.data.decode(), str(task.lease.number), at, asked + 5, task.attempts,
                asked, f"{asked}", task.id,
            )  # fmt: skip
            self._open.append(self.history.hand(handed))
            found.append((task, handed))
        return found

    async def _settle(self, task: Task, handed: Handed, how: str) -> None:
        calls: dict[str, Callable[[list[Task]], Awaitable[object]]] = {
            "done": self.store.done_task,
            "retry": self.store.retry_task,
            "release": self.store.release,
            "bury": lambda tasks: self.store.bury(tasks, "tired"),
        }
        if how not in calls:
            return
        begun = self.now()
        try:
            await calls[how]([task])
        except LeaseLost:
            handed.settle(how, begun, self.now(), "lost")
        else:
            handed.settle(how, begun, self.now())

    async def _drain(self) -> None:
        empty = 0
        while empty < 5:
            self.clock.advance(seconds=10)
            await self.store.tick()
            tasks = await self._get(50)
            empty = 0 if tasks else empty + 1
            for task, handed in tasks:
                await self._settle(task, handed, "done")


@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize("seed", range(5))
async def test_the_store_makes_histories_that_are_right(seed: int, *, ordered: bool) -> None:
    assert await Simulation(seed, ordered=ordered).run() == []


async def outcomes_only_in_memory(patch: pytest.MonkeyPatch) -> None:
    async def commit(_: Settler, plan: Plan) -> Told:
        await plan.tier.warm.finish(plan.tier.shelf, plan.held)
        return Told()

    patch.setattr(Settler, "_commit", commit)


async def taken_and_still_ready(patch: pytest.MonkeyPatch) -> None:
    take = MemoryWarm.take

    async def leaky(self: MemoryWarm, *args: Any, **options: Any) -> Any:
        leased = await take(self, *args, **options)
        for piece in leased:
            contents = self._shelves[piece.lease.group]
            lane = contents.lanes[contents.lane_key(piece.parcel)]
            contents._ready(piece.parcel, lane, piece.places[0], piece.places[-1] + 1)
        return leased

    finish = Contents.finish

    def careless(self: Contents, *args: Any) -> None:
        with suppress(KeyError):  # what is there twice is taken off twice
            finish(self, *args)

    patch.setattr(MemoryWarm, "take", leaky)
    patch.setattr(Contents, "finish", careless)


async def marks_that_are_dropped(patch: pytest.MonkeyPatch) -> None:
    async def mark(*_: Any) -> list[int]:
        return []

    patch.setattr(MemoryLog, "mark", mark)


async def attempts_that_begin_anew(patch: pytest.MonkeyPatch) -> None:
    def defer(
        offsets: Any, due_at: int, _: int, previous: int | None, reason: str = ""
    ) -> tuple[Deferral, ...]:
        return tuple(Deferral(o, due_at, 0, previous, 1, reason) for o in offsets)

    patch.setattr(settling, "defer", defer)


async def partitions_with_several_workers(patch: pytest.MonkeyPatch) -> None:
    def take(self: Contents, count: int, _: int | None) -> list[Any]:
        return [run for lane in list(self.lanes.values()) for run in lane.cut(count)]

    patch.setattr(Contents, "_take_partitions", take)


async def claims_that_are_skipped(patch: pytest.MonkeyPatch) -> None:
    claim = MemoryLog.claim

    async def skipping(self: MemoryLog, *args: Any, **kwargs: Any) -> Claimed:
        claimed = await claim(self, *args, **kwargs)
        return Claimed(claimed.claims[:-1] or claimed.claims, claimed.corrupt)

    patch.setattr(MemoryLog, "claim", skipping)


async def conflicts_that_are_ignored(patch: pytest.MonkeyPatch) -> None:
    async def held(_: Settler, __: Any, wanted: Any) -> Any:
        return {lease: list(offsets) for lease, offsets in wanted.items()}

    async def ignore(*_: Any) -> list[int]:
        return []

    patch.setattr(Settler, "_held_of", held)
    patch.setattr(Settler, "_settle_singly", ignore)


async def leases_that_outlive_what_came_back(patch: pytest.MonkeyPatch) -> None:
    async def nothing(*_: Any) -> list[Any]:
        return []

    patch.setattr(Settler, "_out_after", nothing)


ORDERED_BUGS = (partitions_with_several_workers, leases_that_outlive_what_came_back)


@pytest.mark.parametrize(
    ("bug", "problem"),
    [
        (outcomes_only_in_memory, "handed out after its end"),
        (taken_and_still_ready, "two live leases"),
        (marks_that_are_dropped, "attempts"),
        (attempts_that_begin_anew, "attempts"),
        (partitions_with_several_workers, "out of order"),
        (leases_that_outlive_what_came_back, "overtaking"),
        (claims_that_are_skipped, "lost"),
        (conflicts_that_are_ignored, "settled twice"),
    ],
)
async def test_a_bug_in_the_store_is_found(
    bug: Callable[[pytest.MonkeyPatch], Any], problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await bug(monkeypatch)
    ordered = bug in ORDERED_BUGS
    problems: list[str] = []
    for seed in range(10):
        problems += await Simulation(seed, ordered=ordered).run()
        if any(found.startswith(problem) for found in problems):
            return
    pytest.fail(f"{problem} was not found among {problems[:5]}")


async def test_a_queue_that_does_not_deduplicate_is_found() -> None:
    problems = await Simulation(1, ordered=False, dedupe=False).run()
    assert any(found.startswith("not deduplicated") for found in problems)


PUSHES = (
    Pushed("q/p", ("a", "b"), acknowledged=True),
    Pushed("q/p", ("maybe", "perhaps"), acknowledged=False),
    Pushed("q/p", ("c",), acknowledged=True),
    Pushed("q/r", ("d",), acknowledged=True),
)


@pytest.mark.parametrize(
    "line",
    [
        "abc",
        ["a", "b", "maybe", "perhaps", "c"],
        ["a", "b", "c", "maybe", "perhaps"],
        ["maybe", "perhaps", *"abc"],
    ],
)
def test_a_log_with_what_was_acknowledged_in_order_has_no_problems(line: Sequence[str]) -> None:
    """What was given up is there or not, anywhere."""
    assert check_log(PUSHES, {"q/p": line, "q/r": ["d"]}, differences=[0, 0]) == []


@pytest.mark.parametrize(
    ("line", "problems"),
    [
        ("ab", ["lost: c"]),
        ("", ["lost: a", "lost: b", "lost: c"]),
        ("abcc", ["there twice: c"]),
        (
            ["a", "b", "maybe", "perhaps", "c", "maybe", "perhaps"],
            ["there twice: maybe", "there twice: perhaps"],
        ),
        ("cab", ["out of order in 'q/p': c is before a", "out of order in 'q/p': c is before b"]),
        ("bac", ["out of order in 'q/p': b is before a"]),
        (["a", "b", "perhaps", "maybe", "c"], ["out of order in 'q/p': perhaps is before maybe"]),
        ("abcx", ["invented: x"]),
        ("abcd", ["misplaced: d is in q/p", "there twice: d"]),
        (["a", "b", "maybe", "c"], ["torn: 1 of 2"]),
        ("bc", ["lost: a", "torn: 1 of 2"]),
    ],
)
def test_a_planted_problem_of_a_log_is_found(line: Sequence[str], problems: list[str]) -> None:
    found = check_log(PUSHES, {"q/p": line, "q/r": ["d"]})
    assert len(found) == len(problems), found
    for text, problem in zip(found, problems, strict=True):
        assert text.startswith(problem)


def test_a_ledger_that_is_off_after_pushes_is_found() -> None:
    assert check_log((), {}, differences=[0, -2]) == ["the ledger is off by -2"]
