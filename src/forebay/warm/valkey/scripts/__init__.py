"""The Lua scripts of the warm tier: one verb each, with `shelf.lua` in front."""

import hashlib
from functools import cache
from importlib import resources

import msgspec


class Script(msgspec.Struct, frozen=True):
    """A script's text, and the digest by which the server knows it."""

    name: str
    text: str
    digest: str


@cache
def load(name: str) -> Script:
    """Return the script of a verb; it ships with the package."""
    folder = resources.files(__name__)
    parts = [(folder / f"{part}.lua").read_text(encoding="utf-8") for part in ("shelf", name)]
    text = "\n".join(parts)
    return Script(name, text, hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest())
