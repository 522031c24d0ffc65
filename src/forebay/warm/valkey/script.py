"""Lua scripts that ship with the package."""

from __future__ import annotations

import hashlib
from functools import cache
from importlib import resources

import msgspec

__all__ = ["Script", "read_script"]


class Script(msgspec.Struct, frozen=True):
    """A script's text, and the digest by which the server knows it."""

    name: str
    text: str
    digest: str


@cache
def read_script(package: str, *parts: str) -> Script:
    """The script that is made of files of a package, one after the other; the last one names it."""
    folder = resources.files(package)
    text = "\n".join((folder / f"{part}.lua").read_text(encoding="utf-8") for part in parts)
    return Script(parts[-1], text, hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest())
