"""The UUIDs that Queen's clients see, where we have numbers and names.

Invariants: the id of a message is its number, written as a UUID, so that it sorts by it and can be read back;
the id of a partition or of a queue is made of the queue's number and the partition's name, the same on
every server; the id of a lease says when it was given out.
"""

from __future__ import annotations

from functools import lru_cache
from hashlib import blake2b
from typing import Final
from uuid import UUID

from forebay.model import Rejected, mint, parse_id
from forebay.model.identity import format_id, id_time

_CUSTOM: Final = 0x8
"""The version of UUIDs whose bits are the maker's own business (RFC 9562)."""
_VARIANT: Final = 0b10
_PARTITIONS_REMEMBERED: Final = 100_000


def message_uuid(message_id: int) -> str:
    """The id of a message: 48 bits of its number, the version, 12 more, the variant, the last four."""
    high, middle, low = message_id >> 16, message_id >> 4 & 0xFFF, message_id & 0xF
    number = high << 80 | _CUSTOM << 76 | middle << 64 | _VARIANT << 62 | low << 58
    return str(UUID(int=number))


def message_number(text: str) -> int | None:
    """The number of a message by its id; None when it is none of ours."""
    try:
        number = UUID(text).int
    except ValueError:
        return None
    found = number >> 80 << 16 | (number >> 64 & 0xFFF) << 4 | number >> 58 & 0xF
    return found if message_uuid(found) == text.lower() else None


@lru_cache(_PARTITIONS_REMEMBERED)
def partition_uuid(queue: int, partition: str) -> str:
    """The id of a partition."""
    return _digest(f"partition:{queue}:{partition}")


def queue_uuid(queue: int) -> str:
    """The id of a queue."""
    return _digest(f"queue:{queue}")


def named_uuid(*parts: str) -> str:
    """An id for what has a name of several parts."""
    return _digest("\0".join(parts))


def fresh_uuid() -> str:
    """A new id that says when it was made."""
    return format_id(mint())


def uuid_time(text: str) -> int | None:
    """When such an id was made (µs, to the millisecond); None when it doesn't say."""
    try:
        return id_time(parse_id(text))
    except Rejected:
        return None


def _digest(text: str) -> str:
    number = int.from_bytes(blake2b(text.encode(errors="surrogatepass"), digest_size=16).digest())
    number &= ~(0xF << 76 | 0b11 << 62)
    return str(UUID(int=number | _CUSTOM << 76 | _VARIANT << 62))
