"""The `iproto` codec: fields in order, little-endian, without a header.

::

    int, int64        8 bytes
    bool              1 byte, 0 or 1
    string, []byte    u32 length, then the bytes
    []int, []int64    u32 count, then 8 bytes each

A row is cut in steps: fixed values, then the length of what follows, in one struct; then what follows.

Invariants: decoding takes every byte, and gives what was encoded; a length is checked before it is believed.
"""

import struct
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from forebay.contract.errors import Undecodable
from forebay.contract.values import Field, FieldType

__all__ = ["IprotoRows"]

_FIXED: Final[dict[FieldType, str]] = {"int": "q", "int64": "q", "bool": "B"}
_WORD: Final = 8


class _Step(NamedTuple):
    """Fixed fields, and one of any length behind them; a tuple, since it is unpacked for every row."""

    pack: Callable[..., bytes]
    unpack: Callable[[bytes, int], tuple[Any, ...]]
    size: int
    first: int
    last: int
    """The index of the field of any length, or else of the one after the fixed fields."""
    tail: FieldType | None
    """The type of the field of any length."""


class IprotoRows:
    """Rows of these fields, as bytes."""

    def __init__(self, fields: Sequence[Field]) -> None:
        self._fields = tuple(fields)
        self._steps = tuple(_step(self._fields[first:end], first) for first, end in _cuts(self._fields))
        self._switches = tuple(index for index, field in enumerate(fields) if field.type == "bool")

    def encode(self, values: Sequence[Any]) -> bytes:
        """The bytes of a row whose values were checked."""
        pieces: list[bytes] = []
        for pack, _, _, first, last, tail in self._steps:
            if tail is None:
                pieces.append(pack(*values[first:last]))
                continue
            value = values[last]
            count = len(value)
            if tail == "string":
                value = value.encode()
                count = len(value)
            elif tail != "[]byte":
                value = struct.pack(f"<{count}q", *value)
            pieces.append(pack(*values[first:last], count) if first < last else pack(count))
            pieces.append(value)
        return b"".join(pieces)

    def decode(self, data: bytes) -> tuple[Any, ...]:
        """The values of a row."""
        values: list[Any] = []
        at, length = 0, len(data)
        for _, unpack, size, _, last, tail in self._steps:
            if at + size > length:
                raise self._short(len(values), at, length)
            values += unpack(data, at)
            at += size
            if tail is not None:
                count = values.pop()
                end = at + (count if tail in ("string", "[]byte") else count * _WORD)
                if end > length:
                    raise self._long(last, count, length - at)
                body = data[at:end]
                if tail == "string":
                    values.append(self._text(last, body))
                else:
                    values.append(body if tail == "[]byte" else struct.unpack(f"<{count}q", body))
                at = end
        if at != length:
            raise Undecodable(f"{length - at} bytes are left over after the last field")
        for index in self._switches:
            if values[index] > 1:
                raise Undecodable(f"{self._named(index)} is {values[index]}, neither 0 nor 1")
            values[index] = values[index] == 1
        return tuple(values)

    def _text(self, index: int, body: bytes) -> str:
        try:
            return body.decode()
        except UnicodeDecodeError as error:
            raise Undecodable(f"{self._named(index)} is not UTF-8 at byte {error.start}") from None

    def _short(self, index: int, at: int, length: int) -> Undecodable:
        """Name the field at which the bytes end."""
        while at + (size := struct.calcsize("<" + _letter(self._fields[index]))) <= length:
            at += size
            index += 1
        return Undecodable(f"the bytes end within {self._named(index)}: {length - at} of {size} are there")

    def _long(self, index: int, count: int, left: int) -> Undecodable:
        what = "bytes" if self._fields[index].type in ("string", "[]byte") else "numbers"
        return Undecodable(f"{self._named(index)} should have {count} {what}, and {left} bytes are left")

    def _named(self, index: int) -> str:
        return f"field '{self._fields[index].name}' ({self._fields[index].type})"


def _step(fields: Sequence[Field], first: int) -> _Step:
    layout = struct.Struct("<" + "".join(map(_letter, fields)))
    tail = None if fields[-1].type in _FIXED else fields[-1].type
    last = first + len(fields) - (tail is not None)
    return _Step(layout.pack, layout.unpack_from, layout.size, first, last, tail)


def _letter(field: Field) -> str:
    """How `struct` calls a fixed value, or the length of another."""
    return _FIXED.get(field.type, "I")


def _cuts(fields: Sequence[Field]) -> list[tuple[int, int]]:
    ends = [index + 1 for index, field in enumerate(fields) if field.type not in _FIXED]
    if not ends or ends[-1] != len(fields):
        ends.append(len(fields))
    return list(zip([0, *ends], ends, strict=False))
