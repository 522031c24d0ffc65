"""Which requests of browsers are let through: a page may use this server only if it is this server's.

A browser sends requests for any page that its user looks at, also to servers that only this machine reaches.
So a page elsewhere could push and purge (CSRF), or have its own name point here, and read the answers as well
(DNS rebinding). Whoever shows a key is let through: a page elsewhere has none. Programs that aren't browsers
say neither `Origin` nor `Sec-Fetch-Site`, and go on as they are. Pure functions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from ipaddress import ip_address
from typing import Final
from urllib.parse import urlsplit

from forebay.model import Forbidden

__all__ = ["KnownHosts", "check_browser"]

_OURS: Final = frozenset({None, "same-origin", "none"})
"""What `Sec-Fetch-Site` says of requests that a page of ours sends, or the user."""
_BROWSER: Final = "Mozilla/"
"""What the `User-Agent` of every browser begins with: `Sec-Fetch-Site` isn't said to names without TLS."""


class KnownHosts:
    """The names by which browsers reach the server."""

    def __init__(self, listen_host: str, hosts: Iterable[str]) -> None:
        self._hosts = frozenset({"localhost", listen_host.lower(), *(host.lower() for host in hosts)})

    def know(self, authority: str) -> bool:
        """Whether the server is known by a name, with or without its port.

        Addresses are: nobody can have an address point elsewhere.
        """
        name = _name_of(authority)
        known = authority.lower() in self._hosts or name in self._hosts or name.endswith(".localhost")
        return known or _is_address(name)

    def trusts(self, origin: str, authority: str) -> bool:
        """Whether a page of this origin may change something: one of this server, or of a configured name."""
        scheme, _, asked = origin.lower().partition("://")
        if scheme not in ("http", "https") or not asked:
            return False
        if asked == authority.lower():
            return True
        name = _name_of(asked)
        is_own = name == "localhost" or name.endswith(".localhost") or _is_address(name)
        return asked in self._hosts or (name in self._hosts and not is_own)


def check_browser(headers: Mapping[bytes, bytes], known: KnownHosts, *, own_origin: bool) -> None:
    """Raise Forbidden for a request that a browser sends for a page that isn't ours.

    `own_origin` is for what changes something, or is answered so that any page may read it. Other answers are
    hidden by the browser, but for pages under a name that points here.
    """
    origin, site = _text(headers, b"origin"), _text(headers, b"sec-fetch-site")
    agent = _text(headers, b"user-agent") or ""
    if origin is None and site is None and not agent.startswith(_BROWSER):
        return
    host = _text(headers, b"host") or ""
    if not known.know(host):
        raise Forbidden(
            f"browsers don't know this server as {host[:200]!a}",
            hint="add the name to server.hosts, or use an address of the server",
        )
    if not own_origin:
        return
    if origin is not None and known.trusts(origin, host):
        return
    if origin is not None or site not in _OURS:
        raise Forbidden(
            f"a page of another origin ({(origin or site or '')[:200]!a}) may not change anything here",
            hint="use the server's own page, send a key, or add the origin's name to server.hosts",
        )


def _name_of(authority: str) -> str:
    try:
        return urlsplit(f"//{authority}").hostname or ""
    except ValueError:
        return ""


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


def _text(headers: Mapping[bytes, bytes], name: bytes) -> str | None:
    found = headers.get(name)
    return None if found is None else found.decode("latin-1")
