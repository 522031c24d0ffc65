"""Protobuf at the wire level: a message as its top-level records, halved without a schema.

A record is a tag and a value. Records of wire type 2 (bytes, strings, messages) are divided, since in what is
sent here they repeat; scalars are of the whole message, and go into both halves.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from forebay.model import Rejected

__all__ = ["Record", "halves", "read_records"]

_VARINT_BYTES_MAX: Final = 10
_VARINT: Final = 0
_FIXED64: Final = 1
_BYTES: Final = 2
_FIXED32: Final = 5
_MORE: Final = 0x80
_TAG_SHIFT: Final = 3


class Record(msgspec.Struct, frozen=True, gc=False):
    """One top-level record: its field, its wire type, where it begins, where its value begins, its end."""

    field: int
    kind: int
    begin: int
    value: int
    end: int


def read_records(body: bytes) -> list[Record]:
    """Every top-level record; Rejected when the body isn't protobuf."""
    return list(_records(body))


def halves(
    body: bytes, *, shared: frozenset[int] = frozenset(), nested: tuple[int, ...] = ()
) -> tuple[bytes, bytes] | None:
    """Two messages that hold the records of one, by size about half each; None with less than two to divide.

    `shared` are fields that both halves need. `nested` are fields to divide inside of a record that is alone,
    one for each level down; the other fields at that level are needed by both halves.
    """
    records = read_records(body)
    divided = [record for record in records if record.kind == _BYTES and record.field not in shared]
    if len(divided) > 1:
        return _divide(body, records, divided)
    if not divided or not nested:
        return None
    return _descend(body, divided[0], nested)


def _divide(body: bytes, records: list[Record], divided: list[Record]) -> tuple[bytes, bytes]:
    last_of_first = _middle(divided)
    dividing = {record.begin for record in divided}
    first, second = bytearray(), bytearray()
    for record in records:
        piece = body[record.begin : record.end]
        if record.begin not in dividing or record.begin <= last_of_first:
            first += piece
        if record.begin not in dividing or record.begin > last_of_first:
            second += piece
    return bytes(first), bytes(second)


def _middle(divided: list[Record]) -> int:
    """Where the last record of the first half begins; each half has one at least."""
    size, half = 0, sum(record.end - record.begin for record in divided) / 2
    for record in divided[:-1]:
        size += record.end - record.begin
        if size >= half:
            return record.begin
    return divided[-2].begin


def _descend(body: bytes, alone: Record, nested: tuple[int, ...]) -> tuple[bytes, bytes] | None:
    inner = body[alone.value : alone.end]
    others = frozenset(record.field for record in read_records(inner)) - {nested[0]}
    parts = halves(inner, shared=others, nested=nested[1:])
    if parts is None:
        return None
    tag = _varint((alone.field << _TAG_SHIFT) | _BYTES)
    before, after = body[: alone.begin], body[alone.end :]
    first, second = (before + tag + _varint(len(part)) + part + after for part in parts)
    return first, second


def _records(body: bytes) -> Iterator[Record]:
    place, size = 0, len(body)
    while place < size:
        begin = place
        tag, place = _read_varint(body, place)
        field, kind = tag >> _TAG_SHIFT, tag & 7
        if kind == _BYTES:
            length, place = _read_varint(body, place)
            end = place + length
        elif kind == _VARINT:
            _, end = _read_varint(body, place)
        elif kind in (_FIXED32, _FIXED64):
            end = place + (4 if kind == _FIXED32 else 8)
        else:
            raise Rejected(f"the body isn't protobuf: wire type {kind} at byte {begin}")
        if field == 0 or end > size:
            raise Rejected(f"the body isn't protobuf: no whole record at byte {begin}")
        yield Record(field, kind, begin, place, end)
        place = end


def _read_varint(body: bytes, place: int) -> tuple[int, int]:
    value = 0
    for count, byte in enumerate(body[place : place + _VARINT_BYTES_MAX]):
        value |= (byte & 0x7F) << (7 * count)
        if byte < _MORE:
            return value, place + count + 1
    raise Rejected(f"the body isn't protobuf: no number at byte {place}")


def _varint(value: int) -> bytes:
    out = bytearray()
    while value >= _MORE:
        out.append((value & 0x7F) | _MORE)
        value >>= 7
    out.append(value)
    return bytes(out)
