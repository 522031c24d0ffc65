"""TLS of a relay's own port: a certificate that can be replaced while the relay runs.

Invariants: a certificate that can't be used leaves the one before it in use; connections that are open keep
theirs.
"""

from __future__ import annotations

import logging
import ssl
from pathlib import Path
from typing import Final

from forebay.file_watch import FileWatch
from forebay.model import Misconfigured
from forebay.relay.settings import RelaySettings
from forebay.wire.certificate import load_certificate

__all__ = ["Certificate", "certificate_of"]

logger: Final = logging.getLogger("forebay.relay")


class Certificate:
    """The certificate that clients are shown, for a server's `context`."""

    def __init__(self, cert: str, key: str | None) -> None:
        self._cert = cert
        self._key = key
        self._watch = FileWatch(*(Path(path) for path in (cert, key) if path is not None))
        self._current = self.context = _context_of(cert, key)
        # Each handshake asks which context it goes on with. Loading another certificate into this one isn't
        # enough: it keeps one of each kind, RSA and ECDSA, and clients would still get the old one.
        self.context.sni_callback = self._choose

    def look(self) -> None:
        """Read the files again if they have changed."""
        if not self._watch.has_changed():
            return
        try:
            self._current = _context_of(self._cert, self._key)
        except Misconfigured as error:
            logger.error("the certificate stays as it was: %s", error)  # noqa: TRY400 - no trace helps here
        else:
            logger.info("the certificate is read again from %s", self._cert)

    def _choose(
        self, connection: ssl.SSLObject | ssl.SSLSocket, _name: str | None, _: ssl.SSLContext
    ) -> None:
        connection.context = self._current


def certificate_of(settings: RelaySettings) -> Certificate | None:
    """The certificate that the settings name; None for plain HTTP. Misconfigured names a bad file."""
    return None if settings.tls_cert is None else Certificate(settings.tls_cert, settings.tls_key)


def _context_of(cert: str, key: str | None) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    load_certificate(context, cert, key, settings=("tls_cert", "tls_key"))
    context.set_alpn_protocols(["http/1.1"])
    return context
