"""The clock for bounds goes as others do, but for the time in which nothing can be done."""

from __future__ import annotations

import threading

import pytest

from tests.awake import GAP_SECONDS_MAX, Awake


def test_a_stall_counts_as_the_longest_gap_that_is_usual() -> None:
    now = 100.0
    awake = Awake(lambda: now)
    now += 0.1
    assert awake() == pytest.approx(0.1)
    now += 5
    assert awake() == pytest.approx(0.1 + GAP_SECONDS_MAX)


def test_time_that_is_waited_for_counts_though_nobody_asks_meanwhile() -> None:
    with Awake() as awake:
        passed = 0.0
        while passed <= GAP_SECONDS_MAX:  # once more, where the machine stalls just then
            before = awake()
            threading.Event().wait(3 * GAP_SECONDS_MAX)
            passed = awake() - before
    assert "awake" not in [thread.name for thread in threading.enumerate()]
