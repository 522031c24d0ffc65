"""Rates and backlog over the last minutes, from consecutive snapshots."""

from __future__ import annotations

import pytest

from forebay.observe.document import Document, family
from forebay.observe.history import POINTS_MAX, QUEUES_MAX, STEP_SECONDS, History

KEY = ("orders", "workers")
START = 1_800_000_000.0


def snapshot(at: float, accepted: float, done: float, ready: float, *, queues: int = 1) -> Document:
    """A snapshot of queues that are all alike; the first is `orders`."""
    names = [KEY, *((f"orders{n}", "workers") for n in range(1, queues))]
    numbers = {"accepted": accepted, "done": done, "ready": ready}
    families = [
        family(f"forebay_queue_{name}", "gauge", "", ("queue", "group"), [(key, number) for key in names])
        for name, number in numbers.items()
    ]
    return Document(taken_at=START + at, families=families)


def test_rates_are_those_between_snapshots() -> None:
    history = History()
    history.add(snapshot(0, 1_000, 500, 500))
    assert history.rates(KEY) is None
    history.add(snapshot(10, 1_100, 800, 300))
    rates = history.rates(KEY)
    assert rates is not None
    assert (rates.in_rate, rates.out_rate, rates.drain_seconds) == (10, 30, 15)
    plot = history.plots()[KEY]
    assert (plot.at, plot.in_rates, plot.out_rates, plot.ready) == ([START + 10], [10], [30], [300])


@pytest.mark.parametrize(("ready", "drains"), [(600, None), (500, None), (0, 0.0)])
def test_what_does_not_get_less_never_drains(ready: float, drains: float | None) -> None:
    history = History()
    history.add(snapshot(0, 1_000, 500, 500))
    history.add(snapshot(10, 1_200, 600, ready))
    rates = history.rates(KEY)
    assert rates is not None
    assert rates.drain_seconds == drains


def test_what_is_only_put_off_does_not_drain() -> None:
    history = History()
    history.add(snapshot(0, 1_000, 500, 500))
    history.add(snapshot(10, 1_000, 500, 400))
    rates = history.rates(KEY)
    assert rates is not None
    assert rates.drain_seconds is None


def test_the_past_is_bounded_however_often_snapshots_come() -> None:
    history = History()
    for n in range(2_000):
        history.add(snapshot(n, n, n, 0))
    plot = history.plots()[KEY]
    assert len(plot.at) == POINTS_MAX - 1
    assert plot.at[-1] == START + 1_999
    assert all(b - a >= STEP_SECONDS for a, b in zip(plot.at, plot.at[1:-1], strict=False))
    assert set(plot.in_rates) == {1.0}


def test_queues_are_bounded_and_forgotten_when_they_are_gone() -> None:
    history = History()
    history.add(snapshot(0, 1, 1, 0, queues=QUEUES_MAX + 10))
    assert len(history.plots()) == QUEUES_MAX
    history.add(snapshot(10, 1, 1, 0))
    assert list(history.plots()) == [KEY]


def test_the_groups_in_which_most_waits_are_kept() -> None:
    history, last = History(), ("orders1009", "workers")
    for at in (0, 10):
        busy = snapshot(at, 1, 1, 0, queues=QUEUES_MAX + 10)
        waiting = family("forebay_queue_ready", "gauge", "", ("queue", "group"), [(KEY, 1), (last, 7)])
        history.add(Document(taken_at=busy.taken_at, families=[*busy.families[:2], waiting]))
    assert len(history.plots()) == QUEUES_MAX
    assert list(history.plots())[:2] == [last, KEY]
    assert history.rates(last) is not None


def test_a_counter_that_goes_back_and_a_late_snapshot_are_no_rates() -> None:
    history = History()
    history.add(snapshot(0, 1_000, 900, 100))
    history.add(snapshot(10, 5, 0, 5))
    rates = history.rates(KEY)
    assert rates is not None
    assert (rates.in_rate, rates.out_rate) == (0, 0)
    history.add(snapshot(10, 50, 0, 5))
    history.add(snapshot(3, 50, 0, 5))
    assert len(history.plots()[KEY].at) == 1
