"""Time in microseconds, and its two clocks."""

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.model import (
    TIME_MAX,
    Clock,
    ManualClock,
    Rejected,
    SystemClock,
    from_datetime,
    to_datetime,
)


def test_the_system_clock_tells_microseconds() -> None:
    clock: Clock = SystemClock()
    before = datetime.now(UTC)
    assert before - timedelta(microseconds=1) <= to_datetime(clock.now()) <= datetime.now(UTC)


def test_a_manual_clock_moves_only_when_told() -> None:
    clock = ManualClock(5)
    assert clock.now() == clock.now() == 5
    assert clock.advance(seconds=1.5) == 1_500_005
    assert clock.advance(seconds=-1) == 500_005
    clock.set(7)
    assert clock.now() == 7


@given(st.integers(-62_135_596_800_000_000, TIME_MAX))
def test_times_survive_the_way_through_datetime(moment: int) -> None:
    assert from_datetime(to_datetime(moment)) == moment


def test_zones_are_converted() -> None:
    noon = datetime(2026, 1, 1, 12, tzinfo=timezone(timedelta(hours=2)))
    assert to_datetime(from_datetime(noon)) == datetime(2026, 1, 1, 10, tzinfo=UTC)


def test_a_time_without_a_zone_is_rejected() -> None:
    with pytest.raises(Rejected, match="no time zone"):
        from_datetime(datetime(2026, 1, 1))  # noqa: DTZ001 - the point of the test


@pytest.mark.parametrize("moment", [TIME_MAX + 1, 1 << 70, -(1 << 63)])
def test_a_time_past_the_calendar_is_rejected(moment: int) -> None:
    with pytest.raises(Rejected, match="out of range"):
        to_datetime(moment)
