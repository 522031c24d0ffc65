"""Ticks go on, whatever the clock of the machine does."""

import threading
from itertools import chain, repeat

from forebay.spark.flows.ticking import Ticking


def test_a_clock_that_is_put_back_does_not_end_the_ticks() -> None:
    times = chain([10_000.0], repeat(6_400.0))
    ticks: list[int] = []
    twice = threading.Event()

    def work(tick: int) -> None:
        ticks.append(tick)
        if len(ticks) > 1:
            twice.set()

    ticking = Ticking("f", 0.5, work, clock=lambda: next(times))
    try:
        assert twice.wait(10)
    finally:
        ticking.stop()
    assert ticks[:2] == [20_000, 12_800]
