"""Workers follow the work: more while they help, fewer when they don't. Simulated destinations."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.deliver.scale import Load, Scale, ScaleRule, next_scale

RULE = ScaleRule(min_workers=2, max_workers=64)


class World:
    """A destination that serves `parallel` requests at a time, each in `seconds`; a second is a round."""

    def __init__(self, parallel: int, seconds: float = 0.05) -> None:
        self.parallel = parallel
        self.seconds = seconds
        self.is_down = False

    def look(self, workers: int, waiting: int) -> Load:
        busy = min(workers, waiting)
        latency = self.seconds * max(1.0, busy / self.parallel)
        sent = int(busy / latency)
        failed = sent if self.is_down else 0
        return Load(waiting=waiting - busy, busy=busy, sent=sent, failed=failed, latency_seconds=latency)

    def run(self, scale: Scale, waiting: int, rounds: int = 60) -> list[Scale]:
        seen = [scale]
        for _ in range(rounds):
            seen.append(next_scale(seen[-1], self.look(seen[-1].workers, waiting), RULE))
        return seen


@pytest.mark.parametrize("parallel", [4, 8, 16])
@pytest.mark.parametrize("start", [2, 64])
def test_a_backlog_gets_what_the_destination_can_take_and_not_much_more(parallel: int, start: int) -> None:
    world = World(parallel)
    seen = world.run(Scale(start, 0.05), waiting=100_000)
    assert all(parallel <= scale.workers <= 3 * parallel for scale in seen[-20:])


def test_it_grows_from_one_to_all_within_seconds() -> None:
    rule = ScaleRule(min_workers=1, max_workers=64)
    scale, world = Scale(1), World(parallel=1_000)
    for _ in range(12):
        scale = next_scale(scale, world.look(scale.workers, 100_000), rule)
    assert scale.workers == 64


def test_with_nothing_to_do_it_comes_down_to_the_least() -> None:
    seen = World(8).run(Scale(64, 0.05), waiting=0)
    assert seen[-1].workers == RULE.min_workers


def test_while_everything_fails_it_comes_down_to_the_least() -> None:
    world = World(1_000)
    world.is_down = True
    assert world.run(Scale(64, 0.05), waiting=100_000, rounds=6)[-1].workers == RULE.min_workers


def test_while_the_breaker_is_open_it_halves() -> None:
    load = Load(waiting=10, busy=0, sent=0, failed=0, latency_seconds=None, is_open=True)
    assert next_scale(Scale(40), load, RULE).workers == 20


def test_a_steady_trickle_changes_nothing() -> None:
    load = Load(waiting=0, busy=6, sent=100, failed=0, latency_seconds=0.05)
    assert next_scale(Scale(8, 0.05), load, RULE).workers == 8


def test_a_destination_that_is_slower_for_good_is_not_held_to_its_past() -> None:
    world = World(parallel=1_000, seconds=0.5)
    seen = world.run(Scale(8, 0.05), waiting=100_000, rounds=120)
    assert seen[-1].workers == RULE.most


LOADS = st.builds(
    Load,
    waiting=st.integers(0, 10**9),
    busy=st.integers(0, 500),
    sent=st.integers(0, 10**6),
    failed=st.integers(0, 10**6),
    latency_seconds=st.none() | st.floats(0, 1e6),
    is_open=st.booleans(),
)


@given(scale=st.builds(Scale, st.integers(-5, 500), st.none() | st.floats(0, 100)), load=LOADS)
def test_the_bounds_hold_whatever_is_seen(scale: Scale, load: Load) -> None:
    assert RULE.min_workers <= next_scale(scale, load, RULE).workers <= RULE.most


def test_the_default_most_is_four_for_each_cpu_and_never_under_the_least() -> None:
    assert ScaleRule(min_workers=10_000).most == 10_000
    assert ScaleRule().most % 4 == 0
