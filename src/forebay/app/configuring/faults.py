"""What is wrong with a setting, where it was said, and what to do about it."""

import difflib
from collections.abc import Iterable
from typing import Final

import msgspec

from forebay.model import Misconfigured, redact

__all__ = ["Fault", "Given", "excerpt", "misconfigured", "nearest"]

_EXCERPT: Final = 80
_SHOWN_MAX: Final = 50


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """One thing to correct. `source` is a place in a file, a variable, or a flag."""

    key: str
    """The path of the setting, as in `server.limits.body_bytes_max`; empty where it is no setting."""
    source: str
    message: str
    hint: str | None = None

    def __str__(self) -> str:
        """Say it in one line."""
        place = f"{self.key} ({self.source})" if self.key else self.source
        text = f"{place}: {self.message}"
        return f"{text}; {self.hint}" if self.hint else text


class Given(msgspec.Struct, frozen=True):
    """A value as somebody wrote it, and where; no text where they wrote that there is none."""

    text: str | None
    source: str


def excerpt(text: str) -> str:
    """Quote what somebody wrote: the start of it, without its secrets."""
    shown = redact(text)
    return ascii(shown if len(shown) <= _EXCERPT else shown[:_EXCERPT] + "...")


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The known word that was most likely meant."""
    found = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)
    return found[0] if found else None


def misconfigured(faults: list[Fault]) -> Misconfigured:
    """The error that says all of them, a line each."""
    if len(faults) == 1:
        return Misconfigured(str(faults[0]))
    lines = [f"\n  {fault}" for fault in faults[:_SHOWN_MAX]]
    if len(faults) > _SHOWN_MAX:
        lines.append(f"\n  and {len(faults) - _SHOWN_MAX} more")
    return Misconfigured(f"{len(faults)} settings are wrong:{''.join(lines)}")
