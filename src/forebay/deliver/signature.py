"""Signatures of Standard Webhooks: three headers by which a receiver knows who sent a request, and when.

The signature is an HMAC-SHA256 over `id.timestamp.body`, in base64, with the version `v1` ahead of it. Each
live secret makes one, separated by spaces: while a secret is replaced, both the old and the new one verify.
The timestamp is that of the attempt, since receivers refuse old ones; the id is the same in all attempts.
"""

from __future__ import annotations

import binascii
import hmac
from base64 import b64decode, b64encode
from collections.abc import Sequence
from typing import Final

from forebay.deliver.values import Headers
from forebay.model import Misconfigured

__all__ = ["SIGNATURE_HEADERS", "parse_secret", "signature_headers"]

SIGNATURE_HEADERS: Final = frozenset((b"webhook-id", b"webhook-timestamp", b"webhook-signature"))

_PREFIX: Final = "whsec_"
_BYTES_LEAST: Final = 24
_BYTES_MOST: Final = 64
_HINT: Final = "write whsec_ and 24 to 64 random bytes in base64; `openssl rand -base64 32` makes them"


def parse_secret(text: str) -> bytes:
    """The key in a secret such as `whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw`."""
    if not text.startswith(_PREFIX):
        raise Misconfigured("a signing secret doesn't begin with whsec_", hint=_HINT)
    try:
        key = b64decode(text.removeprefix(_PREFIX), validate=True)
    except binascii.Error:
        raise Misconfigured("a signing secret isn't base64", hint=_HINT) from None
    if not _BYTES_LEAST <= len(key) <= _BYTES_MOST:
        raise Misconfigured(f"a signing secret has {len(key)} bytes", hint=_HINT)
    return key


def signature_headers(keys: Sequence[bytes], id: str, timestamp: int, body: bytes) -> Headers:
    """The headers of one attempt; `timestamp` in seconds since 1970."""
    name, time = id.encode("ascii"), b"%d" % timestamp
    signed = b".".join((name, time, body))
    signatures = b" ".join(b"v1," + b64encode(hmac.digest(key, signed, "sha256")) for key in keys)
    return (
        (b"webhook-id", name),
        (b"webhook-timestamp", time),
        (b"webhook-signature", signatures),
    )
