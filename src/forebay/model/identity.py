"""Block ids: UUIDv7 (RFC 9562) as 16 bytes, minted before the first attempt to write a block.

The 12 bits after the version hold the fraction of the millisecond, so a mint has 4,096 ticks a
millisecond; the last 62 bits are random.

Invariants: the ids of one mint strictly increase, across threads and when the clock goes back; a
mint that runs out of ticks borrows from the next millisecond.
"""

import os
import re
import sys
import threading
from array import array
from typing import Final, NewType, cast

from forebay.model.clock import Clock, SystemClock
from forebay.model.errors import Rejected

BlockId = NewType("BlockId", bytes)

ID_BYTES: Final = 16
_VERSION: Final = 7
_NIL: Final = bytes(ID_BYTES)
_UUID: Final = re.compile(r"[0-9a-fA-F]{32}|[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_ID_HINT: Final = "give a UUID such as 01976d3e-7a10-7c3b-9f21-5d0c8e4b6a12"
_WORDS: Final = 256
"""Random words that are bought at once."""
_VARIANT: Final = bytes(byte & 0x3F | 0x80 for byte in range(256))
"""Translation of a random byte to one that starts with the variant bits of RFC 9562."""


class IdMint:
    """Makes block ids from a clock; safe to share between threads."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._next = 0
        self._chance = _Chance()

    def mint(self) -> BlockId:
        """Make one id."""
        tick = self._reserve(1)
        high = _high(tick).to_bytes(8, "big")
        return BlockId(high + self._chance.word())

    def mint_many(self, n: int) -> list[BlockId]:
        """Make `n` ids in ascending order, at a fraction of the price of `n` calls."""
        first = self._reserve(n)
        low = bytearray(os.urandom(8 * n))
        low[0::8] = low[0::8].translate(_VARIANT)
        words = array("Q", bytes(ID_BYTES * n))
        words[0::2] = _highs(first, n)
        words[1::2] = array("Q", bytes(low))
        joined = words.tobytes()
        ids = [joined[at : at + ID_BYTES] for at in range(0, len(joined), ID_BYTES)]
        return cast("list[BlockId]", ids)

    def _reserve(self, n: int) -> int:
        """Take `n` ticks that nobody had before, and return the first."""
        now = max(self._clock.now(), 0)
        tick = (now // 1000) << 12 | (now % 1000 << 12) // 1000
        with self._lock:
            first = max(tick, self._next)
            self._next = first + n
        return first


class _Chance:
    """Random words, bought in bulk: a system call lets other threads cut in. None outlives a fork."""

    def __init__(self) -> None:
        self._words: list[bytes] = []
        os.register_at_fork(after_in_child=self._words.clear)

    def word(self) -> bytes:
        """Eight random bytes that begin with the variant bits."""
        while True:
            try:
                return self._words.pop()
            except IndexError:
                low = bytearray(os.urandom(8 * _WORDS))
                low[0::8] = low[0::8].translate(_VARIANT)
                self._words.extend(bytes(low[at : at + 8]) for at in range(0, len(low), 8))


def _high(tick: int) -> int:
    """Return the first 8 bytes of the id of a tick: milliseconds, version, fraction."""
    return tick >> 12 << 16 | _VERSION << 12 | tick & 0xFFF


def _highs(first: int, n: int) -> "array[int]":
    """Return the first 8 bytes of `n` ids in a row, in network order: one range per millisecond."""
    highs = array("Q")
    while n:
        room = min(n, 0x1000 - (first & 0xFFF))
        start = _high(first)
        highs.extend(range(start, start + room))
        first += room
        n -= room
    if sys.byteorder == "little":
        highs.byteswap()
    return highs


_mint: Final = IdMint(SystemClock())


def mint() -> BlockId:
    """Make one id from the machine's clock."""
    return _mint.mint()


def mint_many(n: int) -> list[BlockId]:
    """Make `n` ids in ascending order from the machine's clock."""
    return _mint.mint_many(n)


def id_time(block_id: bytes) -> int | None:
    """Return when a UUIDv7 was minted, in microseconds; None for other versions.

    It is exact to the millisecond only, as other mints fill the bits below with noise.
    """
    if block_id[6] >> 4 != _VERSION or block_id[8] != _VARIANT[block_id[8]]:
        return None
    return int.from_bytes(block_id[:6], "big") * 1000


def parse_id(value: str | bytes) -> BlockId:
    """Read a UUID of any version: 16 bytes, or hex digits with or without hyphens.

    The nil UUID is rejected: it is what a forgotten id looks like, and two pushes under one id are
    one push.
    """
    parsed = value if isinstance(value, bytes) else _from_text(value)
    if len(parsed) != ID_BYTES:
        raise Rejected(f"block id is {len(parsed)} bytes long, not {ID_BYTES}", hint=_ID_HINT)
    if parsed == _NIL:
        raise Rejected("block id is the nil UUID", hint=_ID_HINT)
    return BlockId(parsed)


def _from_text(text: str) -> bytes:
    if _UUID.fullmatch(text) is None:
        raise Rejected(f"block id {text[:64]!r} is not a UUID", hint=_ID_HINT)
    return bytes.fromhex(text.replace("-", ""))


def format_id(block_id: bytes) -> str:
    """Write a block id as hex digits in five groups."""
    if len(block_id) != ID_BYTES:
        raise Rejected(f"block id is {len(block_id)} bytes long, not {ID_BYTES}", hint=_ID_HINT)
    digits = block_id.hex()
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"
