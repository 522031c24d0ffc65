"""Several servers on one log and one shared tier, which they lose and find again, against a model.

The model knows what is out. At the end all that isn't must come to who asks one of the servers, by rounds of
upkeep alone. Leases are of an hour, so none expires, and nothing waits for one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, TypeVar

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

from forebay.model import LeaseLost, Message, Unavailable, mint
from forebay.store import rounds
from forebay.store.store import LogStore
from forebay.store.values import Task
from tests.conformance.rigs import Rig, make_rig
from tests.conformance.steps import check_ledger
from tests.conformance.store.rigs import EVERYTHING, SHARED_LOGS, WRITES, StoreRig

T = TypeVar("T")

QUEUE = "orders"
SERVERS = 2
STEPS = 30
EXAMPLES = {"memory": 12, "sqlite": 8, "postgres": 5}
REPAIRS = 60
"""Rounds of upkeep within which all is well again."""
PARTITIONS = ("p", "q", "r")
LOSSES = {"away": EVERYTHING, "full": WRITES}

servers = st.integers(0, SERVERS - 1)


@dataclass
class Known:
    """What the model knows of a message."""

    partition: str
    task: Task | None = None
    """The task that was last handed out, while it is out."""
    server: LogStore | None = None
    doubtful: bool = False
    """Its lease may be void: what held it was lost."""
    done: bool = False

    @property
    def is_own(self) -> bool:
        """Whether its server handed it out without the shared tier."""
        return self.task is not None and self.task.lease.epoch.startswith("m")


class ServersMachine(RuleBasedStateMachine):
    """Drives servers and the model side by side."""

    log_rig: ClassVar[Rig]
    valkey_url: ClassVar[str]
    flush: ClassVar[Callable[[], None]]
    runner: ClassVar[asyncio.Runner]

    def __init__(self) -> None:
        super().__init__()
        self.run(self.log_rig.fresh())
        self.rig = StoreRig(self.log_rig, self.valkey_url, mint().hex())
        for _ in range(SERVERS):
            self.run(self.rig.open())
        self.known: dict[int, Known] = {}
        self.tasks: list[Task] = []
        self.cut = False

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.runner.run(work)

    def server(self, number: int) -> LogStore:
        return self.rig._open[number]

    # Rules

    @initialize(ordered=st.booleans(), size=st.sampled_from([None, 4, 20]))
    def begin(self, *, ordered: bool, size: int | None) -> None:
        self.ordered = ordered
        chosen = {"ordered": ordered, "in_memory_queue_size": size, "visibility_seconds": 3_600}
        self.run(self.server(0).create_queue(QUEUE, {**chosen, "in_memory_queue_bytes": 1 << 20}))

    @rule(server=servers, partition=st.sampled_from(PARTITIONS), count=st.integers(1, 8))
    def put(self, server: int, partition: str, count: int) -> None:
        """Put messages that are easy to compress: so more are claimed than fit, and some are only noted."""
        messages = [Message(b" " * 60_000, partition, headers={"flow": partition}) for _ in range(count)]
        for task_id in self.run(self.server(server).put_task(QUEUE, *messages)):
            self.known[task_id] = Known(partition)

    @rule(server=servers, count=st.integers(1, 9))
    def take(self, server: int, count: int) -> None:
        self.taken(server, count)

    def taken(self, server: int, count: int) -> list[Task]:
        """Take tasks, and see that they may be out."""
        store = self.server(server)
        try:
            tasks = self.run(store.get_task(QUEUE, count))
        except Unavailable:
            return []
        came: set[int] = set()
        for task in tasks:
            known = self.known[task.id]
            assert not known.done, "handed out again after it was done"
            assert known.task is None or known.doubtful, "two leases of one message"
            if self.ordered:
                self.check_order(task, came)
            came.add(task.id)
            known.task, known.server, known.doubtful = task, store, False
        self.tasks = [*self.tasks, *tasks][-40:]
        return tasks

    def check_order(self, task: Task, came: set[int]) -> None:
        """All of the partition that comes before is done, or came before with the same call."""
        for i, other in self.known.items():
            if i < task.id and other.partition == task.partition:
                assert other.done or i in came, "handed out before what comes before it"

    @precondition(lambda self: self.tasks)
    @rule(pick=st.integers(0, 1_000), server=servers, release=st.booleans())
    def settle(self, pick: int, server: int, *, release: bool) -> None:
        task = self.tasks[pick % len(self.tasks)]
        known = self.known[task.id]
        # What a server handed out without the shared tier is settled there.
        store = known.server if known.is_own and known.task is task else self.server(server)
        assert store is not None
        self.said(store, task, release=release)

    def said(self, store: LogStore, task: Task, *, release: bool = False) -> None:
        """Settle a task, and see that only a lease that holds does."""
        known = self.known[task.id]
        is_mine = known.task is task
        try:
            self.run(store.release([task]) if release else store.done_task([task]))
        except LeaseLost:
            assert not is_mine or known.doubtful, "a lease was lost for no reason"
            if is_mine:
                known.task = None
            return
        except Unavailable:
            known.doubtful = known.doubtful or is_mine
            return
        assert is_mine, "a lease settled that was over"
        known.done, known.task = not release, None
        if release and self.ordered:
            self.doubt(lambda other: other.partition == known.partition)

    def doubt(self, which: Callable[[Known], bool]) -> None:
        """The leases of some messages may be void."""
        for known in self.known.values():
            if known.task is not None and which(known):
                known.doubtful = True

    @rule(how=st.sampled_from(list(LOSSES)), which=st.sampled_from([None, *range(SERVERS)]))
    def lose_sight_of_the_tier(self, how: str, which: int | None) -> None:
        """One server, or every one, can't use the tier."""
        self.cut = True
        chosen = [] if which is None else [self.server(which)]
        self.rig.cut_off(*chosen, refused=LOSSES[how])

    @rule()
    def find_the_tier_again(self) -> None:
        self.cut = False
        self.rig.connect()
        self.upkeep()

    @rule(seconds=st.sampled_from([1, 4]))
    def let_time_pass(self, seconds: int) -> None:
        self.clock_on(seconds)
        self.upkeep()

    def clock_on(self, seconds: int) -> None:
        self.log_rig.clock.advance(seconds=seconds)
        if self.cut:  # what the tier held is given up after a while
            self.doubt(lambda known: not known.is_own)

    def upkeep(self) -> None:
        """One round of every server."""
        for store in self.rig._open:
            # The rig's processes all count as gone: what those hold that live must not be taken from them.
            store._rounds.retire_gone = store.log.owners  # type: ignore[method-assign]
            with suppress(Unavailable):
                self.run(store._rounds._keep_up())
                self.run(store._rounds._beat())
            for window in list(store._windows.values()):
                self.run(store._rounds._tend(window))

    @rule()
    def lose_all_that_the_tier_holds(self) -> None:
        type(self).flush()
        self.doubt(lambda known: not known.is_own)
        self.upkeep()

    @rule()
    def crash(self) -> None:
        """The server that was opened first dies, and another one takes its place.

        It takes over what the other one has in its own memory, too, since the rig's processes count as gone.
        """
        self.run(self.rig.crash())
        if self.cut:
            self.rig.cut_off()
        self.doubt(lambda known: known.is_own)

    # What must hold

    @invariant()
    def books_balance(self) -> None:
        self.run(check_ledger(self.log_rig.log))

    def teardown(self) -> None:
        try:
            if hasattr(self, "ordered"):
                self.find_the_tier_again()
                self.finish_what_is_out()
                self.drain()
        finally:
            self.run(self.rig.close())

    def finish_what_is_out(self) -> None:
        for known in self.known.values():
            if known.task is not None:
                lives = known.server is not None and known.server in self.rig._open
                self.said(known.server if known.server and lives else self.server(0), known.task)

    def drain(self) -> None:
        """All that is left comes to who asks one server, while nothing but upkeep is done for it."""
        for _ in range(REPAIRS):
            if all(known.done for known in self.known.values()):
                break
            self.clock_on(1)
            self.upkeep()
            while tasks := self.taken(SERVERS - 1, 50):
                for task in tasks:
                    self.said(self.server(SERVERS - 1), task)
        left = [i for i, known in self.known.items() if not known.done]
        assert not left, f"{len(left)} of {len(self.known)} reach nobody"
        (group,) = self.run(self.log_rig.log.stats()).queues[0].groups
        assert (group.done, group.held, group.deferred) == (len(self.known), 0, 0)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("log", SHARED_LOGS)
def test_servers_hand_out_everything_once_whatever_becomes_of_their_tier(
    log: str, tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rounds, "SHARED_TICK_SECONDS", 1e9)  # the machine does the rounds
    rig = make_rig(log, tmp_path, request.getfixturevalue)
    server = request.getfixturevalue("valkey_server")
    parts = {"log_rig": rig, "valkey_url": request.getfixturevalue("valkey_url"), "flush": server.flush}
    examples = settings().max_examples * EXAMPLES[log] // 25
    with asyncio.Runner() as runner:
        machine = type("Machine", (ServersMachine,), {**parts, "runner": runner})
        try:
            run_state_machine_as_test(
                machine, settings=settings(stateful_step_count=STEPS, max_examples=examples)
            )
        finally:
            runner.run(rig.close())
