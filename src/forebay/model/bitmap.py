"""Sets of messages of one block as bitmaps: message `i` is bit `i % 8` of byte `i // 8`.

Invariants: a bitmap over `n` messages is `(n + 7) // 8` bytes long and its spare bits are 0; both
sides of an operation are over the same `n`. Everything runs on whole integers, never bit by bit.
"""

from collections.abc import Iterable
from itertools import compress
from typing import Final

_TO_DIGITS: Final = bytes([48, 49]) + bytes(254)
"""Translation of flags 0 and 1 to the digits "0" and "1"."""
_TO_FLAGS: Final = bytes(49) + b"\x01" + bytes(206)
"""Translation of the digits "0" and "1" to flags 0 and 1."""


def empty(n: int) -> bytes:
    """Return no message of `n`."""
    return bytes((n + 7) // 8)


def full(n: int) -> bytes:
    """Return all of `n` messages."""
    return _write((1 << n) - 1, (n + 7) // 8)


def of(indexes: Iterable[int], n: int) -> bytes:
    """Return the bitmap of these messages of `n`, in any order, repeats allowed."""
    if isinstance(indexes, range) and indexes.step == 1 and 0 <= indexes.start <= indexes.stop <= n:
        return _write(((1 << len(indexes)) - 1) << indexes.start, (n + 7) // 8)
    flags = bytearray(n)
    for index in indexes:
        if index < 0:
            raise IndexError(f"index {index} is negative")
        flags[index] = 1
    flags.reverse()
    return _write(int(flags.translate(_TO_DIGITS), 2) if n else 0, (n + 7) // 8)


def union(left: bytes, right: bytes) -> bytes:
    """Return the messages in either."""
    return _write(_read(left) | _read(right), _length(left, right))


def minus(left: bytes, right: bytes) -> bytes:
    """Return the messages in `left` that are not in `right`."""
    return _write(_read(left) & ~_read(right), _length(left, right))


def overlap(left: bytes, right: bytes) -> bytes:
    """Return the messages in both, as a bitmap."""
    return _write(_read(left) & _read(right), _length(left, right))


def count(bits: bytes) -> int:
    """Return how many messages are in it."""
    return _read(bits).bit_count()


def indexes(bits: bytes) -> list[int]:
    """Return the messages in it, ascending."""
    flags = bin(_read(bits))[:1:-1].encode().translate(_TO_FLAGS)
    return list(compress(range(len(flags)), flags))


def is_full(bits: bytes, n: int) -> bool:
    """Tell whether all of `n` messages are in it."""
    return _read(bits).bit_count() == n


def _read(bits: bytes) -> int:
    return int.from_bytes(bits, "little")


def _write(bits: int, length: int) -> bytes:
    return bits.to_bytes(length, "little")


def _length(left: bytes, right: bytes) -> int:
    if left and right and len(left) != len(right):
        raise AssertionError(f"bitmaps of {len(left)} and {len(right)} bytes are not over the same messages")
    return max(len(left), len(right))
