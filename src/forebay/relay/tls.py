"""TLS of a relay's own port."""

from __future__ import annotations

import ssl

from forebay.model import Misconfigured
from forebay.relay.settings import RelaySettings

__all__ = ["server_context"]


def server_context(settings: RelaySettings) -> ssl.SSLContext | None:
    """The certificate that clients are shown; None for plain HTTP. Misconfigured names a bad file."""
    if settings.tls_cert is None:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        # Without a password a file that wants one would be asked for on the terminal.
        context.load_cert_chain(settings.tls_cert, settings.tls_key, password="")
    except (OSError, ssl.SSLError, ValueError) as error:
        what = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        text = f"the certificate in {settings.tls_cert} can't be used: {what}"
        raise Misconfigured(
            text, hint="give files in PEM format that fit each other", key="tls_cert"
        ) from None
    context.set_alpn_protocols(["http/1.1"])
    return context
