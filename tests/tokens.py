"""Signers of JSON Web Tokens for tests: each makes tokens, and says how a server checks them."""

import hmac
import json
from base64 import urlsafe_b64encode
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, Final

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, generate_private_key
from cryptography.hazmat.primitives.hashes import SHA256

__all__ = ["SECRET", "Signer", "ed25519", "part", "rsa", "sharing", "write_key_set"]

SECRET: Final = "a secret that is known to tests only, and to nobody else"


def part(value: Any) -> str:
    """A part of a token: a value as JSON, or bytes as they are."""
    data = value if isinstance(value, bytes) else json.dumps(value).encode()
    return urlsafe_b64encode(data).rstrip(b"=").decode()


class Signer:
    """Somebody who signs. `jwk` is the public key, where there is one."""

    def __init__(self, algorithm: str, sign: Callable[[bytes], bytes], jwk: dict[str, Any] | None) -> None:
        self.algorithm = algorithm
        self.sign = sign
        self.jwk = jwk

    def token(self, claims: Any, **header: Any) -> str:
        """A token; names in its header may be overridden, or left out with None."""
        kid = None if self.jwk is None else self.jwk["kid"]
        said = {"alg": self.algorithm, "typ": "JWT", "kid": kid, **header}
        signed = f"{part({name: text for name, text in said.items() if text is not None})}.{part(claims)}"
        return f"{signed}.{part(self.sign(signed.encode()))}"

    def headers(self, claims: Any, **header: Any) -> dict[str, str]:
        """What goes with a request."""
        return {"Authorization": f"Bearer {self.token(claims, **header)}"}


def sharing(secret: str | bytes = SECRET) -> Signer:
    """Somebody who has the server's secret."""
    key = secret.encode() if isinstance(secret, str) else secret
    return Signer("HS256", lambda signed: hmac.digest(key, signed, "sha256"), None)


def rsa(kid: str = "rsa") -> Signer:
    """Somebody with an RSA key, the same each time for one kid."""
    key = _rsa_key(kid)
    numbers = key.public_key().public_numbers()
    n, e = (part(number.to_bytes((number.bit_length() + 7) // 8)) for number in (numbers.n, numbers.e))
    jwk = {"kty": "RSA", "kid": kid, "n": n, "e": e}
    return Signer("RS256", lambda signed: key.sign(signed, PKCS1v15(), SHA256()), jwk)


@cache
def _rsa_key(_: str) -> RSAPrivateKey:
    return generate_private_key(65_537, 2_048)


def ed25519(kid: str = "ed") -> Signer:
    """Somebody with a new Ed25519 key."""
    key = Ed25519PrivateKey.generate()
    jwk = {"kty": "OKP", "crv": "Ed25519", "kid": kid, "x": part(key.public_key().public_bytes_raw())}
    return Signer("EdDSA", key.sign, jwk)


def write_key_set(path: Path, *signers: Signer) -> Path:
    """Put a key set where it is read, at once."""
    fresh = path.with_name(f"{path.name}.new")
    fresh.write_text(json.dumps({"keys": [signer.jwk for signer in signers]}), encoding="utf-8")
    return fresh.replace(path)
