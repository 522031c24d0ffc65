"""Which addresses name a log that every process of Spark can open: one rule for readers, writers and flows.

An address may hold a password: no error repeats it.
"""

from __future__ import annotations

from typing import Final

from forebay.model import Misconfigured, Rejected

SCHEMES: Final = ("postgresql://", "postgres://", "sqlite:///", "tarantool://", "http://", "https://")
"""What they begin with."""
_HINT: Final = (
    "write postgresql://user@host/database, sqlite:///file.db, tarantool://host:3301 or http://host:6632"
)


def shared_address(text: str) -> str:
    """The address of a log, as it was given."""
    if not text.startswith(SCHEMES):
        raise Rejected("it is no address of a log that processes can share", hint=_HINT)
    return text


def url_option(text: str) -> str:
    """The option `url` of a reader or a writer."""
    if not text:
        raise missing_url()
    try:
        return shared_address(text)
    except Rejected as error:
        raise Misconfigured(f"option `url`: {error.message}", hint=error.hint, key="url") from None


def missing_url() -> Misconfigured:
    """The error where no address is given."""
    return Misconfigured("option `url` is missing", hint=f"give the address of a log: {_HINT}", key="url")
