"""What a check found, and the command that helps."""

from typing import Literal

import msgspec

__all__ = ["Finding", "Level", "clock_finding", "failure", "ok", "warning"]

Level = Literal["ok", "warning", "failure"]

CLOCK_SECONDS_WARNING = 1.0
CLOCK_SECONDS_FAILURE = 30.0
"""As long as a silent owner keeps its claims: a clock that is further off takes work from the living."""


class Finding(msgspec.Struct, frozen=True):
    """One line of a checkup."""

    level: Level
    subject: str
    text: str
    help: str | None = None
    """What to do, where something is to be done."""


def ok(subject: str, text: str) -> Finding:
    """All is well."""
    return Finding("ok", subject, text)


def warning(subject: str, text: str, help: str) -> Finding:  # noqa: A002 - it is the word
    """It works, but it should be seen to."""
    return Finding("warning", subject, text, help)


def failure(subject: str, text: str, help: str) -> Finding:  # noqa: A002 - it is the word
    """It doesn't work, or will lose time or data."""
    return Finding("failure", subject, text, help)


def clock_finding(subject: str, ahead_seconds: float) -> Finding:
    """Judge how far another clock is ahead of this machine's."""
    off = abs(ahead_seconds)
    text = f"{off:.1f}s {'ahead of' if ahead_seconds > 0 else 'behind'} this machine's clock"
    help_ = "timedatectl set-ntp true, on both machines"
    if off >= CLOCK_SECONDS_FAILURE:
        return failure(subject, text, help_)
    if off >= CLOCK_SECONDS_WARNING:
        return warning(subject, text, help_)
    return ok(subject, "agrees with this machine's to a second")
