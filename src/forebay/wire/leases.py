"""A lease as text: opaque to whoever holds it, and all that is needed to settle under it.

It is no secret and no signature: whoever may take from a queue may settle there. What comes back is checked
like any other input.
"""

from __future__ import annotations

import binascii
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Final

import msgspec

from forebay.model import Rejected
from forebay.warm.values import Lease

LEASE_CHARACTERS_MAX: Final = 1_024

_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(Lease)


def lease_text(lease: Lease) -> str:
    """Write a lease as text."""
    return urlsafe_b64encode(_encoder.encode(lease)).rstrip(b"=").decode()


def parse_lease(text: str) -> Lease:
    """Read a lease from text."""
    if len(text) > LEASE_CHARACTERS_MAX:
        raise _bad_lease(text)
    try:
        return _decoder.decode(urlsafe_b64decode(text + "=" * (-len(text) % 4)))
    except (binascii.Error, msgspec.MsgspecError, ValueError):
        raise _bad_lease(text) from None


def _bad_lease(text: str) -> Rejected:
    return Rejected(f"{text[:32]!r} is no lease", hint="give it back as it came with the task")
