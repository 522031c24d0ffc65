"""Fairness: simulated processors serve simulated queues, on a clock that jumps from event to event."""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest

from forebay.work.fairness import LAG_SECONDS, PROBE_SECONDS, Fairness, Turn

WARM_SECONDS = 100.0
"""What batches take is found out first."""


@dataclass
class Simulation:
    """Queues that always have work, whose batches take so many seconds each."""

    seconds: Mapping[str, float]
    limits: Mapping[str, int]
    processors: int
    waits: dict[str, float] = field(default_factory=dict)
    """The longest that each queue waited for a turn."""
    served: dict[str, float] = field(default_factory=dict)
    """Seconds of processors that each has had."""
    at_once: dict[str, int] = field(default_factory=dict)

    def run(self, until: float) -> Fairness:
        fairness = Fairness(self.limits)
        self.waits, self.served = dict.fromkeys(self.limits, 0.0), dict.fromkeys(self.limits, 0.0)
        self.at_once = dict.fromkeys(self.limits, 0)
        since = dict.fromkeys(self.limits, 0.0)
        events: list[tuple[float, int, Turn | None]] = [(0.0, i, None) for i in range(self.processors)]
        while events and events[0][0] <= until:
            now, processor, ended = heapq.heappop(events)
            if ended is not None:
                fairness.end(ended, now)
                self.served[ended.queue] += now - ended.began
                if self._is_full(ended, fairness):
                    since[ended.queue] = now
            turn = fairness.pick(now)
            if turn is None:  # all that have work are at their limits
                heapq.heappush(events, (now + 0.01, processor, None))
                continue
            if now > WARM_SECONDS:
                self.waits[turn.queue] = max(self.waits[turn.queue], now - since[turn.queue])
            since[turn.queue] = now
            self.at_once[turn.queue] = max(self.at_once[turn.queue], fairness.turns_of(turn.queue))
            heapq.heappush(events, (now + self.seconds[turn.queue], processor, turn))
        return fairness

    def _is_full(self, turn: Turn, fairness: Fairness) -> bool:
        """Whether a queue was kept from waiting by its own limit until now."""
        return fairness.turns_of(turn.queue) == self.limits[turn.queue] - 1

    def ideal(self, queue: str) -> float:
        """How long a queue would wait if it had its share of the processors all the time."""
        return self.seconds[queue] * len(self.seconds) / self.processors


@pytest.mark.parametrize("processors", [1, 2, 3, 8])
@pytest.mark.parametrize("limit", [1, 4])
@pytest.mark.parametrize("slow", [1, 3])
def test_nobody_waits_for_more_than_twice_its_share_and_the_batches_at_work(
    processors: int, limit: int, slow: int
) -> None:
    queues = [f"q{i}" for i in range(8)]
    seconds = {queue: 10.0 if i < slow else 0.1 for i, queue in enumerate(queues)}
    simulation = Simulation(seconds, dict.fromkeys(queues, limit), processors)
    simulation.run(600)
    for queue in queues:
        # A batch can't be interrupted: when all processors are at slow ones, everybody waits for one of them.
        held_up = 10.0 if processors <= slow * limit else 0.0
        assert simulation.waits[queue] <= 2 * simulation.ideal(queue) + held_up + 0.2, simulation.waits


def test_queues_share_the_time_also_when_one_takes_a_hundred_times_longer() -> None:
    seconds = {"slow": 10.0, "a": 0.1, "b": 0.1}
    simulation = Simulation(seconds, dict.fromkeys(seconds, 1), 1)
    simulation.run(3_000)
    for queue in seconds:
        assert simulation.served[queue] == pytest.approx(1_000, rel=0.05)


def test_equal_queues_take_turns_one_after_the_other() -> None:
    fairness = Fairness({"a": 1, "b": 1, "c": 1})
    order = []
    for i in range(9):
        turn = fairness.pick(float(i))
        assert turn is not None
        order.append(turn.queue)
        fairness.end(turn, i + 1.0)
    assert order == ["a", "b", "c"] * 3


def test_a_busy_queue_is_passed_over_and_makes_nobody_else_be() -> None:
    fairness = Fairness({"a": 1, "b": 2})
    busy = fairness.pick(0.0)
    assert busy is not None
    assert busy.queue == "a"
    picked = [fairness.pick(1.0), fairness.pick(1.0)]
    assert [turn.queue for turn in picked if turn] == ["b", "b"]
    assert fairness.pick(2.0) is None
    fairness.end(busy, 3.0)
    turn = fairness.pick(3.0)
    assert turn is not None
    assert turn.queue == "a"


def test_processors_that_are_free_at_once_go_to_different_queues() -> None:
    fairness = Fairness({"slow": 4, "a": 4, "b": 4, "c": 4})
    for queue in ("slow", "a", "b", "c"):
        fairness.end(fairness.begin(queue, 0.0), 10.0 if queue == "slow" else 0.1)
    picked = [turn.queue for _ in range(4) if (turn := fairness.pick(10.0))]
    assert "slow" not in picked
    assert set(picked) == {"a", "b", "c"}


def test_who_had_no_work_comes_in_where_the_others_are() -> None:
    fairness = Fairness({"a": 1, "late": 1})
    for i in range(100):
        turn = fairness.pick(float(i))
        assert turn is not None
        if turn.queue == "late":
            fairness.empty(turn)
        else:
            fairness.end(turn, i + 1.0)
    fairness.found("late", 100.0)
    order = []
    for i in range(100, 106):
        turn = fairness.pick(float(i))
        assert turn is not None
        order.append(turn.queue)
        fairness.end(turn, i + 1.0)
    assert order.count("late") == 3


def test_who_was_kept_back_by_its_limit_claims_little_later() -> None:
    simulation = Simulation({"small": 1.0, "big": 1.0}, {"small": 1, "big": 3}, 4)
    fairness = simulation.run(1_000)
    fairness.limit("small", 4)
    assert simulation.at_once == {"small": 1, "big": 3}
    lag = fairness._shares["big"].used - fairness._shares["small"].used
    assert lag <= LAG_SECONDS + 5


def test_empty_queues_are_looked_at_together_and_not_all_the_time() -> None:
    fairness = Fairness({"a": 1, "b": 1, "busy": 2})
    for queue in ("a", "b"):
        fairness.empty(fairness.begin(queue, 0.0))
    assert fairness.probe(1.0) == ["a", "b"]
    assert fairness.probe(1.0) == []
    fairness.probed(1.0, 1.1)
    assert fairness.probe(1.1 + PROBE_SECONDS) == []  # it took long, so there is a longer pause
    assert fairness.probe(3.2) == ["a", "b"]
    fairness.empty(fairness.begin("busy", 3.2))
    assert fairness.probe(9.0) == []  # they are waited for


def test_who_waits_holds_a_place_in_every_queue() -> None:
    fairness = Fairness({"a": 1, "b": 2})
    fairness.hold(["a", "b"])
    assert fairness.room(0.0) == ["b"]
    assert fairness.pick(0.0) is not None
    assert fairness.room(0.0) == []
    fairness.let_go(["a", "b"])
    assert fairness.room(0.0) == ["a", "b"]


def test_a_queue_at_rest_is_left_alone_until_its_time() -> None:
    fairness = Fairness({"a": 1})
    fairness.rest("a", 5.0)
    assert fairness.pick(4.0) is None
    assert fairness.room(4.0) == []
    assert fairness.rested(4.0) == 1.0
    assert fairness.pick(5.0) is not None


def test_a_batch_that_hung_is_not_held_against_its_queue_for_as_long_as_it_did() -> None:
    fairness = Fairness({"hung": 1, "other": 1})
    hung = fairness.begin("hung", 0.0)
    other = fairness.begin("other", 86_390.0)
    fairness.end(other, 86_400.0)
    fairness.end(hung, 86_400.0, LAG_SECONDS)
    turns = []
    for now in (86_400.0, 86_401.0, 86_402.0, 86_403.0):
        turn = fairness.pick(now)
        assert turn is not None
        turns.append(turn.queue)
        fairness.end(turn, now + 1)
    assert sorted(turns) == ["hung", "hung", "other", "other"]
