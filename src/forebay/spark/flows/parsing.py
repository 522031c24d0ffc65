"""Texts of a file of flows as values; Rejected says what is wrong with one, and what would be right."""

from __future__ import annotations

import re
from collections.abc import Callable
from fnmatch import fnmatchcase
from typing import Final

from forebay.contract.nodes import excerpt
from forebay.model import Rejected, parse_seconds

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_PLACE: Final = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*", re.ASCII)
_REMOTE: Final = re.compile(r"[a-z][a-z0-9+.-]*://")


def is_name(text: str) -> bool:
    """Whether a flow or an action can be called so: names are parts of paths and of keys."""
    return _NAME.fullmatch(text) is not None


def matches(name: str, pattern: str) -> bool:
    """Whether a name matches a pattern with `*` and `?`."""
    return fnmatchcase(name, pattern)


def place(text: str) -> str:
    """A function: `module:name`."""
    if not _PLACE.fullmatch(text):
        raise Rejected(f"{excerpt(text)} names no function", hint="write it as shop.flows:parse")
    return text


def sql(text: str) -> str:
    """Text that isn't empty."""
    if not text.strip():
        raise Rejected("it is empty", hint="write SELECT ... FROM input")
    return text


def pattern(text: str) -> str:
    """What names are compared with."""
    if not text or len(text) > 255:  # noqa: PLR2004 - what a name can have
        raise Rejected(f"{excerpt(text)} matches nothing", hint='write it as "orders*"')
    return text


def folder(text: str) -> str:
    """A path on this machine."""
    if _REMOTE.match(text):
        raise Rejected(f"{excerpt(text)} is not on this machine", hint="name a folder that is mounted here")
    if not text or "\0" in text:
        raise Rejected("it names nothing", hint="name a folder")
    return text


def start(text: str) -> str:
    """Where a group begins."""
    if text not in ("earliest", "latest"):
        raise Rejected(f"{excerpt(text)} is no place to start", hint="write earliest or latest")
    return text


def on_loss(text: str) -> str:
    """What to do without messages that are gone."""
    if text not in ("fail", "skip"):
        raise Rejected(f"{excerpt(text)} is nothing to do when messages are gone", hint="write fail or skip")
    return text


def switch(text: str) -> bool:
    """Yes or no."""
    if text.lower() not in ("true", "false"):
        raise Rejected(f"{excerpt(text)} is neither true nor false", hint="write true or false")
    return text.lower() == "true"


def whole(least: int, most: int) -> Callable[[str], int]:
    """A whole number between two."""

    def parse(text: str) -> int:
        digits = text.isascii() and text.isdigit() and len(text) <= len(str(most))
        if not (digits and least <= int(text) <= most):
            hint = f"give a whole number from {least:,} to {most:,}"
            raise Rejected(f"{excerpt(text)} is out of range", hint=hint)
        return int(text)

    return parse


def seconds(least: float, most: float) -> Callable[[str], float]:
    """A duration between two."""

    def parse(text: str) -> float:
        found = parse_seconds(text)
        if not least <= found <= most:
            raise Rejected(f"{excerpt(text)} is out of range", hint=f"give {least:g} to {most:g} seconds")
        return found

    return parse
