"""The Lua scripts of the warm tier: one verb each, with `shelf.lua` in front."""

from forebay.warm.valkey.script import Script, read_script

__all__ = ["load"]


def load(name: str) -> Script:
    """Return the script of a verb; it ships with the package."""
    return read_script(__name__, "shelf", name)
