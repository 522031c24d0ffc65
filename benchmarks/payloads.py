"""What the benchmarks push: JSON events of about 200 or 250 bytes, the same in every run."""

import os
import random
from collections.abc import Sequence
from hashlib import blake2b
from typing import Final

import msgspec

from forebay.model import Message

BATCH: Final = 100
"""Messages per push."""
PUSHERS: Final = 16
"""Pushers at the same time."""

_SEED: Final = 20_260
_BATCHES: Final = 256
_ID_BYTES: Final = 16
_EVENTS: Final = ("order.created", "order.paid", "order.shipped", "cart.updated", "page.viewed")
_CITIES: Final = ("Lyon", "Graz", "Turin", "Ghent", "Porto", "Kraków", "Malmö", "Brno")


class Batch(msgspec.Struct, frozen=True):
    """One push, in the shapes that the contestants take."""

    messages: list[Message]
    payloads: list[bytes]
    texts: list[str]


def batches(count: int = _BATCHES) -> Sequence[Batch]:
    """Give different pushes, to be used in turn."""
    chance = random.Random(_SEED)
    return [_batch([_event(chance) for _ in range(BATCH)]) for _ in range(count)]


def large_events(count: int) -> list[bytes]:
    """Give different events of about 250 bytes, for what is moved in bulk."""
    chance = random.Random(_SEED)
    return [_event(chance, trace=f"{chance.getrandbits(160):040x}") for _ in range(count)]


def fresh_ids() -> list[str]:
    """Give the transaction ids of one push: random, like most that clients bring."""
    digits = os.urandom(BATCH * _ID_BYTES).hex()
    width = 2 * _ID_BYTES
    return [digits[start : start + width] for start in range(0, BATCH * width, width)]


def known_id(number: int) -> str:
    """Give the transaction id of an event by its number: as good as random, and the same in every run."""
    return blake2b(number.to_bytes(8), digest_size=_ID_BYTES).hexdigest()


def _batch(payloads: list[bytes]) -> Batch:
    messages = [Message(payload) for payload in payloads]
    return Batch(messages, payloads, [payload.decode() for payload in payloads])


def _event(chance: random.Random, **more: str) -> bytes:
    event = {
        "event": chance.choice(_EVENTS),
        "id": f"{chance.getrandbits(64):016x}",
        "customer": chance.randrange(10_000_000),
        "amount": round(chance.uniform(1, 900), 2),
        "currency": "EUR",
        "city": chance.choice(_CITIES),
        "session": f"{chance.getrandbits(96):024x}",
        "items": [chance.randrange(100_000) for _ in range(3)],
        "at": 1_800_000_000_000 + chance.randrange(86_400_000),
        **more,
    }
    return msgspec.json.encode(event)
