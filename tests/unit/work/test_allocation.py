"""The rule by which queues get processors: on single inputs, and in a simulation of workers and queues."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.work.allocation import Demand, Memory, Plan, Rule, Station, allocate
from tests.unit.work.crowd import Crowd, desk

RULE = Rule()


def plan_of(demands: Mapping[str, Demand], stations: Mapping[str, Station], plan: Plan | None = None) -> Plan:
    """The plan of a first round, with what held before."""
    found, _ = allocate(demands, stations, plan=plan or {}, memory=Memory(), now=0.0, rule=RULE)
    return found


def work(tasks: int, seconds: float | None = 1.0, weight: float = 1.0) -> Demand:
    """A queue with tasks."""
    return Demand(tasks=tasks, seconds_per_task=seconds, weight=weight)


def station(processors: int, **limits: int) -> Station:
    """A worker."""
    return Station(processors=processors, limits=limits)


class TestOneRound:
    """A round that knows nothing of earlier ones."""

    def test_processors_go_by_backlog_times_seconds(self) -> None:
        found = plan_of({"fast": work(1000, 0.1), "slow": work(30, 10.0)}, {"w": station(8, fast=8, slow=8)})
        assert found == {"w": {"fast": 2, "slow": 6}}

    def test_weight_counts_like_work(self) -> None:
        demands = {"a": work(100, weight=3.0), "b": work(100)}
        assert plan_of(demands, {"w": station(8, a=8, b=8)}) == {"w": {"a": 6, "b": 2}}

    def test_every_heavy_queue_has_the_floor(self) -> None:
        found = plan_of({"huge": work(10**9), "small": work(3)}, {"w": station(4, huge=4, small=4)})
        assert found == {"w": {"huge": 3, "small": 1}}

    def test_light_queues_are_left_alone(self) -> None:
        found = plan_of({"busy": work(100), "light": work(1), "idle": work(0)}, {
            "w": station(4, busy=4, light=3, idle=2)
        })  # fmt: skip
        assert found == {"w": {"busy": 4, "light": 3, "idle": 2}}

    def test_no_queue_has_more_than_its_limit(self) -> None:
        demands = {"a": work(1000), "b": work(10)}
        found = plan_of(demands, {"w": station(8, a=3, b=8), "x": station(2, a=1)})
        assert found == {"w": {"a": 3, "b": 5}, "x": {"a": 1}}

    def test_who_has_the_least_choice_comes_first(self) -> None:
        demands = {"a": work(1000), "b": work(10)}
        assert plan_of(demands, {"w": station(1, a=1, b=1), "x": station(1, a=1)}) == {
            "w": {"a": 0, "b": 1},
            "x": {"a": 1},
        }

    def test_fewer_processors_than_queues_are_shared(self) -> None:
        queues = [f"q{number}" for number in range(7)]
        limits = dict.fromkeys(queues, 5)
        stations = {name: Station(processors=1, limits=limits) for name in ("w", "x")}
        found = plan_of({queue: work(100) for queue in queues}, stations)
        assert sorted(sum(given.values()) for given in found.values()) == [3, 4]
        assert all(sum(given[queue] for given in found.values()) == 1 for queue in queues)

    def test_a_queue_that_nobody_can_serve_changes_nothing(self) -> None:
        demands = {"a": work(100), "b": work(100), "c": work(5)}
        stations = {"w": station(2, a=2, b=0), "idle": station(0, b=3)}
        assert plan_of(demands, stations) == {"idle": {"b": 3}, "w": {"a": 2, "b": 0}}

    def test_an_unmeasured_queue_counts_as_slow(self) -> None:
        found = plan_of({"new": work(300, None), "old": work(1000, 0.1)}, {"w": station(4, new=4, old=4)})
        assert found == {"w": {"new": 3, "old": 1}}

    def test_no_workers_is_no_plan(self) -> None:
        assert plan_of({"a": work(100)}, {}) == {}

    def test_a_paused_clock_or_one_that_goes_back_does_no_harm(self) -> None:
        stations = {"w": station(2, a=2)}
        _, memory = allocate({"a": work(5)}, stations, plan={}, memory=Memory(), now=9.0, rule=RULE)
        found, _ = allocate({"a": work(9)}, stations, plan={}, memory=memory, now=3.0, rule=RULE)
        assert found == {"w": {"a": 2}}


WORKER = {"w": station(5, a=5, b=5)}


class TestWhatStays:
    """A plan that holds, and what replaces it."""

    def test_a_small_gain_moves_nobody(self) -> None:
        held = {"w": {"a": 3, "b": 2}}
        assert plan_of({"a": work(49), "b": work(51)}, WORKER, held) == held

    def test_a_large_gain_does(self) -> None:
        found = plan_of({"a": work(20), "b": work(80)}, WORKER, {"w": {"a": 3, "b": 2}})
        assert found == {"w": {"a": 1, "b": 4}}

    def test_a_queue_at_its_limit_hides_no_gain_elsewhere(self) -> None:
        stations = {"w": station(9, capped=1, a=9, b=9)}
        demands = {"capped": work(10**6), "a": work(10), "b": work(70)}
        found = plan_of(demands, stations, {"w": {"capped": 1, "a": 7, "b": 1}})
        assert found == {"w": {"capped": 1, "a": 1, "b": 7}}

    @pytest.mark.parametrize(
        "held",
        [
            {"w": {"a": 5, "b": 0}},
            {"w": {"a": 3, "b": 1}},
            {"w": {"a": 3, "b": 2}, "gone": {"a": 1}},
            {"w": {"a": 30, "b": 20}},
        ],
        ids=["no floor", "a processor is free", "a worker is gone", "too many"],
    )
    def test_what_cannot_go_on_is_replaced(self, held: Plan) -> None:
        found = plan_of({"a": work(50), "b": work(50)}, WORKER, held)
        assert found == {"w": {"a": 3, "b": 2}}

    def test_queues_stay_where_they_are_when_a_worker_comes(self) -> None:
        demands = {"a": work(50), "b": work(50)}
        stations = {name: station(1, a=1, b=1) for name in ("u", "v", "w", "x")}
        before = plan_of(demands, {name: stations[name] for name in ("v", "w")})
        after = plan_of(demands, stations, before)
        assert {name: after[name] for name in before} == before


_QUEUES = [f"q{number}" for number in range(5)]
_DEMANDS = st.fixed_dictionaries(
    {
        queue: st.builds(
            Demand,
            tasks=st.integers(0, 10**7),
            seconds_per_task=st.none() | st.floats(0, 1e4),
            weight=st.floats(0.01, 100),
        )
        for queue in _QUEUES
    }
)
_STATIONS = st.dictionaries(
    st.sampled_from(["u", "v", "w", "x"]),
    st.builds(
        Station,
        processors=st.integers(0, 12),
        limits=st.dictionaries(st.sampled_from(_QUEUES), st.integers(0, 6)),
    ),
)
_PLANS = st.dictionaries(
    st.sampled_from(["u", "v", "w", "x", "y"]), st.dictionaries(st.sampled_from(_QUEUES), st.integers(0, 9))
)


@given(_DEMANDS, _STATIONS, _PLANS)
def test_every_plan_is_within_limits_and_has_the_floor(
    demands: dict[str, Demand], stations: dict[str, Station], held: Plan
) -> None:
    found, memory = allocate(demands, stations, plan=held, memory=Memory(), now=1.0, rule=RULE)
    shuffled = dict(reversed(stations.items()))
    assert allocate(demands, shuffled, plan=held, memory=Memory(), now=1.0, rule=RULE) == (found, memory)
    assert found.keys() == stations.keys()
    able = [station for station in stations.values() if station.processors]
    served = {queue for queue in memory.heavy if any(station.limits.get(queue) for station in able)}
    for name, here in found.items():
        limits = stations[name].limits
        assert here.keys() == limits.keys()
        assert all(0 <= count <= limits[queue] for queue, count in here.items())
        heavy = [count for queue, count in here.items() if queue in served]
        assert sum(heavy) <= stations[name].processors or max(heavy) == 1
    assert all(any(here.get(queue) for here in found.values()) for queue in served)
    plans = [found]
    for later in range(2, 8):
        after, memory = allocate(demands, stations, plan=plans[-1], memory=memory, now=later, rule=RULE)
        plans.append(after)
    assert plans[-3] == plans[-2] == plans[-1]


class TestSimulation:
    """Rounds over minutes."""

    def test_a_burst_gets_processors_and_gives_them_back(self) -> None:
        crowd = Crowd({"a": 0.5, "b": 0.5}, {"w": desk(5, "a", "b"), "x": desk(5, "a", "b")})
        crowd.arrivals = {"a": 10.0, "b": 2.0}
        crowd.run(60)
        crowd.tasks["b"] += 2_000
        crowd.run(10)
        assert crowd.total("b") >= 6
        crowd.tasks["b"] = 0
        crowd.tasks["a"] = 1_000
        crowd.run(10)
        assert crowd.total("a") >= 9

    def test_a_slow_queue_gets_more_than_a_fast_one_with_as_many_tasks(self) -> None:
        crowd = Crowd({"fast": 0.1, "slow": 2.0}, {"w": desk(10, "fast", "slow")})
        crowd.tasks.update(fast=500, slow=500)
        crowd.run(10)
        assert crowd.total("slow") >= 8
        assert crowd.total("fast") >= 1
        crowd.run(100)
        assert crowd.tasks["fast"] == 0
        assert crowd.done["slow"] >= 450

    def test_work_of_a_dead_worker_moves_to_the_others(self) -> None:
        crowd = Crowd({"a": 1.0, "b": 1.0}, {name: desk(2, "a", "b") for name in ("u", "v", "w")})
        crowd.tasks.update(a=5_000, b=100)
        crowd.run(10)
        lost = next(name for name, given in crowd.plan.items() if given["b"])
        del crowd.desks[lost]
        crowd.run(4)
        assert crowd.plan.keys() == crowd.desks.keys()
        assert crowd.total("b") >= 1
        assert crowd.total("a") == 3
        crowd.waited.clear()
        crowd.run(60)
        assert crowd.waited["b"] <= 1.2

    @pytest.mark.parametrize("processors", [1, 3])
    def test_no_queue_starves_when_queues_are_more_than_processors(self, processors: int) -> None:
        queues = [f"q{number:02}" for number in range(20)]
        desks = {name: desk(processors, *queues) for name in ("v", "w")}
        crowd = Crowd(dict.fromkeys(queues, 0.2), desks)
        crowd.tasks.update({queue: 10 ** (2 + number % 4) for number, queue in enumerate(queues)})
        crowd.run(120)
        assert max(crowd.waited.values()) <= 0.3 * len(queues) / processors + 2.5

    def test_a_hundred_times_slower_batches_hold_up_nobody_for_long(self) -> None:
        crowd = Crowd({"quick": 0.1, "slow": 10.0}, {"w": desk(4, "quick", "slow")})
        crowd.arrivals = {"quick": 5.0}
        crowd.tasks["slow"] = 10_000
        crowd.run(300)
        assert crowd.waited["quick"] <= 15
        assert crowd.done["quick"] >= 1_300

    def test_noise_moves_nobody(self) -> None:
        queues = ["a", "b", "c", "d"]
        crowd = Crowd(dict.fromkeys(queues, 0.001), {"w": desk(7, *queues), "x": desk(6, *queues)})
        crowd.tasks.update(a=10**8, b=10**8, c=2 * 10**8, d=3 * 10**8)
        crowd.noise = 0.3
        crowd.manage()
        crowd.moves = 0
        for _ in range(500):
            crowd.now += 2.0
            crowd.manage()
        assert crowd.moves <= 5

    def test_a_queue_between_heavy_and_light_does_not_flap(self) -> None:
        crowd = Crowd({"edge": 0.01, "big": 0.01}, {"w": desk(4, "edge", "big")})
        crowd.tasks.update(edge=200, big=10**6)
        crowd.noise = 0.2
        crowd.manage()
        crowd.moves = 0
        for _ in range(500):
            crowd.now += 2.0
            crowd.manage()
        assert crowd.moves <= 2

    def test_steady_load_below_capacity_moves_nobody(self) -> None:
        crowd = Crowd({"a": 0.2, "b": 0.2}, {"w": desk(4, "a", "b"), "x": desk(4, "a", "b")})
        crowd.arrivals = {"a": 17.0, "b": 10.0}
        crowd.run(20)
        crowd.moves = 0
        crowd.run(300)
        assert crowd.moves <= 3
        assert crowd.tasks["a"] + crowd.tasks["b"] < 100
