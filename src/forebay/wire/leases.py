"""A lease as text: opaque to whoever holds it, and all that is needed to settle under it.

It is no secret and no signature: whoever may take from a queue may settle there. What comes back is checked
like any other input.
"""

from __future__ import annotations

import binascii
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Final

import msgspec

from forebay.model import BLOCK_MESSAGES_CEILING, MESSAGE_ID_MAX, Rejected, queue_of
from forebay.warm.values import Lease

LEASE_CHARACTERS_MAX: Final = 1_024
_EPOCH_CHARACTERS_MAX: Final = 255
_NUMBER_MAX: Final = (1 << 63) - 1
_HINT: Final = "give it back as it came with the task"

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
        lease = _decoder.decode(urlsafe_b64decode(text + "=" * (-len(text) % 4)))
    except (binascii.Error, msgspec.MsgspecError, ValueError):
        raise _bad_lease(text) from None
    if not _is_possible(lease):
        raise _bad_lease(text)
    return lease


def check_lease(lease: Lease) -> Lease:
    """A lease that came as it is, if the store could have made it."""
    if not _is_possible(lease):
        raise Rejected("this is no lease", hint=_HINT)
    return lease


def _is_possible(lease: Lease) -> bool:
    """Whether all numbers are within their bounds: room would be made for others before they fail."""
    numbers = (lease.group, lease.number, lease.claim, lease.attempts, lease.start_time)
    last = lease.first + lease.count - 1
    return (
        all(0 <= number <= _NUMBER_MAX for number in numbers)
        and 1 <= lease.count <= BLOCK_MESSAGES_CEILING
        and 0 < lease.first <= last <= MESSAGE_ID_MAX
        and queue_of(lease.first) == queue_of(last) > 0
        and len(lease.epoch) <= _EPOCH_CHARACTERS_MAX
        and lease.epoch.isprintable()
    )


def _bad_lease(text: str) -> Rejected:
    return Rejected(f"{text[:32]!r} is no lease", hint=_HINT)
