"""Sizes and durations as people write them: `256Mi`, `1h30m`.

Invariants: formatting is exact, so that what is formatted parses to the same value (durations to
the microsecond); a plain number is bytes or seconds; nothing is negative or endless.
"""

import math
import re
from fractions import Fraction
from typing import Final

from forebay.model.errors import Rejected

_BYTES_IN: Final = {
    "Ti": 1 << 40,
    "Gi": 1 << 30,
    "Mi": 1 << 20,
    "Ki": 1 << 10,
    "T": 10**12,
    "G": 10**9,
    "M": 10**6,
    "k": 10**3,
    "B": 1,
}
_SECONDS_IN: Final = {
    "d": Fraction(86_400),
    "h": Fraction(3_600),
    "m": Fraction(60),
    "s": Fraction(1),
    "ms": Fraction(1, 1000),
    "us": Fraction(1, 1_000_000),
}
_NUMBER: Final = r"[0-9]{1,19}(?:\.[0-9]{1,19})?"
_SIZE: Final = re.compile(rf"({_NUMBER})({'|'.join(_BYTES_IN)})?")
_DURATION: Final = re.compile("".join(rf"(?:({_NUMBER}){unit})?" for unit in _SECONDS_IN))
_PLAIN: Final = re.compile(_NUMBER)
_SIZE_HINT: Final = "write it as 1048576, 512Ki, 256Mi, 1.5Gi or 10M"
_DURATION_HINT: Final = "write it as 30s, 250ms, 1.5s, 1h30m or 7d"

BYTES_MAX: Final = (1 << 63) - 1
SECONDS_MAX: Final = 36_500 * 86_400
"""A hundred years: longer than any lease, and exact to the microsecond in a float."""


def parse_bytes(value: str | float) -> int:
    """Read a size in whole bytes; Ki, Mi, Gi and Ti are powers of 1024, k, M, G and T of 1000."""
    size = Fraction(-1)
    if isinstance(value, str):
        if match := _SIZE.fullmatch(value):
            size = Fraction(match[1]) * _BYTES_IN[match[2] or "B"]
    elif not isinstance(value, bool) and (isinstance(value, int) or math.isfinite(value)):
        size = Fraction(value)
    if size.denominator != 1 or not 0 <= size <= BYTES_MAX:
        raise Rejected(f"{value!r} is not a size", hint=_SIZE_HINT)
    return int(size)


def format_bytes(size: int) -> str:
    """Write a size exactly, in the largest unit that divides it."""
    unit = next(unit for unit, factor in _BYTES_IN.items() if size % factor == 0 and (size or factor == 1))
    return f"{size // _BYTES_IN[unit]}{unit}"


def parse_seconds(value: str | float) -> float:
    """Read a duration: parts from the largest unit to the smallest, each once."""
    if isinstance(value, str):
        seconds = _sum_of_parts(value)
    else:
        seconds = math.nan if isinstance(value, bool) else value
    if not 0 <= seconds <= SECONDS_MAX:
        raise Rejected(f"{value!r} is not a duration", hint=_DURATION_HINT)
    return float(seconds)


def _sum_of_parts(text: str) -> float:
    if _PLAIN.fullmatch(text):
        return float(text)
    match = _DURATION.fullmatch(text)
    if not text or match is None:
        return math.nan
    parts = zip(match.groups(), _SECONDS_IN.values(), strict=True)
    return float(sum(Fraction(number) * unit for number, unit in parts if number))


def format_seconds(seconds: float) -> str:
    """Write a duration to the microsecond, in as few parts as it takes."""
    whole, micros = divmod(round(seconds * 1_000_000), 1_000_000)
    if whole == 0 and micros:
        return f"{micros // 1000}ms" if micros % 1000 == 0 else f"{micros}us"
    minutes, rest = divmod(whole, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    fraction = f".{micros:06d}".rstrip("0") if micros else ""
    parts = [f"{number}{unit}" for number, unit in ((days, "d"), (hours, "h"), (minutes, "m")) if number]
    if rest or fraction or not parts:
        parts.append(f"{rest}{fraction}s")
    return "".join(parts)
