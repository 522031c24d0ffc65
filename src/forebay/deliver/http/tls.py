"""TLS of a destination: whom we trust, and the certificate that we show."""

from __future__ import annotations

import ssl

from forebay.deliver.settings import TlsSettings
from forebay.model import Misconfigured

__all__ = ["client_context"]


def client_context(settings: TlsSettings) -> ssl.SSLContext:
    """A context that verifies the destination's certificate and name; Misconfigured names a bad file."""
    try:
        context = ssl.create_default_context(cafile=settings.ca_file)
    except (OSError, ssl.SSLError) as error:
        raise _bad("ca_file", settings.ca_file, error) from None
    if settings.cert_file is not None:
        try:
            # Without a password a file that wants one would be asked for on the terminal.
            context.load_cert_chain(settings.cert_file, settings.key_file, password="")
        except (OSError, ssl.SSLError, ValueError) as error:
            raise _bad("cert_file", settings.cert_file, error) from None
    context.set_alpn_protocols(["http/1.1"])
    return context


def _bad(key: str, file: str | None, error: Exception) -> Misconfigured:
    what = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return Misconfigured(
        f"the certificates in {file} can't be read: {what}", hint="give a file in PEM format", key=key
    )
