"""Times as Queen writes them: ISO 8601, UTC, microseconds."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

from forebay.model import Rejected

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)


def iso(moment: int) -> str:
    """A time (µs) as text."""
    return (_EPOCH + timedelta(microseconds=moment)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def iso_or_none(moment: int | None) -> str | None:
    """A time as text, if there is one."""
    return None if moment is None else iso(moment)


def parse_time(text: str, what: str) -> int:
    """A time (µs) from text; without a zone it is UTC."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        hint = "write it like 2026-11-15T20:32:18Z"
        raise Rejected(f"{what} {text[:64]!r} is no time", hint=hint) from None
    aware = found if found.tzinfo is not None else found.replace(tzinfo=UTC)
    return (aware - _EPOCH) // _MICROSECOND
