"""The circuit breaker of a destination: pure functions on a value, with a monotonic clock passed in.

::

    closed ── `threshold` failures in a row ──▶ open ── `reset_seconds` later ──▶ half_open
       ▲                                          ▲                                  │
       │                                          └────────── the probe fails ───────┤
       └───────────────────────── the probe succeeds ────────────────────────────────┘

Invariants: while half open one probe is out at a time; a probe that isn't reported within
`probe_seconds_max` is given up, and the next request is the probe, so a breaker can't wedge; a request that
was let through before the breaker opened neither closes it nor fails its probe.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Literal, TypeAlias

import msgspec

from forebay.deliver.failure import counts_for_breaker
from forebay.deliver.values import Outcome

__all__ = [
    "Breaker", "BreakerRule", "BreakerState", "Permit", "Verdict", "ask", "give_back", "report", "verdict_of",
    "wait_seconds",
]  # fmt: skip

Verdict: TypeAlias = Literal["success", "failure", "neither"]


class BreakerState(StrEnum):
    """A label of metrics."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


class BreakerRule(msgspec.Struct, frozen=True, kw_only=True):
    """When a breaker opens, and when it tries again."""

    enabled: bool = True
    threshold: int = 5
    """Failures in a row."""
    reset_seconds: float = 30.0
    """From opening to the probe."""
    probe_seconds_max: float = 60.0
    """After so long a probe that wasn't reported is given up."""


class Permit(msgspec.Struct, frozen=True):
    """Leave to send one request; to be reported or given back."""

    era: int
    probe: int | None = None
    """The number of the probe, if it is one."""


class Breaker(msgspec.Struct, frozen=True, kw_only=True):
    """The state of one breaker. Times in seconds of a monotonic clock."""

    state: BreakerState = BreakerState.CLOSED
    failures: int = 0
    """In a row, while closed."""
    era: int = 0
    """Grows each time that the breaker closes or opens: tells which reports come late."""
    since: float = 0.0
    """When it closed or opened; while half open, when the probe was let through."""
    probe: int = 0
    """The number of the last probe."""
    is_probe_out: bool = False
    opened: int = 0
    """How often it has opened."""


def ask(breaker: Breaker, rule: BreakerRule, now: float) -> tuple[Breaker, Permit | None]:
    """Ask to send a request; None means to wait for `wait_seconds`."""
    if breaker.state is BreakerState.CLOSED or not rule.enabled:
        return breaker, Permit(breaker.era)
    if wait_seconds(breaker, rule, now) > 0:
        return breaker, None
    probing = msgspec.structs.replace(
        breaker, state=BreakerState.HALF_OPEN, since=now, probe=breaker.probe + 1, is_probe_out=True
    )
    return probing, Permit(probing.era, probing.probe)


def wait_seconds(breaker: Breaker, rule: BreakerRule, now: float) -> float:
    """Seconds after which it makes sense to ask again; while a probe is out, its report may come sooner."""
    if breaker.state is BreakerState.CLOSED or not rule.enabled:
        return 0.0
    if breaker.state is BreakerState.OPEN:
        return max(0.0, breaker.since + rule.reset_seconds - now)
    return max(0.0, breaker.since + rule.probe_seconds_max - now) if breaker.is_probe_out else 0.0


def report(breaker: Breaker, rule: BreakerRule, permit: Permit, verdict: Verdict, now: float) -> Breaker:
    """Take in how a request ended that was let through by `permit`."""
    if permit.era != breaker.era:
        return breaker
    if breaker.state is BreakerState.CLOSED:
        return _count(breaker, rule, verdict, now)
    if verdict != "failure":
        # Also from a probe that was given up: it was late, but the destination answers.
        return _closed(breaker, now)
    return _opened(breaker, now) if permit.probe == breaker.probe and breaker.is_probe_out else breaker


def give_back(breaker: Breaker, permit: Permit) -> Breaker:
    """Take back a permit that wasn't used, or whose request was cancelled: another one may be the probe."""
    if permit.era == breaker.era and permit.probe is not None and permit.probe == breaker.probe:
        return msgspec.structs.replace(breaker, is_probe_out=False)
    return breaker


def verdict_of(outcome: Outcome) -> Verdict:
    """The meaning of an outcome for the breaker; a refused request (4xx) is neither success nor failure."""
    if outcome.is_delivered:
        return "success"
    return "failure" if counts_for_breaker(outcome) else "neither"


def _count(breaker: Breaker, rule: BreakerRule, verdict: Verdict, now: float) -> Breaker:
    if verdict == "neither":
        return breaker
    if verdict == "success":
        return breaker if not breaker.failures else msgspec.structs.replace(breaker, failures=0)
    failures = breaker.failures + 1
    if failures >= rule.threshold and rule.enabled:
        return _opened(breaker, now)
    return msgspec.structs.replace(breaker, failures=failures)


def _opened(breaker: Breaker, now: float) -> Breaker:
    return msgspec.structs.replace(
        breaker,
        state=BreakerState.OPEN,
        failures=0,
        era=breaker.era + 1,
        since=now,
        is_probe_out=False,
        opened=breaker.opened + 1,
    )


def _closed(breaker: Breaker, now: float) -> Breaker:
    return msgspec.structs.replace(
        breaker, state=BreakerState.CLOSED, failures=0, era=breaker.era + 1, since=now, is_probe_out=False
    )
