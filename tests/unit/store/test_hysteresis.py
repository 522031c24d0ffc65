"""The warm and cold modes: the rules, and a simulation of a queue that lives by them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.store.hysteresis import Mode, may_refill, next_mode

LIMIT = 5_000


@pytest.mark.parametrize(
    ("mode", "held", "drained", "after"),
    [
        (Mode.WARM, 0, True, Mode.WARM),
        (Mode.WARM, 4_999, False, Mode.WARM),
        (Mode.WARM, 5_000, True, Mode.COLD),
        (Mode.COLD, 4_001, True, Mode.COLD),
        (Mode.COLD, 4_000, True, Mode.WARM),
        (Mode.COLD, 4_000, False, Mode.COLD),
        (Mode.COLD, 0, False, Mode.COLD),
        (Mode.COLD, 5_000, True, Mode.COLD),
    ],
)
def test_cold_at_the_limit_and_warm_again_when_drained_below_four_fifths(
    *, mode: Mode, held: int, drained: bool, after: Mode
) -> None:
    assert next_mode(mode, held, LIMIT, drained=drained) is after


@pytest.mark.parametrize(
    ("mode", "held", "refills"),
    [
        (Mode.WARM, 4_999, True),
        (Mode.WARM, 5_000, False),
        (Mode.COLD, 4_499, True),
        (Mode.COLD, 4_500, False),
    ],
)
def test_a_cold_queue_is_refilled_below_nine_tenths(*, mode: Mode, held: int, refills: bool) -> None:
    assert may_refill(mode, held, LIMIT) is refills


@given(
    mode=st.sampled_from(Mode), held=st.integers(0, 6_000), limit=st.integers(1, 5_000), drained=st.booleans()
)
def test_a_full_shelf_is_cold_and_never_refilled(*, mode: Mode, held: int, limit: int, drained: bool) -> None:
    after = next_mode(mode, held, limit, drained=drained)
    if held >= limit:
        assert after is Mode.COLD
        assert not may_refill(after, held, limit)
    if after is Mode.WARM:
        assert may_refill(after, held, limit)


class Simulated:
    """A queue with two tiers, stepped by hundredths of a second."""

    def __init__(self, backlog: int) -> None:
        self.cold, self.held, self.mode = backlog, 0, Mode.WARM
        self.flips = self.highest = 0

    def step(self, arriving: int, finishing: int) -> None:
        """Let messages arrive and be finished, then refill as the rules allow."""
        self.cold += arriving
        self.held -= min(finishing, self.held)
        if may_refill(self.mode, self.held, LIMIT):
            moved = min(self.cold, LIMIT - self.held)
            self.cold -= moved
            self.held += moved
        after = next_mode(self.mode, self.held, LIMIT, drained=not self.cold)
        self.flips += after is not self.mode
        self.mode = after
        self.highest = max(self.highest, self.held)


def test_a_flood_never_lifts_the_shelf_over_its_limit() -> None:
    queue = Simulated(0)
    for _ in range(1_000):
        queue.step(arriving=200, finishing=10)
    assert (queue.highest, queue.mode) == (LIMIT, Mode.COLD)
    assert queue.cold + queue.held == 200_000 - 10 * 999


def test_a_burst_drains_and_the_mode_flips_but_twice() -> None:
    queue = Simulated(100_000)
    for _ in range(30_000):
        queue.step(arriving=15, finishing=20)
    assert (queue.cold, queue.mode, queue.flips) == (0, Mode.WARM, 2)
