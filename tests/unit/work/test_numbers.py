"""What a worker counts of its cycles."""

from __future__ import annotations

import pytest

from forebay.work.numbers import CYCLE_SECONDS_MAX, QueueNumbers


def test_cycles_over_ten_seconds_are_slow() -> None:
    numbers = QueueNumbers()
    for seconds in (0.5, CYCLE_SECONDS_MAX, 10.001, 3600.0):
        numbers.cycle(seconds, 1)
    assert numbers.slow_cycles == 2
    assert sum(numbers.cycles) == 4
    assert numbers.cycles_seconds == pytest.approx(3620.501)


def test_what_a_task_takes_follows_what_was_lately() -> None:
    assert QueueNumbers().seconds_per_task is None
    numbers = QueueNumbers()
    numbers.cycle(4.0, 4)
    assert numbers.seconds_per_task == pytest.approx(1.0)
    numbers.cycle(12.0, 2)
    assert numbers.seconds_per_task == pytest.approx(2.0)  # a fifth of the way from 1 to 6
    for _ in range(50):
        numbers.cycle(12.0, 2)
    assert numbers.seconds_per_task == pytest.approx(6.0, rel=0.001)
