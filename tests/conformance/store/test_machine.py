"""Any store against a model of a few dicts: what may be handed out, and what is then said of it.

The model is the specification. A message waits (until a time), is out (until a deadline), done, dead or
purged. Time moves only by the rule that moves it, which also lets the store do what is due.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeVar

import hypothesis
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from forebay.model import LeaseLost, ManualClock, Message, mint
from forebay.store.letters import Letters
from forebay.store.seam import Store
from forebay.store.store import LogStore
from forebay.store.values import QueueStat, Retry, Task
from tests.conformance.rigs import Rig, make_rig
from tests.conformance.steps import SECOND, check_ledger
from tests.conformance.store.rigs import RIGS, StoreRig, rig_name

T = TypeVar("T")

QUEUE = "orders"
VISIBILITY = 60 * SECOND
STEPS = 25
EXAMPLES = {"memory": 30, "sqlite": 20, "postgres": 8, "tarantool": 8, "http": 8}
PARTITIONS = ("p", "q", "r")
REPAIRS = 100
"""Rounds of upkeep within which a shared tier is right again."""
FLOWS = (None, {"flow": "f"}, {"flow": "g"})

delays = st.sampled_from([0, 0, 0, 5, 30])
puts = st.lists(st.tuples(st.sampled_from(FLOWS), delays), min_size=1, max_size=6)
picks = st.lists(st.integers(0, 1_000), min_size=1, max_size=4)
verbs = st.sampled_from(["done", "done", "retry", "release", "bury"])
said = st.lists(st.tuples(st.integers(0, 1_000), verbs), min_size=1, max_size=6)


@dataclass
class Known:
    """What the model knows of a message. Times in µs."""

    id: int
    message: Message
    at: int
    """When it may be handed out."""
    start: int
    """Its start time; where `exact` is not set, the earliest that it may have."""
    exact: bool
    state: Literal["waits", "out", "done", "dead", "purged", "doomed"] = "waits"
    """Doomed: it was out for the last time when its lease was fenced off, and dies when that is noticed."""
    attempts: int = 0
    previous: int | None = None
    task: Task | None = None
    deadline: int = 0
    plain: bool = True
    """It was never out nor delayed: among such ones the older comes first."""

    @property
    def lane(self) -> str:
        """The flow, as far as order is concerned."""
        return (self.message.headers or {}).get("flow", "")


class StoreMachine(RuleBasedStateMachine):
    """Drives a store and the model side by side."""

    log_rig: ClassVar[Rig]
    valkey_url: ClassVar[str | None]
    http: ClassVar[bool]
    flush: ClassVar[Callable[[], None]]
    runner: ClassVar[asyncio.Runner]

    def __init__(self) -> None:
        super().__init__()
        self.run(self.log_rig.fresh())
        self.rig = StoreRig(self.log_rig, self.valkey_url, mint().hex(), http=self.http)
        self.store: Store = self.run(self.rig.open())
        self.known: dict[int, Known] = {}
        self.tasks: list[Task] = []
        self.letters: list[Letters] = []
        self.paused = False

    def teardown(self) -> None:
        self.run(self.rig.close())

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.runner.run(work)

    @property
    def clock(self) -> ManualClock:
        """The clock of store, log and tier."""
        return self.log_rig.clock

    # The model

    def those(self, *states: str) -> list[Known]:
        """The messages in some states, by id."""
        return [m for _, m in sorted(self.known.items()) if m.state in states]

    def available(self) -> list[Known]:
        """What may be handed out now, by id."""
        now = self.clock.now()
        if self.paused:
            return []
        if not self.ordered:
            return [m for m in self.those("waits") if m.at <= now]
        runs = [self.run_of(partition) for partition in PARTITIONS]
        return sorted((m for run in runs for m in run), key=lambda m: m.id)

    def run_of(self, partition: str) -> list[Known]:
        """What may be handed out of a partition: nothing while some of it is out, nor past what waits."""
        run: list[Known] = []
        for m in self.those("waits", "out"):
            if m.message.partition == partition:
                if m.state == "out":
                    return []
                if m.at > self.clock.now():
                    return run
                run.append(m)
        return run

    def out(self, task: Task) -> Known | None:
        """The message of a task, if the task still holds it."""
        m = self.known[task.id]
        return m if m.task is task else None

    def comes_back(self, m: Known, at: int, *, exact: bool = True) -> None:
        """An attempt more, or one too many."""
        m.task = None
        if self.retries_max is not None and m.attempts >= self.retries_max:
            m.state = "dead" if exact else "doomed"
            return
        m.state, m.at, m.attempts, m.previous = "waits", at, m.attempts + 1, m.start
        m.start, m.exact = at, exact and not self.ordered

    def all_come_back(self) -> None:
        """All leases are fenced off; the attempts are counted when the messages are brought again."""
        for m in self.those("out"):
            self.comes_back(m, self.clock.now(), exact=False)

    # Rules

    @initialize(
        ordered=st.booleans(), size=st.sampled_from([None, None, 1, 3, 8]), retries=st.sampled_from([None, 1])
    )
    def begin(self, *, ordered: bool, size: int | None, retries: int | None) -> None:
        self.ordered, self.is_small, self.retries_max = ordered, size is not None, retries
        chosen = {"ordered": ordered, "in_memory_queue_size": size, "retries_max": retries}
        self.run(self.store.create_queue(QUEUE, chosen))

    @rule(partition=st.sampled_from(PARTITIONS), several=puts)
    def put(self, partition: str, several: list[tuple[dict[str, str] | None, int]]) -> None:
        now = self.clock.now()
        messages = [
            Message(
                b"%d" % (len(self.known) + i),
                partition,
                headers=headers,
                start_time=now + delay * SECOND if delay else None,
            )
            for i, (headers, delay) in enumerate(several)
        ]
        for message_id, m in zip(self.run(self.store.put_task(QUEUE, *messages)), messages, strict=True):
            at = m.start_time or now
            self.known[message_id] = Known(message_id, m, at, at, exact=not self.ordered, plain=at == now)

    @rule(count=st.integers(1, 9))
    def get(self, count: int) -> None:
        available = self.available()
        tasks = self.take(available, count)
        if self.ordered:
            self.check_runs(tasks, is_all=len(tasks) < count and not self.is_small)
        else:
            assert self.is_small or len(tasks) == min(count, len(available))
            self.check_age(tasks, available)
        self.keep(tasks)

    @precondition(lambda self: self.ordered)
    @rule(count=st.integers(1, 9), partition=st.sampled_from(PARTITIONS))
    def get_named(self, count: int, partition: str) -> None:
        run = [] if self.paused else self.run_of(partition)
        tasks = self.take(run, count, partition=partition)
        self.check_runs(tasks, is_all=False)
        assert self.is_small or len(tasks) == min(count, len(run))
        self.keep(tasks)

    @precondition(lambda self: self.ordered)
    @rule(count=st.integers(1, 9), partitions_max=st.integers(1, 2))
    def get_of_few(self, count: int, partitions_max: int) -> None:
        tasks = self.take(self.available(), count, partitions_max=partitions_max)
        self.check_runs(tasks, is_all=False)
        partitions = {task.partition for task in tasks}
        assert len(partitions) <= partitions_max
        if len(tasks) < count and not self.is_small:
            assert len(tasks) == sum(len(self.run_of(partition)) for partition in partitions)
        self.keep(tasks)

    def take(self, available: Collection[Known], count: int, **options: Any) -> list[Task]:
        """Take tasks, and compare them with what may be taken."""
        now, were_out = self.clock.now(), bool(self.those("out"))
        tasks = self.run(self.store.get_task(QUEUE, count, **options))
        assert len({task.id for task in tasks}) == len(tasks) <= count
        assert {task.id for task in tasks} <= {m.id for m in available}
        for task in tasks:
            m = self.known[task.id]
            assert (task.data, task.partition, task.headers) == (
                m.message.payload, m.message.partition, m.message.headers,
            )  # fmt: skip
            assert (task.attempts, task.prev_start_time) == (m.attempts, m.previous)
            assert task.start_time == m.start if m.exact else m.start <= task.start_time <= now
            assert task.deadline == now + VISIBILITY
        if available and not were_out:
            assert tasks, "there is something, and nothing is in its way"
        return tasks

    def keep(self, tasks: Sequence[Task]) -> None:
        """These are out."""
        for task in tasks:
            m = self.known[task.id]
            m.state, m.task, m.deadline, m.start, m.plain = "out", task, task.deadline, task.start_time, False
        self.tasks = [*self.tasks, *tasks][-40:]

    def check_runs(self, tasks: Sequence[Task], *, is_all: bool) -> None:
        """Of each partition came the beginning of its run, in order; of every one, if there was room."""
        for partition in PARTITIONS:
            run = [m.id for m in self.run_of(partition)]
            came = [task.id for task in tasks if task.partition == partition]
            assert came == run[: len(came)]
            assert came or not run or not is_all or self.paused

    def check_age(self, tasks: Sequence[Task], available: Collection[Known]) -> None:
        """No plain message came before an older one of its flow."""
        came = {task.id for task in tasks}
        for flow in ("", "f", "g"):
            plain = [m.id for m in available if m.plain and m.lane == flow]
            ids = [i for i in plain if i in came]
            assert ids == plain[: len(ids)]
            assert [task.id for task in tasks if task.id in set(ids)] == ids

    @precondition(lambda self: self.tasks)
    @rule(verb=verbs, which=picks, seconds=st.sampled_from([0, 5, 30]))
    def settle_alike(self, verb: str, which: list[int], seconds: int) -> None:
        self.settle([(pick, verb) for pick in which], seconds)

    @precondition(lambda self: self.tasks)
    @rule(said=said, seconds=st.sampled_from([0, 5, 30]))
    def settle(self, said: list[tuple[int, str]], seconds: int) -> None:
        """Several outcomes in one call; of each message one."""
        chosen = {(t := self.tasks[pick % len(self.tasks)]).id: (t, verb) for pick, verb in said}
        by_verb = {v: [t for t, verb in chosen.values() if verb == v] for v in ("done", "bury", "release")}
        at = self.clock.now() + seconds * SECOND
        retries = [Retry(t, at) for t, verb in chosen.values() if verb == "retry"]
        held = [(m, verb) for task, verb in chosen.values() if (m := self.out(task)) is not None]
        first = self.first_back(m for m, verb in held if self.goes_back(m, verb))
        good = [(m, v) for m, v in held if self.goes_back(m, v) or not self.is_held_up(m, first)]
        done, bury, release = by_verb["done"], by_verb["bury"], by_verb["release"]
        told = self.store.settle(done=done, retry=retries, bury=bury, release=release, reason="bad")
        self.lose(told, len(chosen) - len(good))
        for m, verb in good:
            m.task = None
            if verb == "retry":
                self.comes_back(m, at)
            elif verb == "release":
                m.state, m.at = "waits", self.clock.now()
            else:
                m.state = "done" if verb == "done" else "dead"
        self.hold_up(first)

    def goes_back(self, m: Known, verb: str) -> bool:
        """Whether an outcome isn't the end of a message."""
        spent = self.retries_max is not None and m.attempts >= self.retries_max
        return verb == "release" or (verb == "retry" and not spent)

    def first_back(self, back: Iterable[Known]) -> dict[str, int]:
        """The first message that goes back of each partition, in an ordered queue."""
        first: dict[str, int] = {}
        for m in back if self.ordered else ():
            partition = m.message.partition
            first[partition] = min(m.id, first.get(partition, m.id))
        return first

    def is_held_up(self, m: Known, first: dict[str, int]) -> bool:
        """Whether a message comes after one of its partition that goes back."""
        return m.message.partition in first and m.id > first[m.message.partition]

    def hold_up(self, first: dict[str, int]) -> None:
        """What is out past what goes back does so, too, and counts no attempt."""
        for m in self.those("out"):
            if self.is_held_up(m, first):
                m.state, m.task, m.at = "waits", None, self.clock.now()

    @precondition(lambda self: self.tasks)
    @rule(which=picks, seconds=st.sampled_from([5, 30, 90]))
    def extend(self, which: list[int], seconds: int) -> None:
        """Leases are extended as a whole; what an ordered one has lost is told."""
        tasks = list({(i := pick % len(self.tasks)): self.tasks[i] for pick in which}.values())
        lost = 0
        for task in tasks:
            mates = [m for m in self.those("out") if m.task is not None and m.task.lease == task.lease]
            lost += not mates or (self.ordered and self.out(task) is None)
            for m in mates:
                m.deadline = self.clock.now() + seconds * SECOND
        self.lose(self.store.extend(tasks, seconds), lost)

    def lose(self, work: Coroutine[Any, Any, object], lost: int) -> None:
        """So many tasks are no longer ours."""
        if not lost:
            self.run(work)
            return
        with pytest.raises(LeaseLost, match=f"^{lost} tasks were"):
            self.run(work)

    @rule(seconds=st.sampled_from([1, 5, 25, 60]))
    def move_time(self, seconds: int) -> None:
        self.clock.advance(seconds=seconds)
        self.run(self.rig.embedded.tick())
        over = [m for m in self.those("out") if m.deadline <= self.clock.now()]
        first = self.first_back(m for m in over if self.goes_back(m, "retry"))
        for m in over:
            self.comes_back(m, self.clock.now())
        self.hold_up(first)

    @rule()
    def crash(self) -> None:
        self.run(all_filled(self.rig.embedded))  # on a shared tier the next fill waits for one that broke off
        self.store = self.run(self.rig.crash())
        if not self.rig.shared:
            self.all_come_back()

    @precondition(lambda self: self.rig.shared)
    @rule()
    def lose_the_warm_tier(self) -> None:
        type(self).flush()
        self.run(self.rig.embedded.tick())
        self.all_come_back()

    @rule()
    def pause_or_resume(self) -> None:
        self.run(self.store.resume(QUEUE) if self.paused else self.store.pause(QUEUE))
        self.paused = not self.paused

    @precondition(lambda self: self.those("dead"))
    @rule(which=picks, again=st.booleans())
    def redrive_or_purge(self, which: list[int], *, again: bool) -> None:
        dead = self.those("dead")
        chosen = sorted({dead[pick % len(dead)].id for pick in which})
        # In order, a letter comes again before or after what was brought already: that is not laid down.
        if again and not self.ordered:
            self.letters.append(self.run(self.store.redrive(QUEUE, chosen)))
            for i in chosen:
                m, now = self.known[i], self.clock.now()
                self.known[i] = Known(i, m.message, now, now, exact=True, plain=False)
        else:
            self.letters.append(self.run(self.store.purge(QUEUE, chosen)))
            for i in chosen:
                self.known[i].state = "purged"
        assert list(self.letters[-1].ids) == chosen

    @precondition(lambda self: self.letters)
    @rule()
    def undo(self) -> None:
        letters = self.letters.pop()
        changed = set(self.run(self.store.undo(QUEUE, letters)).ids)
        assert changed >= {i for i in letters.ids if self.known[i].state == "purged"}
        assert changed <= {i for i in letters.ids if self.known[i].state in {"purged", "waits"}}
        for i in changed:
            self.known[i].state = "dead"

    # After every step

    @invariant()
    def numbers_agree(self) -> None:
        if not hasattr(self, "ordered"):
            return
        self.run(check_ledger(self.log_rig.log))
        self.run(all_filled(self.rig.embedded))  # in the midst of it, what was out is with its next owner
        letters = {letter.message_id for letter in self.run(self.store.dead_letters(QUEUE, limit=1_000))}
        for m in self.those("doomed"):
            m.state = "dead" if m.id in letters else "doomed"
        assert letters == {m.id for m in self.those("dead")}
        found = self.run(self.settled_stat())
        waiting, later = self.those("waits", "doomed"), [m for m in self.those("waits") if not self.is_due(m)]
        assert found.taken_tasks == len(self.those("out"))
        assert found.total_tasks == len(waiting) + found.taken_tasks
        assert found.ready_tasks + found.delayed_tasks == len(waiting)
        # What was put for later counts as ready until it is brought; in order, others wait along.
        assert found.delayed_tasks <= len(later) or self.ordered

    async def settled_stat(self) -> QueueStat:
        """Where the tasks are; on a shared tier, once what a dead server left behind is taken over."""
        rounds = REPAIRS if self.rig.shared else 0
        while True:
            (found,) = (await self.store.get_stat()).queue_stats.values()
            if found.taken_tasks == len(self.those("out")) or not rounds:
                return found
            rounds -= 1
            await self.rig.embedded.tick()

    def is_due(self, m: Known) -> bool:
        return m.at <= self.clock.now()


async def all_filled(store: LogStore) -> None:
    """Return once nothing is being brought from the log."""
    for window in store._windows.values():
        while window._filling is not None:
            await asyncio.wait([window._filling])
            await asyncio.sleep(0)


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("log", "warm"), RIGS, ids=map(rig_name, RIGS))
def test_a_store_behaves_like_the_model(
    log: str, warm: str, tmp_path: Path, request: pytest.FixtureRequest, seed: int
) -> None:
    url = request.getfixturevalue("valkey_url") if warm == "valkey" else None
    flush = request.getfixturevalue("valkey_server").flush if warm == "valkey" else None
    rig = make_rig(log, tmp_path, request.getfixturevalue)
    parts = {"log_rig": rig, "valkey_url": url, "flush": flush, "http": warm == "http"}
    examples = settings().max_examples * EXAMPLES["http" if warm == "http" else log] // 25
    with asyncio.Runner() as runner:
        machine = type("Machine", (StoreMachine,), {**parts, "runner": runner})
        try:
            run_state_machine_as_test(
                hypothesis.seed(seed)(machine),
                settings=settings(stateful_step_count=STEPS, max_examples=examples),
            )
        finally:
            runner.run(rig.close())
