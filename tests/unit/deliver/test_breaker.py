"""A breaker opens when a destination is down, tries again with one request, and can't wedge."""

from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.deliver.breaker import (
    Breaker,
    BreakerRule,
    BreakerState,
    Permit,
    Verdict,
    ask,
    give_back,
    report,
    verdict_of,
    wait_seconds,
)
from forebay.deliver.failure import of_status

RULE = BreakerRule(threshold=3, reset_seconds=30.0, probe_seconds_max=60.0)


def permitted(breaker: Breaker, now: float) -> tuple[Breaker, Permit]:
    breaker, permit = ask(breaker, RULE, now)
    assert permit is not None
    return breaker, permit


def opened(now: float = 0.0) -> Breaker:
    breaker = Breaker()
    for _ in range(RULE.threshold):
        breaker, permit = permitted(breaker, now)
        breaker = report(breaker, RULE, permit, "failure", now)
    assert breaker.state is BreakerState.OPEN
    return breaker


def test_the_defaults_are_five_failures_and_thirty_seconds() -> None:
    assert (BreakerRule().threshold, BreakerRule().reset_seconds) == (5, 30.0)


def test_failures_in_a_row_open_it_and_a_success_between_them_does_not() -> None:
    breaker = Breaker()
    verdicts: list[Verdict] = ["failure", "failure", "success", "failure", "failure"]
    for verdict in verdicts:
        breaker, permit = permitted(breaker, 0.0)
        breaker = report(breaker, RULE, permit, verdict, 0.0)
    assert breaker.state is BreakerState.CLOSED
    breaker, permit = permitted(breaker, 0.0)
    assert report(breaker, RULE, permit, "failure", 0.0).state is BreakerState.OPEN


def test_refused_requests_neither_open_it_nor_end_a_row_of_failures() -> None:
    breaker = Breaker()
    for _ in range(100):
        breaker = report(breaker, RULE, permitted(breaker, 0.0)[1], "neither", 0.0)
    assert breaker == Breaker()
    verdicts: list[Verdict] = ["failure", "neither", "failure", "neither", "failure"]
    for verdict in verdicts:
        breaker = report(breaker, RULE, permitted(breaker, 0.0)[1], verdict, 0.0)
    assert breaker.state is BreakerState.OPEN


@pytest.mark.parametrize(
    ("status", "verdict"),
    [
        *((status, "success") for status in (200, 204)),
        *((status, "neither") for status in (302, 400, 404, 413)),
        *((status, "failure") for status in (401, 403, 408, 425, 429, 500, 503)),
    ],
)
def test_statuses_count_as_the_destination_being_well_or_not(status: int, verdict: str) -> None:
    assert verdict_of(of_status(status)) == verdict


def test_while_open_it_lets_nothing_through_and_says_how_long() -> None:
    breaker = opened(now=100.0)
    assert ask(breaker, RULE, 129.9)[1] is None
    assert wait_seconds(breaker, RULE, 110.0) == 20.0


def test_half_open_it_lets_one_probe_through() -> None:
    breaker, probe = permitted(opened(), 30.0)
    assert breaker.state is BreakerState.HALF_OPEN
    assert ask(breaker, RULE, 31.0)[1] is None
    assert report(breaker, RULE, probe, "success", 32.0).state is BreakerState.CLOSED


def test_a_failed_probe_opens_it_for_another_while() -> None:
    breaker, probe = permitted(opened(), 30.0)
    breaker = report(breaker, RULE, probe, "failure", 40.0)
    assert breaker.state is BreakerState.OPEN
    assert breaker.opened == 2
    assert wait_seconds(breaker, RULE, 40.0) == 30.0


def test_a_refused_probe_closes_it_because_the_destination_answers() -> None:
    breaker, probe = permitted(opened(), 30.0)
    assert report(breaker, RULE, probe, "neither", 31.0).state is BreakerState.CLOSED


def test_a_probe_that_is_never_reported_is_given_up() -> None:
    breaker, lost = permitted(opened(), 30.0)
    assert ask(breaker, RULE, 89.9)[1] is None
    breaker, probe = permitted(breaker, 90.0)
    assert probe != lost
    assert report(breaker, RULE, lost, "failure", 91.0) == breaker


def test_a_late_success_of_a_probe_that_was_given_up_closes_it() -> None:
    breaker, late = permitted(opened(), 30.0)
    breaker, _ = permitted(breaker, 90.0)
    assert report(breaker, RULE, late, "success", 91.0).state is BreakerState.CLOSED


def test_a_probe_that_is_given_back_makes_way_for_the_next() -> None:
    breaker, probe = permitted(opened(), 30.0)
    breaker = give_back(breaker, probe)
    breaker, other = permitted(breaker, 30.0)
    assert report(breaker, RULE, other, "success", 31.0).state is BreakerState.CLOSED


def test_requests_from_before_it_opened_say_nothing_about_the_probe() -> None:
    breaker, early = permitted(Breaker(), 0.0)
    for _ in range(RULE.threshold):
        breaker = report(breaker, RULE, permitted(breaker, 0.0)[1], "failure", 0.0)
    assert report(breaker, RULE, early, "success", 1.0).state is BreakerState.OPEN
    breaker, _ = permitted(breaker, 30.0)
    assert report(breaker, RULE, early, "failure", 31.0) == breaker
    assert give_back(breaker, early) == breaker


def test_switched_off_it_lets_everything_through() -> None:
    off = BreakerRule(enabled=False, threshold=1)
    breaker = Breaker()
    for _ in range(10):
        breaker, permit = ask(breaker, off, 0.0)
        assert permit is not None
        breaker = report(breaker, off, permit, "failure", 0.0)
    assert breaker.state is BreakerState.CLOSED


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("wait"), st.floats(0, 100)),
        st.tuples(st.just("ask"), st.just(0)),
        st.tuples(st.sampled_from(["success", "failure", "neither", "give_back"]), st.integers(0, 50)),
    ),
    max_size=80,
)


@given(steps=STEPS)
def test_whatever_happens_it_lets_a_request_through_in_the_end(steps: list[tuple[str, float]]) -> None:
    breaker, now = Breaker(), 0.0
    out: list[Permit] = []
    probes: list[tuple[float, Permit]] = []
    for step, number in steps:
        if step == "wait":
            now += number
        elif step == "ask":
            breaker, permit = ask(breaker, RULE, now)
            if permit is not None:
                out.append(permit)
                if permit.probe is not None:
                    fresh = [probe for at, probe in probes if at + RULE.probe_seconds_max > now]
                    assert fresh == []
                    probes.append((now, permit))
        elif out:
            permit = out.pop(int(number) % len(out))
            probes = [(at, probe) for at, probe in probes if probe != permit]
            if step == "give_back":
                breaker = give_back(breaker, permit)
            else:
                breaker = report(breaker, RULE, permit, cast("Verdict", step), now)
                if breaker.era != permit.era:
                    probes = []
    now += wait_seconds(breaker, RULE, now)
    assert ask(breaker, RULE, now + 1e-6)[1] is not None
