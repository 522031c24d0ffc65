"""Where a server is, and how to prove who is who: its address, the key, the certificates it is trusted by.

Invariants: a key is never part of an address, a text or an error.
"""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Final
from urllib.parse import quote, urlsplit

from forebay.model import Misconfigured
from forebay.model.limits import check_text

_NAME_BYTES_MAX: Final = 255


def parse_server(url: str) -> str:
    """The address of a server, without a slash at the end. It may have a path, where a proxy wants one."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        host, parts = None, urlsplit("")
    if parts.scheme not in ("http", "https") or not host:
        raise Misconfigured("this is no address of a server", hint="write it like http://127.0.0.1:6632")
    if "@" in parts.netloc:
        raise Misconfigured("an address of a server has no user or password", hint="give the key as key=...")
    if parts.query or parts.fragment:
        raise Misconfigured("an address of a server ends with its path", hint="leave out what follows ? or #")
    return f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}"


def checked_key(key: str | None) -> str | None:
    """The key as it can be sent."""
    if key is not None and not (key.isascii() and key.isprintable() and key.strip() == key != ""):
        text = "the key has characters that no key has"
        raise Misconfigured(text, hint="give it as `forebay keys create` has shown it")
    return key


def trust(server: str, ca_file: str | Path | None) -> ssl.SSLContext | bool:
    """What certificates are checked against: the system's, or those of a file."""
    if ca_file is None:
        return True
    if not server.startswith("https:"):
        raise Misconfigured("certificates are for https", hint="write https://, or leave out ca_file")
    try:
        return ssl.create_default_context(cafile=ca_file)
    except (OSError, ssl.SSLError) as error:
        text = f"the certificates in {ca_file} can't be read: {error.strerror or error}"
        raise Misconfigured(text, hint="give a file of certificates in PEM") from None


def part(name: str) -> str:
    """A name as a part of a path."""
    return quote(check_text(name, "name", _NAME_BYTES_MAX), safe="")
