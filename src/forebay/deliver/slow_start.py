"""Slow start: how many requests may be in flight while a destination recovers. A pure function.

A destination that was just down gets one request at first, then exponentially more, and after
`ramp_seconds` as many as ever. So a backlog of hours doesn't push it over again.
"""

from __future__ import annotations

import msgspec

__all__ = ["RampRule", "in_flight_max"]


class RampRule(msgspec.Struct, frozen=True, kw_only=True):
    """How fast a destination gets its full load again."""

    ramp_seconds: float = 10.0
    """0 gives it everything at once."""


def in_flight_max(rule: RampRule, full: int, recovered_at: float | None, now: float) -> int:
    """Requests that may be in flight at `now`; `full` is the limit of ordinary times.

    `recovered_at` is when the breaker closed; None when it never opened.
    """
    if recovered_at is None or now - recovered_at >= rule.ramp_seconds:
        return full
    part = max(0.0, now - recovered_at) / rule.ramp_seconds
    return max(1, min(full, int(full**part)))
