"""A destination gets as much as it can take now, and no more."""

import pytest

from forebay.deliver.admission import Admission, RateRule
from forebay.deliver.breaker import BreakerRule, BreakerState, Permit
from forebay.deliver.failure import failed, of_status
from forebay.deliver.slow_start import RampRule, in_flight_max


def permit(admission: Admission, now: float) -> Permit:
    found = admission.ask(now)
    assert isinstance(found, Permit)
    return found


def wait(admission: Admission, now: float) -> float:
    found = admission.ask(now)
    assert isinstance(found, float)
    return found


def test_no_more_requests_are_in_flight_than_may_be() -> None:
    admission = Admission(in_flight_max=2)
    one, _ = permit(admission, 0.0), permit(admission, 0.0)
    assert wait(admission, 0.0) > 0
    admission.report(one, of_status(200), 0.0)
    permit(admission, 0.0)
    assert admission.in_flight == 2


def test_a_permit_that_is_given_back_makes_room() -> None:
    changes: list[int] = []
    admission = Admission(in_flight_max=1, changed=lambda: changes.append(1))
    admission.give_back(permit(admission, 0.0))
    permit(admission, 0.0)
    assert changes == [1]


def test_an_open_breaker_says_how_long_to_wait_and_counts_refusals() -> None:
    admission = Admission(in_flight_max=10, breaker=BreakerRule(threshold=1, reset_seconds=30.0))
    admission.report(permit(admission, 0.0), failed(ConnectionResetError()), 0.0)
    assert wait(admission, 10.0) == 20.0
    assert admission.refused == 1
    assert admission.in_flight == 0


def test_after_a_recovery_requests_come_back_slowly() -> None:
    admission = Admission(
        in_flight_max=64,
        breaker=BreakerRule(threshold=1, reset_seconds=30.0),
        ramp=RampRule(ramp_seconds=10.0),
    )
    admission.report(permit(admission, 0.0), of_status(503), 0.0)
    admission.report(permit(admission, 30.0), of_status(200), 31.0)
    assert admission.breaker.state is BreakerState.CLOSED
    assert [admission.limit(31.0 + seconds) for seconds in (0, 5, 10)] == [1, 8, 64]
    permit(admission, 31.0)
    assert 0 < wait(admission, 31.0) <= 1


def test_the_ramp_rises_and_ends() -> None:
    rule = RampRule(ramp_seconds=10.0)
    limits = [in_flight_max(rule, 100, 5.0, 5.0 + tenth / 10) for tenth in range(-10, 110)]
    assert limits == sorted(limits)
    assert (limits[0], limits[-1]) == (1, 100)
    assert in_flight_max(rule, 100, None, 0.0) == 100
    assert in_flight_max(RampRule(ramp_seconds=0.0), 100, 5.0, 5.0) == 100
    assert in_flight_max(rule, 1, 5.0, 5.0) == 1


def test_a_destination_that_asks_for_a_pause_gets_it() -> None:
    admission = Admission(in_flight_max=10, pause_seconds_max=60.0)
    one, other = permit(admission, 0.0), permit(admission, 0.0)
    admission.report(one, of_status(429, retry_after_seconds=20.0), 0.0)
    admission.report(other, of_status(429, retry_after_seconds=5.0), 0.0)
    assert wait(admission, 5.0) == 15.0
    again = permit(admission, 20.0)
    admission.report(again, of_status(503, retry_after_seconds=1e9), 20.0)
    assert wait(admission, 20.0) == 60.0


def test_a_refused_request_holds_up_no_others() -> None:
    admission = Admission(in_flight_max=10)
    admission.report(permit(admission, 0.0), of_status(400, retry_after_seconds=20.0), 0.0)
    permit(admission, 0.0)


def test_no_more_requests_a_second_than_may_be() -> None:
    admission = Admission(in_flight_max=100, rate=RateRule(per_second=2.0, burst=3.0))
    for _ in range(3):
        permit(admission, 0.0)
    assert wait(admission, 0.0) == pytest.approx(0.5)
    permit(admission, 0.5)
    assert wait(admission, 0.5) == pytest.approx(0.5)


def test_a_breaker_that_refuses_takes_nothing_of_the_rate() -> None:
    rule = BreakerRule(threshold=1, reset_seconds=1.0)
    admission = Admission(in_flight_max=100, breaker=rule, rate=RateRule(per_second=1.0, burst=1.0))
    admission.report(permit(admission, 0.0), of_status(500), 0.0)
    for _ in range(10):
        wait(admission, 0.9)
    permit(admission, 1.0)


def test_it_knows_since_when_the_destination_fails() -> None:
    admission = Admission(in_flight_max=10)
    admission.report(permit(admission, 1.0), of_status(500), 2.0)
    admission.report(permit(admission, 3.0), of_status(400), 4.0)
    admission.report(permit(admission, 5.0), failed(TimeoutError()), 6.0)
    assert admission.failing_since == 2.0
    admission.report(permit(admission, 7.0), of_status(204), 8.0)
    assert admission.failing_since is None


def test_how_long_to_wait_can_be_asked_without_taking_anything() -> None:
    rule = BreakerRule(threshold=1, reset_seconds=30.0)
    admission = Admission(in_flight_max=1, breaker=rule, rate=RateRule(per_second=1.0))
    assert [admission.wait_seconds(0.0) for _ in range(3)] == [0.0] * 3
    out = permit(admission, 0.0)
    assert admission.wait_seconds(0.0) > 0
    admission.report(out, of_status(500), 0.0)
    assert admission.wait_seconds(10.0) == 20.0
    assert admission.wait_seconds(30.0) == 0.0
    assert admission.breaker.state is BreakerState.OPEN


def test_a_destination_that_is_resumed_begins_anew() -> None:
    admission = Admission(in_flight_max=2, breaker=BreakerRule(threshold=1))
    early = permit(admission, 0.0)
    admission.report(permit(admission, 0.0), of_status(503, retry_after_seconds=99.0), 0.0)
    admission.forget()
    assert admission.wait_seconds(1.0) == 0.0
    assert admission.failing_since is None
    admission.report(early, of_status(500), 1.0)
    assert admission.breaker.state is BreakerState.CLOSED


def test_the_log_says_when_a_destination_begins_and_ceases_to_fail(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    rule = BreakerRule(threshold=2, reset_seconds=30.0)
    admission = Admission(in_flight_max=1, breaker=rule, name="crm")
    for now in (0.0, 1.0):
        admission.report(permit(admission, now), of_status(503), now)
    assert caplog.messages == [
        "crm fails: the destination answered 503 Service Unavailable",
        "the circuit breaker of crm is open: the next try is in 30 seconds",
    ]
    caplog.clear()
    admission.report(permit(admission, 31.0), of_status(503), 31.0)
    assert caplog.messages == []
    for now in (61.0, 62.0):
        admission.report(permit(admission, now), of_status(200), now)
    assert caplog.messages == ["crm takes requests again, after 61 seconds"]
