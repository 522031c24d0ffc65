"""Pauses grow, are spread, are bounded, and follow the destination's wish within reason."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.deliver.backoff import BackoffRule, ceiling_seconds, pause_seconds, retry_after_seconds

NOW = 1_790_000_000.0  # 2026-09-21 14:13:20 UTC


def test_the_defaults_double_from_five_seconds_to_five_minutes() -> None:
    assert [ceiling_seconds(BackoffRule(), attempts) for attempts in range(1, 9)] == [
        5, 10, 20, 40, 80, 160, 300, 300,
    ]  # fmt: skip


@given(attempts=st.integers(0, 10**9), chance=st.floats(0, 1), asked=st.none() | st.floats(0, 1e12))
def test_a_pause_is_bounded_whatever_happens(attempts: int, chance: float, asked: float | None) -> None:
    rule = BackoffRule()
    assert 0 <= pause_seconds(rule, attempts, chance, asked) <= rule.retry_after_seconds_max


def test_the_jitter_is_full() -> None:
    rule = BackoffRule(base_seconds=8.0)
    assert [pause_seconds(rule, 1, chance) for chance in (0.0, 0.25, 1.0)] == [0.0, 2.0, 8.0]


def test_a_longer_wish_of_the_destination_holds_and_a_shorter_one_adds_nothing() -> None:
    rule = BackoffRule(base_seconds=8.0)
    assert pause_seconds(rule, 1, 1.0, 100.0) == 100.0
    assert pause_seconds(rule, 1, 1.0, 2.0) == 8.0
    assert pause_seconds(rule, 1, 0.5, 10**9) == rule.retry_after_seconds_max


def test_switched_off_every_pause_is_the_base() -> None:
    rule = BackoffRule(enabled=False)
    assert [pause_seconds(rule, attempts, 0.3) for attempts in (1, 5, 50)] == [5.0] * 3


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (b"120", 120.0),
        (b" 0 ", 0.0),
        (b"1.5", 1.5),
        (b"Mon, 21 Sep 2026 14:15:20 GMT", 120.0),
        (b"Monday, 21-Sep-26 14:15:20 GMT", 120.0),
        (b"Mon Sep 21 14:15:20 2026", 120.0),
        (b"Mon, 21 Sep 2026 14:00:00 GMT", 0.0),
        (b"Mon, 21 Sep 2026 16:15:20 +0200", 120.0),
    ],
)
def test_seconds_and_dates_are_read(value: bytes, seconds: float) -> None:
    assert retry_after_seconds(value, NOW) == seconds


@pytest.mark.parametrize(
    "value",
    [
        *(b"", b"soon", b"-5", b"+5", b"1e9", b"nan", b"inf", b"0x10"),
        *(b"9" * 40, b"\xff\xfe", "\N{FULLWIDTH DIGIT ONE}".encode()),
        *(b"Mon, 99 Sep 2026 99:99:99 GMT", b"Mon, 21 Sep 2026 " + b"1" * 10_000),
    ],
)
def test_nonsense_asks_for_nothing(value: bytes) -> None:
    assert retry_after_seconds(value, NOW) is None


@given(value=st.binary(max_size=80))
def test_no_header_does_harm(value: bytes) -> None:
    seconds = retry_after_seconds(value, NOW)
    assert seconds is None or seconds >= 0
