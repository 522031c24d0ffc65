"""Time: whole microseconds since 1970-01-01 00:00 UTC, from a clock that is passed in.

Invariants: a time is an `int` and always UTC; a `Clock` may jump either way, so durations are never
measured with it.
"""

import time
from datetime import UTC, datetime, timedelta
from typing import Final, Protocol

from forebay.model.errors import Rejected

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)

TIME_MAX: Final = (datetime.max.replace(tzinfo=UTC) - _EPOCH) // _MICROSECOND
"""The last microsecond of the year 9999, and the latest time that a message may carry."""


class Clock(Protocol):
    """Whatever tells the time."""

    def now(self) -> int:
        """Microseconds since the epoch, UTC."""
        ...


class SystemClock:
    """The machine's own clock."""

    def now(self) -> int:
        """Microseconds since the epoch, UTC."""
        return time.time_ns() // 1000


class ManualClock:
    """A clock that moves only when it is told to; for tests."""

    def __init__(self, start: int = 0) -> None:
        self._now = start

    def now(self) -> int:
        """Microseconds since the epoch, as last set."""
        return self._now

    def advance(self, *, seconds: float) -> int:
        """Move on by `seconds` (back, if negative) and return the new time."""
        self._now += round(seconds * 1_000_000)
        return self._now

    def set(self, now: int) -> None:
        """Jump to `now`, in microseconds."""
        self._now = now


def to_datetime(microseconds: int) -> datetime:
    """Make an aware datetime in UTC, exact to the microsecond."""
    try:
        return _EPOCH + timedelta(microseconds=microseconds)
    except OverflowError:
        raise Rejected(
            f"time {microseconds} is out of range",
            hint="give microseconds since 1970, up to the year 9999",
        ) from None


def from_datetime(moment: datetime) -> int:
    """Make microseconds from an aware datetime; a naive one is rejected."""
    if moment.utcoffset() is None:
        raise Rejected(
            f"time {moment.isoformat()} has no time zone",
            hint="add one, as in 2026-01-31T12:00:00Z",
        )
    return (moment - _EPOCH) // _MICROSECOND
