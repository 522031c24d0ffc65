"""Addresses without their secrets, for whatever people or logs may see.

Invariant: hiding too much is a nuisance, hiding too little is a leak, so whatever isn't clearly a
scheme, a user, a host, a path or a harmless parameter is hidden, also in addresses that are malformed.
"""

import re
from typing import Final
from urllib.parse import unquote_plus

__all__ = ["HIDDEN", "redact"]

HIDDEN: Final = "***"
_DEPTH_MAX: Final = 4
"""Addresses within addresses: one is usual (`?warm=`), more are nonsense."""

_SECRET_NAME: Final = re.compile("pass|pwd|secret|token|key|auth|credential", re.IGNORECASE)
_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_INNER: Final = re.compile(r"[a-z_]+=[A-Za-z][A-Za-z0-9+.-]*://")
"""A parameter that is an address itself."""
_PORT: Final = re.compile(r"[0-9]{0,5}")


def redact(text: str) -> str:
    """Return `text` with passwords of addresses in it hidden; what holds none comes back as it is."""
    return _redact(text, _DEPTH_MAX)


def _redact(text: str, depth: int) -> str:
    if depth == 0:
        return HIDDEN
    address, mark, query = text.partition("?")
    parameters = query.split("&") if mark else []
    shown = _without_password(address)
    if any(map(_is_doubtful, parameters)) or (mark and shown.endswith(HIDDEN)):
        # Most likely a password with a ? or & in it: no telling where it ends.
        return HIDDEN
    return shown + mark + "&".join(_parameter(part, depth) for part in parameters)


def _is_doubtful(parameter: str) -> bool:
    """Tell whether it looks like a piece of an address that a password has torn."""
    plain = unquote_plus(parameter)
    if not _INNER.match(plain):
        return "@" in plain
    address = plain.partition("=")[2].partition("?")[0]
    return _without_password(address).endswith(HIDDEN)


def _without_password(address: str) -> str:
    found = _SCHEME.match(address)
    scheme = found[0] if found else ""
    rest = address[len(scheme) :]
    credentials, mark, place = rest.rpartition("@")
    if mark:
        user, colon, _ = credentials.partition(":")
        if not scheme or "%" in user or "/" in user:
            return f"{scheme}{HIDDEN}@{place}"
        return f"{scheme}{user}:{HIDDEN}@{place}" if colon else address
    host, colon, port = rest.partition("/")[0].rpartition(":")
    if scheme and colon and not host.startswith("[") and not _PORT.fullmatch(port):
        # No port, so most likely a password whose host was lost.
        return f"{scheme}{host}:{HIDDEN}"
    return address


def _parameter(part: str, depth: int) -> str:
    name, mark, value = part.partition("=")
    if _SECRET_NAME.search(unquote_plus(name)):
        return f"{name}{mark}{HIDDEN}"
    plain = unquote_plus(value)
    shown = _redact(plain, depth - 1)
    return part if shown == plain else f"{name}{mark}{shown}"
