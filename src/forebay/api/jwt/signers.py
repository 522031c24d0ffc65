"""Who may sign tokens: a secret that is shared with the signer, or the public keys of a key set.

A key set is a file of JSON Web Keys (RFC 7517), which most issuers publish. Only those of its keys that fit
the algorithm of the settings are used, by their `kid`: the others are there for other purposes.

Invariants: what checks a signature is made for one algorithm, so that no token can choose another, nor have a
public key taken for a secret; no secret is in an error; nothing that is too weak is used.
"""

import hmac
from base64 import urlsafe_b64decode
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, TypeAlias

import msgspec
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey, RSAPublicNumbers
from cryptography.hazmat.primitives.hashes import SHA256

from forebay.api.jwt.settings import Algorithm, JwtSettings
from forebay.api.secretfile import read_secret_file
from forebay.file_watch import Stamp
from forebay.model import Misconfigured

__all__ = ["SECRET_BYTES_MIN", "Checker", "Signers", "path_of", "read_signers"]

SECRET_BYTES_MIN: Final = 32
"""As long as the digest, as RFC 7518 demands: a shorter one can be guessed from a single token."""
_RSA_BITS_MIN: Final = 2_048
_RSA_BITS_MAX: Final = 16_384
_KEYS_MAX: Final = 1_000
_UNREADABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_FITTING: Final = {"RS256": ("RSA", ("RS256",)), "EdDSA": ("OKP", ("EdDSA", "Ed25519"))}
"""The type of the keys of an algorithm, and what they may call it."""

Checker: TypeAlias = Callable[[bytes, bytes], bool]
"""Tells whether the second bytes are a signature of the first."""


class Signers(msgspec.Struct, frozen=True, kw_only=True):
    """What signatures are checked with: by secret, or by the id of a key."""

    algorithm: Algorithm
    secret: Checker | None = None
    keys: Mapping[str, Checker] = {}
    has_private: bool = False
    """Whether the file has private keys, which are no business of a server's."""


class _Jwk(msgspec.Struct, frozen=True):
    kty: str
    kid: str | None = None
    use: str | None = None
    alg: str | None = None
    crv: str | None = None
    n: str = ""
    e: str = ""
    x: str = ""
    d: Any = None


class _KeySet(msgspec.Struct, frozen=True):
    keys: list[_Jwk]


def path_of(settings: JwtSettings) -> Path | None:
    """The file that says who signs; None where the secret is in the settings."""
    named = settings.secret_file or settings.key_set_file
    return None if named is None else Path(named)


def read_signers(settings: JwtSettings) -> tuple[Signers, Stamp | None]:
    """Who may sign by these settings, and the stamp of the file that was read; else Misconfigured."""
    assert settings.algorithm is not None
    if settings.secret is not None:
        return _sharing(settings.secret.encode(errors="surrogateescape"), "secret"), None
    if settings.secret_file is not None:
        secret, stamp = read_secret_file(Path(settings.secret_file), "the secret", "secret_file")
        return _sharing(secret.removesuffix(b"\n").removesuffix(b"\r"), "secret_file"), stamp
    assert settings.key_set_file is not None
    path = Path(settings.key_set_file)
    data, stamp = read_secret_file(path, "the key set", "key_set_file")
    return _parse(data, path, settings.algorithm), stamp


def _sharing(secret: bytes, setting: str) -> Signers:
    if len(secret) < SECRET_BYTES_MIN:
        text = f"the secret has {len(secret)} bytes, fewer than {SECRET_BYTES_MIN}"
        raise Misconfigured(text, hint="make one with `openssl rand -base64 48`", key=setting)
    if secret.lstrip().startswith((b"-----BEGIN", b"ssh-")):
        text = "the secret is a key of another kind, which others may know"
        raise Misconfigured(text, hint="make one with `openssl rand -base64 48`", key=setting)

    def check(signed: bytes, signature: bytes) -> bool:
        return hmac.compare_digest(hmac.digest(secret, signed, "sha256"), signature)

    return Signers(algorithm="HS256", secret=check)


def _parse(data: bytes, path: Path, algorithm: Algorithm) -> Signers:
    kty, names = _FITTING[algorithm]
    try:
        found = msgspec.json.decode(data, type=_KeySet).keys
    except _UNREADABLE as error:
        # What msgspec says has names of fields and types, but no values.
        why = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise _bad(path, f"it is no JSON Web Key Set: {why}") from None
    if len(found) > _KEYS_MAX:
        raise _bad(path, f"it has {len(found)} keys, over {_KEYS_MAX}")
    keys: dict[str, Checker] = {}
    for number, jwk in enumerate(found, 1):
        if jwk.kty != kty or jwk.use not in (None, "sig") or jwk.alg not in (None, *names):
            continue
        if not jwk.kid:
            raise _bad(path, f"key {number} has no kid, by which tokens name it")
        if jwk.kid in keys:
            raise _bad(path, f"key {number} has the kid of another")
        try:
            keys[jwk.kid] = _checker(jwk, algorithm)
        except ValueError as error:
            raise _bad(path, f"key {number} can't be used: {error}") from None
    if not keys:
        raise _bad(path, f"it has no key for {algorithm}")
    has_private = any(jwk.d is not None for jwk in found)
    return Signers(algorithm=algorithm, keys=keys, has_private=has_private)


def _bad(path: Path, text: str) -> Misconfigured:
    return Misconfigured(
        f"the key set {path}: {text}", hint="take the set that the issuer publishes", key="key_set_file"
    )


def _checker(jwk: _Jwk, algorithm: Algorithm) -> Checker:
    """What checks signatures of a key; only its public part is looked at."""
    return _rsa_checker(jwk) if algorithm == "RS256" else _ed25519_checker(jwk)


def _rsa_checker(jwk: _Jwk) -> Checker:
    n, e = (int.from_bytes(_bytes(text)) for text in (jwk.n, jwk.e))
    if not _RSA_BITS_MIN <= n.bit_length() <= _RSA_BITS_MAX:
        raise ValueError(f"it has {n.bit_length()} bits, not {_RSA_BITS_MIN} to {_RSA_BITS_MAX}")
    key: RSAPublicKey = RSAPublicNumbers(e, n).public_key()

    def check(signed: bytes, signature: bytes) -> bool:
        try:
            key.verify(signature, signed, PKCS1v15(), SHA256())
        except InvalidSignature:
            return False
        return True

    return check


def _ed25519_checker(jwk: _Jwk) -> Checker:
    if jwk.crv != "Ed25519":
        raise ValueError("its curve isn't Ed25519")
    key = Ed25519PublicKey.from_public_bytes(_bytes(jwk.x))

    def check(signed: bytes, signature: bytes) -> bool:
        try:
            key.verify(signature, signed)
        except InvalidSignature:
            return False
        return True

    return check


def _bytes(text: str) -> bytes:
    return urlsafe_b64decode(text.rstrip("=") + "=" * (-len(text.rstrip("=")) % 4))
