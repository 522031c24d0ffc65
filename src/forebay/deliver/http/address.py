"""The address of a destination: `https://user:password@host:port/path?query`, taken apart."""

from __future__ import annotations

import re
from base64 import b64encode
from typing import Final
from urllib.parse import unquote_to_bytes, urlsplit

import msgspec

from forebay.model import Misconfigured
from forebay.model.redaction import redact

__all__ = ["Address", "parse_address"]

_HINT: Final = "write it as https://host/path or http://host:8080/path"
_PRINTABLE: Final = re.compile(r"[\x21-\x7e]*")
_HOST: Final = re.compile(r"[0-9A-Za-z._-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\]")
_PORTS: Final = {"http": 80, "https": 443}


class Address(msgspec.Struct, frozen=True, kw_only=True):
    """Where requests go."""

    is_tls: bool
    host: str
    """A name or an address, without brackets."""
    port: int
    target: bytes
    """Path and query."""
    authority: bytes
    """The Host header."""
    basic: bytes | None
    """The Authorization header that its user and password make."""

    @property
    def name(self) -> str:
        """The address without secrets: scheme, host, port and path."""
        path = self.target.partition(b"?")[0].decode("ascii")
        return f"{'https' if self.is_tls else 'http'}://{self.authority.decode('ascii')}{path}"


def parse_address(text: str) -> Address:
    """Take an address apart; Misconfigured says what is wrong with it."""
    if not _PRINTABLE.fullmatch(text):
        raise Misconfigured("the address of a destination holds characters that it may not have", hint=_HINT)
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError as error:
        raise Misconfigured(
            f"{redact(text)} is not the address of a destination: {error}", hint=_HINT
        ) from None
    if parts.scheme not in _PORTS or not parts.hostname:
        raise Misconfigured(f"{redact(text)} is not the address of a destination", hint=_HINT)
    if parts.fragment or "#" in text:
        raise Misconfigured(
            f"{redact(text)} has a fragment, which is never sent", hint="leave out # and the rest"
        )
    place = parts.netloc.rpartition("@")[2]
    host = place if place.endswith("]") or ":" not in place else place.rpartition(":")[0]
    if not _HOST.fullmatch(host) or port == 0:
        raise Misconfigured(f"{redact(text)} names no host that can be connected to", hint=_HINT)
    return Address(
        is_tls=parts.scheme == "https",
        host=host.strip("[]"),
        port=port or _PORTS[parts.scheme],
        target=((parts.path or "/") + (f"?{parts.query}" if parts.query else "")).encode("ascii"),
        authority=(host if port in (None, _PORTS[parts.scheme]) else f"{host}:{port}").encode("ascii"),
        basic=_basic(parts.username, parts.password),
    )


def _basic(user: str | None, password: str | None) -> bytes | None:
    if user is None:
        return None
    return b"Basic " + b64encode(unquote_to_bytes(user) + b":" + unquote_to_bytes(password or ""))
