"""Pauses before a request is tried again: pure functions, chance and clock passed in.

The pause is drawn evenly between 0 and `base * multiplier ** attempts` (full jitter), so that requests that
failed together come back apart. A destination that asks for a pause (`Retry-After`) gets it, up to a bound.
"""

from __future__ import annotations

import re
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import Final

import msgspec

__all__ = ["BackoffRule", "ceiling_seconds", "pause_seconds", "retry_after_seconds"]

_SECONDS: Final = re.compile(rb"[0-9]{1,10}(?:\.[0-9]{1,6})?")
_DATE_BYTES_MAX: Final = 64


class BackoffRule(msgspec.Struct, frozen=True, kw_only=True):
    """How long to wait between attempts."""

    enabled: bool = True
    """Otherwise every pause is `base_seconds`."""
    base_seconds: float = 5.0
    multiplier: float = 2.0
    max_seconds: float = 300.0
    """The longest pause, unless the destination asks for more."""
    retry_after_seconds_max: float = 3_600.0
    """The longest pause that a destination may ask for."""


def ceiling_seconds(rule: BackoffRule, attempts: int) -> float:
    """The longest pause after so many failed attempts, without jitter; the first failure is attempt 1."""
    if not rule.enabled:
        return rule.base_seconds
    try:
        return min(rule.max_seconds, rule.base_seconds * rule.multiplier ** max(0, attempts - 1))
    except OverflowError:
        return rule.max_seconds


def pause_seconds(
    rule: BackoffRule, attempts: int, chance: float, asked_seconds: float | None = None
) -> float:
    """The pause after so many failed attempts; `chance` is 0 to 1, `asked_seconds` the destination's wish."""
    seconds = ceiling_seconds(rule, attempts)
    if rule.enabled:
        seconds *= chance
    if asked_seconds is None:
        return seconds
    return max(seconds, min(asked_seconds, rule.retry_after_seconds_max))


def retry_after_seconds(value: bytes, now: float) -> float | None:
    """Read a `Retry-After` header: seconds, or a date; `now` is Unix time. None when it is neither."""
    value = value.strip()
    if _SECONDS.fullmatch(value):
        return float(value)
    if len(value) > _DATE_BYTES_MAX:
        return None
    try:
        moment = parsedate_to_datetime(value.decode("ascii"))
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        return max(0.0, moment.timestamp() - now)
    except (ValueError, OverflowError):
        return None
