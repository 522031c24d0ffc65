"""Bodies of pushes and transactions that aren't JSON, as newer clients write them: pure functions.

A push, byte by byte; all numbers are little-endian::

    "QPB1" | u8 flags | [u32 length of what follows, unpacked, with flag 1] | groups
    groups: u32 count, each: u16 length, queue | u16 length, partition | u32 count of messages | messages
    messages: each [u16 length, transaction id, with flag 4] | u32 length, payload
    or, with flag 8: u32 length | a zstd frame of frames:
              u32 length of the rest | u8 0 | 16 bytes id | u16 length, transaction id | payload

Flag 1: the groups are a zstd frame. Flag 2: the answer has numbers only. A transaction is
`"QTB1" | u8 flags | u32 length, JSON of the rest | groups`, as with flag 8. Invariants: what is unpacked is
bounded before it is; a body that isn't whole, or whose payloads aren't JSON, is refused. The id of a frame is
the client's own, and not kept: a message without a transaction id has it for one.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

import zstandard
from msgspec import Raw

from forebay.api.queen.messages import PushItem
from forebay.model import Rejected, TooLarge
from forebay.wire.forms import is_json

PUSH: Final = b"QPB1"
TRANSACTION: Final = b"QTB1"
_PACKED: Final = 1
_COUNTS: Final = 2
_NAMED: Final = 4
_FRAMES: Final = 8
_ID_BYTES: Final = 16
_U16: Final = struct.Struct("<H")
_U32: Final = struct.Struct("<I")


class Framed(NamedTuple):
    """What such a body says."""

    head: bytes
    """The JSON of a transaction, without its pushes; empty for a push."""
    items: list[PushItem]
    counts: bool
    """Whether numbers are enough for an answer."""
    unpacked: int
    """Bytes that were unpacked."""


class _Reader:
    """Reads numbers and texts from bytes; Rejected past their end."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def take(self, length: int) -> bytes:
        end = self._at + length
        if end > len(self._data):
            raise _broken("it ends too early")
        piece, self._at = self._data[self._at : end], end
        return piece

    def byte(self) -> int:
        return self.take(1)[0]

    def short(self) -> int:
        found: int = _U16.unpack(self.take(_U16.size))[0]
        return found

    def long(self) -> int:
        found: int = _U32.unpack(self.take(_U32.size))[0]
        return found

    def text(self) -> str:
        try:
            return self.take(self.short()).decode()
        except UnicodeDecodeError:
            raise _broken("a name is not UTF-8") from None

    def rest(self) -> bytes:
        return self.take(len(self._data) - self._at)

    @property
    def is_at_end(self) -> bool:
        return self._at == len(self._data)


class _Unpacking:
    """Undoes zstd, up to a bound for all frames together."""

    def __init__(self, bytes_max: int) -> None:
        self._left = bytes_max
        self.count = 0

    def frame(self, data: bytes) -> bytes:
        try:
            size = zstandard.frame_content_size(data)
            if size > self._left:
                raise TooLarge(f"a zstd frame of {size} bytes is too large", hint="push less at once")
            if size < 0:
                raise _broken("a zstd frame doesn't say how large it is")
            found = zstandard.ZstdDecompressor().decompress(data) if size else b""
        except zstandard.ZstdError as error:
            raise _broken(str(error)) from None
        self._left -= size
        self.count += size
        return found


def is_framed(body: bytes) -> bool:
    """Whether a body is such a one."""
    return body.startswith((PUSH, TRANSACTION))


def framed_push(body: bytes, *, bytes_max: int, items_max: int) -> Framed:
    """What a push says; Rejected or TooLarge say what is wrong."""
    reader, unpacking = _Reader(body[len(PUSH) :]), _Unpacking(bytes_max)
    flags = reader.byte()
    if flags & ~(_PACKED | _COUNTS | _NAMED | _FRAMES):
        raise _broken(f"unknown flags {flags}")
    if flags & _PACKED:
        length, data = reader.long(), unpacking.frame(reader.rest())
        if len(data) != length:
            raise _broken(f"it has {len(data)} bytes and says {length}")
        reader = _Reader(data)
    items = list(_groups(reader, unpacking, flags, items_max))
    return Framed(b"", items, bool(flags & _COUNTS), unpacking.count)


def framed_transaction(body: bytes, *, bytes_max: int, items_max: int) -> Framed:
    """What a transaction says; Rejected or TooLarge say what is wrong."""
    reader, unpacking = _Reader(body[len(TRANSACTION) :]), _Unpacking(bytes_max)
    flags = reader.byte()
    if flags & ~_COUNTS:
        raise _broken(f"unknown flags {flags}")
    head = reader.take(reader.long())
    items = list(_groups(reader, unpacking, _FRAMES, items_max))
    return Framed(head, items, bool(flags & _COUNTS), unpacking.count)


def _groups(reader: _Reader, unpacking: _Unpacking, flags: int, items_max: int) -> Iterator[PushItem]:
    total = 0
    for _ in range(reader.long()):
        queue, partition, count = reader.text(), reader.text(), reader.long()
        total += count
        if total > items_max:
            raise Rejected(f"over {items_max} items are too many", hint="push fewer at once")
        if flags & _FRAMES:
            frames = _Reader(unpacking.frame(reader.take(reader.long())))
            for _ in range(count):
                yield _item(queue, partition, *_frame(_Reader(frames.take(frames.long()))))
            _check_end(frames)
            continue
        for _ in range(count):
            transaction = reader.text() if flags & _NAMED else ""
            yield _item(queue, partition, transaction, reader.take(reader.long()))
    _check_end(reader)


def _frame(reader: _Reader) -> tuple[str, bytes]:
    if flags := reader.byte():
        raise _broken(f"a frame has the flags {flags}")
    reader.take(_ID_BYTES)
    return reader.text(), reader.rest()


def _item(queue: str, partition: str, transaction: str, payload: bytes) -> PushItem:
    if not is_json(payload):
        raise _broken("a payload is not JSON")
    return PushItem(queue, partition, Raw(payload), transaction or None)


def _check_end(reader: _Reader) -> None:
    if not reader.is_at_end:
        raise _broken("something follows that nobody announced")


def _broken(text: str) -> Rejected:
    return Rejected(
        f"the binary body can't be read: {text}", hint="push JSON, or look at the client's version"
    )
