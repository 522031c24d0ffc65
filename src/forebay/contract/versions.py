"""Versions of a contract: numbers with points between them, compared number by number."""

import re
from typing import Final

__all__ = ["is_newer", "is_version"]

_VERSION: Final = re.compile(r"[0-9]{1,9}(?:\.[0-9]{1,9}){0,3}", re.ASCII)


def is_version(text: str) -> bool:
    """Whether it is one, such as `2` or `1.4`."""
    return _VERSION.fullmatch(text) is not None


def is_newer(theirs: str | None, ours: str | None) -> bool:
    """Whether a task, or a contract, comes after ours; what is no version at all is none that we know."""
    if theirs is None or ours is None or theirs == ours:
        return False
    return not is_version(theirs) or _parts(theirs) > _parts(ours)


def _parts(text: str) -> list[int]:
    parts = [int(part) for part in text.split(".")]
    while parts and not parts[-1]:
        parts.pop()
    return parts
