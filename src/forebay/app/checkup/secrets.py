"""Secrets of the server: what JWTs are checked with and payloads are encrypted with; none is shown."""

import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from forebay.api.jwt.settings import JwtSettings
from forebay.api.jwt.signers import SECRET_BYTES_MIN, read_signers
from forebay.api.queen.sealing import read_seal
from forebay.api.queen.settings import QueenSettings
from forebay.app.checkup.finding import Finding, failure, ok, warning
from forebay.model import Misconfigured

__all__ = ["check_encryption", "check_jwt"]

JWT: Final = "jwt"
ENCRYPTION: Final = "encryption"


def check_jwt(settings: JwtSettings) -> Iterator[Finding]:
    """Whether tokens are taken, and whether what they are checked with can be read and is strong."""
    if settings.algorithm is None:
        yield ok(JWT, "none are taken")
        return
    try:
        signers, _ = read_signers(settings)
    except Misconfigured as error:
        yield failure(JWT, error.message, error.hint or "forebay config check")
        return
    by = (
        f"a secret of {SECRET_BYTES_MIN} bytes or more"
        if signers.secret
        else f"{len(signers.keys)} public keys"
    )
    yield ok(JWT, f"{settings.algorithm}, checked with {by}")
    if settings.secret_file is not None:
        yield from _check_mode("jwt secret", Path(settings.secret_file))
    if signers.has_private:
        text = f"{settings.key_set_file} has private keys, with which anyone who reads it can sign"
        yield warning("jwt keys", text, "take the private parts (d, p, q ...) out of it")
    if signers.keys and settings.audience is None:
        text = "jwt.audience isn't set: tokens that the issuer signs for other services are taken, too"
        yield warning("jwt audience", text, "set jwt.audience to what the issuer calls this server")
    if not settings.expiry_required:
        text = "jwt.expiry_required is false: a token without exp is valid until its key is changed"
        yield warning("jwt expiry", text, "have the issuer set exp, and remove the setting")


def check_encryption(settings: QueenSettings) -> Iterator[Finding]:
    """Whether payloads can be encrypted."""
    try:
        seal = read_seal(settings)
    except Misconfigured as error:
        yield failure(ENCRYPTION, error.message, error.hint or "forebay config check")
        return
    if seal is None:
        yield ok(ENCRYPTION, "no key, so no queue can have encryptionEnabled")
        return
    yield ok(ENCRYPTION, f"{len(seal)} keys, of which the first seals")
    if settings.encryption_keys_file is not None:
        yield from _check_mode("encryption file", Path(settings.encryption_keys_file))


def _check_mode(subject: str, path: Path) -> Iterator[Finding]:
    """A secret is for its owner, and at most for a group, as secrets that are mounted are."""
    if path.stat().st_mode & stat.S_IRWXO:
        yield warning(subject, f"everyone on this machine can read {path}", f"chmod o= {path}")
