"""A certificate and its private key from files in PEM format, and what is wrong with them."""

import ssl
from pathlib import Path
from typing import Final

from forebay.model import Misconfigured

__all__ = ["load_certificate"]

_BYTES_MAX: Final = 1 << 20
_MISMATCHES: Final = frozenset(("KEY_VALUES_MISMATCH", "NO_CERTIFICATE_ASSIGNED"))
"""OpenSSL's word for a key of another pair, and for one of another kind."""
_NO_PASSWORD: Final = ""
"""Without one, a file that wants a password would be asked for on the terminal."""


def load_certificate(
    context: ssl.SSLContext, cert: str, key: str | None, *, settings: tuple[str, str]
) -> None:
    """Load what `context` shows; Misconfigured names the bad file, and the setting that names it."""
    cert_setting, key_setting = settings
    certificate = _read(cert, cert_setting)
    private, key_file = (certificate, cert) if key is None else (_read(key, key_setting), key)
    if b"-----BEGIN CERTIFICATE" not in certificate:
        raise _bad(f"{cert} holds no certificate in PEM format", cert_setting)
    if b"PRIVATE KEY-----" not in private:
        hint = f"name the file of the key as {key_setting}" if key is None else "give a file in PEM format"
        raise _bad(
            f"{key_file} holds no private key in PEM format",
            cert_setting if key is None else key_setting,
            hint,
        )
    if b"ENCRYPTED" in private:
        raise _bad(f"the key in {key_file} wants a password", key_setting, "give a key that isn't encrypted")
    try:
        context.load_cert_chain(cert, key, password=_NO_PASSWORD)
    except (OSError, ValueError) as error:
        if getattr(error, "reason", None) in _MISMATCHES:
            text = f"the key in {key_file} isn't that of the certificate in {cert}"
            raise _bad(text, key_setting, "give files that fit each other") from None
        raise _bad(f"the certificate in {cert} can't be used: {error}", cert_setting) from None


def _read(path: str, setting: str) -> bytes:
    try:
        with Path(path).open("rb") as file:
            return file.read(_BYTES_MAX)
    except OSError as error:
        raise _bad(f"{path} can't be read: {error.strerror}", setting, "name a file that is there") from None


def _bad(text: str, setting: str, hint: str = "give a file in PEM format") -> Misconfigured:
    return Misconfigured(text, hint=hint, key=setting)
