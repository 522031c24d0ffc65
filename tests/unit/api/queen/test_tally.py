"""Counts by queue, of what goes through in Queen's format."""

from __future__ import annotations

from typing import cast

import pytest

from forebay.api.queen import tally as module
from forebay.api.queen.tally import Activity, Tally
from forebay.store.values import Task
from forebay.warm.values import Lease


def task(queue: int, created_at: int) -> Task:
    return Task(1, queue, b"", 0, created_at, 0, None, cast("Lease", None), 0)


def test_each_thing_is_counted_for_its_queue() -> None:
    tally = Tally()
    tally.pushed(1, 5)
    tally.pushed(1, 2)
    tally.popped([task(1, 1_000), task(1, 5_000), task(2, 9_000)], now=9_000)
    tally.empty([2])
    tally.settled([(1, "done"), (1, "retried"), (1, "buried"), (2, "done")])
    tally.settled([(1, "done")])
    tally.evicted([2, 2])
    assert tally.collect() == {
        1: Activity(
            pushes=2, pushed=7, popped=2, acks=2, done=2, failed=2, buried=1, lag_sum=12_000, lag_max=8_000
        ),
        2: Activity(popped=1, empty=1, acks=1, done=1, evicted=2),
    }
    assert tally.collect() == {}


def test_a_clock_that_jumped_back_makes_no_negative_lag() -> None:
    tally = Tally()
    tally.popped([task(1, 10_000)], now=5_000)
    assert tally.collect()[1].lag_ms == 0.0


def test_the_lag_is_the_mean_over_all_messages() -> None:
    total = Activity(popped=1, lag_sum=1_000, lag_max=1_000)
    total.add(Activity(popped=3, lag_sum=7_000, lag_max=4_000))
    assert (total.lag_ms, total.lag_max) == (2.0, 4_000)
    assert Activity().lag_ms == 0.0


def test_who_waits_is_counted_while_he_waits() -> None:
    tally = Tally()
    with tally.parked([1, 2]):
        with tally.parked([1]):
            tally.sample()
        tally.sample()
    tally.sample()
    assert {queue: found.parked for queue, found in tally.collect().items()} == {1: 3, 2: 2}
    tally.sample()
    assert tally.collect() == {}, "nothing is left of those who have gone"


def test_queues_beyond_the_bound_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "QUEUES_MAX", 2)
    tally = Tally()
    for queue in (1, 2, 3, 1):
        tally.pushed(queue, 1)
    assert {queue: found.pushed for queue, found in tally.collect().items()} == {1: 2, 2: 1}
