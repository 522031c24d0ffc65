"""A key is used as often as it may be, and no more."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.api import rate
from forebay.api.jwt.tokens import Caller
from forebay.api.keys import ANYONE, Key, make_key
from forebay.api.rate import RateLimits
from forebay.api.settings import KeySettings
from forebay.model import TooMany
from forebay.model.bucket import spend

RATES = st.floats(0.01, 1e6)
BURSTS = st.integers(1, 10_000)
STEPS = st.lists(st.tuples(st.floats(0, 100), st.floats(0.1, 20)), min_size=1, max_size=60)


def key(rate: float | None = None, burst: int | None = None) -> Key:
    return make_key("test", ["push"], now=0, rate_per_second=rate, burst=burst)[0]


@given(rate=RATES, burst=BURSTS, start=st.floats(0, 1e7), steps=STEPS)
def test_no_span_lets_through_more_than_the_burst_and_the_rate(
    rate: float, burst: int, start: float, steps: list[tuple[float, float]]
) -> None:
    now, full_at = start, 0.0
    let: list[tuple[float, float]] = []
    for pause, cost in steps:
        now += pause
        full_at, wait = spend(full_at, now, rate=rate, burst=burst, cost=cost)
        if wait is None:
            let.append((now, min(cost, burst)))
    for first in range(len(let)):
        spent = 0.0
        for at, cost in let[first:]:
            spent += cost
            allowed = burst + rate * (at - let[first][0])
            assert spent <= allowed * (1 + 1e-6) + rate * 1e-6 * max(1, now)


@given(rate=RATES, burst=BURSTS, steps=STEPS)
def test_who_waits_as_long_as_told_is_let_through(
    rate: float, burst: int, steps: list[tuple[float, float]]
) -> None:
    now, full_at = 0.0, 0.0
    for pause, cost in steps:
        now += pause / 100
        full_at, wait = spend(full_at, now, rate=rate, burst=burst, cost=cost)
        if wait is not None:
            assert 0 < wait <= burst / rate * (1 + 1e-9)
            now += wait
            full_at, again = spend(full_at, now, rate=rate, burst=burst, cost=cost)
            assert again is None


@given(rate=RATES, burst=BURSTS, back=st.floats(0, 1e9))
def test_a_clock_that_jumps_back_locks_nobody_out_for_longer_than_a_bucket_fills(
    rate: float, burst: int, back: float
) -> None:
    full_at, _ = spend(0.0, 1e9, rate=rate, burst=burst)
    _, wait = spend(full_at, 1e9 - back, rate=rate, burst=burst)
    assert wait is None or wait <= burst / rate + 1e-6  # what a float holds at such times


def test_a_refusal_takes_nothing() -> None:
    limits, mine = RateLimits(), key(rate=1, burst=2)
    assert [limits.allow(mine, 10.0) for _ in range(4)] == [None, None, 1.0, 1.0]
    assert limits.allow(mine, 11.0) is None
    assert limits.refused == 2


def test_a_cost_over_the_burst_needs_a_full_bucket() -> None:
    limits, mine = RateLimits(), key(rate=1, burst=5)
    assert limits.allow(mine, 0.0, cost=50) is None
    assert limits.allow(mine, 0.0, cost=50) == 5.0


def test_keys_have_buckets_of_their_own() -> None:
    limits = RateLimits(KeySettings(rate_per_second=1, burst=1))
    one, other = key(), key()
    assert limits.allow(one, 0.0) is None
    assert limits.allow(one, 0.0) == 1.0
    assert limits.allow(other, 0.0) is None


def test_a_rate_of_its_own_comes_before_that_of_the_settings() -> None:
    limits = RateLimits(KeySettings(rate_per_second=1, burst=1))
    mine = key(rate=10)
    assert [limits.allow(mine, 0.0) for _ in range(10)] == [None] * 10
    assert limits.allow(mine, 0.0) == pytest.approx(0.1)


def test_without_a_rate_nothing_is_limited() -> None:
    limits, mine = RateLimits(), key()
    assert {limits.allow(mine, 0.0) for _ in range(1000)} == {None}


def test_where_there_are_no_keys_nobody_is_limited() -> None:
    limits = RateLimits(KeySettings(rate_per_second=1))
    assert {limits.allow(ANYONE, 0.0) for _ in range(100)} == {None}


def test_too_many_says_when_to_try_again() -> None:
    limits, mine = RateLimits(), key(rate=2, burst=1)
    limits.check(mine, 0.0)
    with pytest.raises(TooMany, match=f"{mine.id}.*0.5 s") as caught:
        limits.check(mine, 0.0)
    assert caught.value.retry_after_seconds == 0.5


def test_buckets_that_are_full_again_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("forebay.api.rate._BUCKETS_MAX", 10)
    limits = RateLimits(KeySettings(rate_per_second=1))
    for second in range(100):
        limits.allow(key(), float(second))
    assert len(limits._full_at) <= 11


def caller(subject: str | None) -> Caller:
    id = "jwt" if subject is None else f"jwt:{subject}"
    return Caller(id=id, name="x", digest="0" * 64, scopes=("push",), created_at=0, sub=subject)


def test_tokens_of_one_subject_share_a_rate_and_those_of_others_have_their_own() -> None:
    limits = RateLimits(KeySettings(rate_per_second=1.0, burst=2))
    assert [limits.allow(caller("alice"), 0.0) for _ in range(2)] == [None, None]
    with pytest.raises(TooMany, match="the JWT of 'alice' is used more often"):
        limits.check(caller("alice"), 0.0)
    assert limits.allow(caller("bob"), 0.0) is None
    assert [limits.allow(caller(None), 0.0) is None for _ in range(3)] == [True, True, False]


def test_buckets_are_bounded_and_those_who_asked_most_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rate, "_BUCKETS_MAX", 100)
    limits = RateLimits(KeySettings(rate_per_second=0.001, burst=5))
    greedy = caller("greedy")
    while limits.allow(greedy, 0.0) is None:
        pass
    for number in range(1_000):
        limits.allow(caller(str(number)), number / 1_000)
        assert len(limits._full_at) <= 100
    assert limits.allow(greedy, 1.0) is not None
