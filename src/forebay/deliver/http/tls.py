"""TLS of a destination: whom we trust, and the certificate that we show."""

from __future__ import annotations

import ssl

from forebay.deliver.settings import TlsSettings
from forebay.model import Misconfigured
from forebay.wire.certificate import load_certificate

__all__ = ["client_context"]


def client_context(settings: TlsSettings) -> ssl.SSLContext:
    """A context that verifies the destination's certificate and name; Misconfigured names a bad file."""
    try:
        context = ssl.create_default_context(cafile=settings.ca_file)
    except OSError as error:
        what = "it holds none in PEM format" if isinstance(error, ssl.SSLError) else error.strerror
        text = f"the certificates in {settings.ca_file} can't be read: {what}"
        raise Misconfigured(text, hint="give a file in PEM format", key="ca_file") from None
    if settings.cert_file is not None:
        names = ("cert_file", "key_file")
        load_certificate(context, settings.cert_file, settings.key_file, settings=names)
    context.set_alpn_protocols(["http/1.1"])
    return context
