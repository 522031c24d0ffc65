"""A flow that fails is started again after pauses that grow; the others don't notice."""

import threading
from functools import partial

import pytest

from forebay.spark.flows.supervision import GOOD_SECONDS, LONGEST_SECONDS, Supervised, pause

pytest.importorskip("pyspark")

from forebay.spark.flows.numbers import FlowNumbers
from forebay.spark.flows.pipeline import Pipeline, Unit


class Clock:
    """A clock that goes when it is told to."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Fake:
    """A flow that runs until somebody says otherwise."""

    def __init__(self) -> None:
        self.active = True
        self.failure: BaseException | None = None
        self.stopped = threading.Event()
        self.hangs_until: threading.Event | None = None

    def is_active(self) -> bool:
        return self.active

    def error(self) -> BaseException | None:
        return self.failure

    def stop(self) -> None:
        if self.hangs_until is not None:
            self.hangs_until.wait(60)
        self.stopped.set()

    def fail(self, text: str) -> None:
        self.active, self.failure = False, ValueError(text)


class Rig:
    """Flows by name, each with all its starts."""

    def __init__(self, *names: str, tries_max: int | None = None) -> None:
        self.clock = Clock()
        self.starts: dict[str, list[Fake]] = {name: [] for name in names}
        self.refuse: set[str] = set()
        units = [
            Unit(name=name, type="TRANSFORM", start=partial(self._start, name), numbers=FlowNumbers())
            for name in names
        ]
        self.pipeline = Pipeline(units, tries_max=tries_max, clock=self.clock, spread=lambda: 0.0)

    def _start(self, name: str) -> Fake:
        if name in self.refuse:
            raise LookupError("no such queue")
        self.starts[name].append(Fake())
        return self.starts[name][-1]

    def after(self, seconds: float) -> None:
        self.clock.now += seconds
        self.pipeline.round()

    def states(self) -> dict[str, str]:
        return {status.name: status.state for status in self.pipeline.statuses()}


def test_pauses_double_up_to_five_minutes_and_are_spread() -> None:
    assert [pause(failures) for failures in (1, 2, 3, 4)] == [1, 2, 4, 8]
    assert pause(9) == 256
    assert pause(10) == pause(1000) == LONGEST_SECONDS
    assert (pause(1, -1), pause(1, 1)) == (0.8, 1.2)


def test_one_that_ran_well_for_a_minute_begins_with_the_shortest_pause_again() -> None:
    known = Supervised()
    for _ in range(5):
        known = known.started(0).failed(1, "boom", 0)
    assert known.due_at == 1 + 16
    known = known.started(20).failed(20 + GOOD_SECONDS, "boom", 0)
    assert (known.failures, known.due_at) == (1, 20 + GOOD_SECONDS + 1)


def test_a_flow_that_fails_is_started_again_and_the_other_goes_on() -> None:
    rig = Rig("a", "b")
    rig.pipeline.round()
    rig.starts["a"][0].fail("boom")
    rig.after(0)
    assert rig.states() == {"a": "failed", "b": "running"}
    assert rig.pipeline.trouble == "flows that fail: a"
    rig.after(0.9)
    assert len(rig.starts["a"]) == 1
    rig.after(0.2)
    assert (len(rig.starts["a"]), len(rig.starts["b"])) == (2, 1)
    status = rig.pipeline.statuses()[0]
    assert (status.state, status.restarts, status.error) == ("running", 1, "ValueError: boom")
    rig.after(GOOD_SECONDS)
    assert rig.pipeline.statuses()[0].error is None
    assert rig.pipeline.trouble is None


def test_a_flow_that_cannot_be_started_waits_like_one_that_fails() -> None:
    rig = Rig("a", "b")
    rig.refuse.add("a")
    rig.pipeline.round()
    assert rig.states() == {"a": "failed", "b": "running"}
    rig.after(1.0)
    rig.after(1.9)
    assert rig.pipeline.statuses()[0].error == "LookupError: no such queue"
    rig.refuse.clear()
    rig.after(0.1)
    assert rig.states() == {"a": "running", "b": "running"}


def test_when_every_flow_has_ended_by_itself_all_is_done() -> None:
    rig = Rig("a", "b")
    rig.pipeline.round()
    for starts in rig.starts.values():
        starts[0].active = False
    rig.after(0)
    assert rig.pipeline.is_over
    rig.after(1000)
    assert (len(rig.starts["a"]), rig.states()) == (1, {"a": "done", "b": "done"})


def test_where_tries_are_counted_a_flow_that_fails_so_often_is_given_up_and_the_rest_is_done() -> None:
    rig = Rig("a", "b", tries_max=3)
    rig.pipeline.round()
    for _ in range(3):
        rig.starts["a"][-1].fail("boom")
        rig.after(0)
        rig.after(10)
    assert len(rig.starts["a"]) == 3
    assert rig.states() == {"a": "failed", "b": "running"}
    assert (rig.pipeline.statuses()[0].error, rig.pipeline.is_over) == ("ValueError: boom", False)
    rig.starts["b"][0].active = False
    rig.after(0)
    assert rig.pipeline.is_over


def test_a_stop_reaches_every_flow_and_waits_for_none_too_long() -> None:
    rig = Rig("a", "b")
    rig.pipeline.round()
    stuck = threading.Event()
    rig.starts["a"][0].hangs_until = stuck
    assert not rig.pipeline.stop(0.05)
    assert rig.starts["b"][0].stopped.wait(5)
    stuck.set()


def test_lags_that_cannot_be_measured_harm_nobody() -> None:
    def lags() -> dict[str, int]:
        raise OSError("the log is away")

    unit = Unit(name="a", type="TRANSFORM", start=Fake, numbers=FlowNumbers())
    pipeline = Pipeline([unit], tend=lags)
    pipeline.round()
    assert pipeline.statuses()[0].state == "running"


def test_a_flow_that_lives_on_what_another_makes_waits_until_that_is_done() -> None:
    started: list[Fake] = []

    def start() -> Fake:
        started.append(Fake())
        return started[-1]

    first = Unit(name="a", type="TRANSFORM", start=start, numbers=FlowNumbers())
    second = Unit(name="b", type="DATA_SINK", start=start, numbers=FlowNumbers(), after=("a",))
    pipeline = Pipeline([second, first])
    pipeline.round()
    assert len(started) == 1
    started[0].active = False
    pipeline.round()
    pipeline.round()
    assert [status.state for status in pipeline.statuses()] == ["running", "done"]
