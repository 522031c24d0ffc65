"""Stored blocks as Arrow wants them: no object for a transaction id, or for the partition of a message.

In most blocks the ids are as long as each other, and the partitions are few. In msgpack such columns are a
table of bytes, which is taken as it is. Invariants: what is taken was found to be such a table, byte by byte;
anything else is decoded as everywhere, so that a block reads the same either way, or is Corrupt.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa

from forebay.model import Block, Corrupt, Headers, RawBlock, decode_raw

_NIL: Final = b"\xc0"
_SMALL_MAX: Final = 0x7F
"""The largest number that msgpack writes as a byte of the same value; so are ASCII's."""
_ARRAY: Final = 0x90
_ARRAY_MAX: Final = 0x0F
_TEXT: Final = 0xA0
_TEXT_MAX: Final = 0x1F
"""Arrays and texts that are so short begin with one byte, which has their length in it."""
_TEXT_8: Final = 0xD9
"""Longer texts: the length is in the byte after this one."""


class PlainBlock(msgspec.Struct, frozen=True):
    """A block without headers, in part as Arrow holds it; its columns are called as those of `Block`."""

    id: bytes
    payloads: list[bytes]
    partition_table: list[str]
    partition_index: Any = None
    """Numbers of numpy's."""
    transaction_ids: pa.Array | None = None
    header_table: None = None
    header_index: None = None

    def __len__(self) -> int:
        """How many messages there are."""
        return len(self.payloads)

    def headers(self) -> list[Headers | None]:
        """None of them has any."""
        return [None] * len(self)

    def slice(self, start: int, stop: int) -> PlainBlock:
        """Return messages `start` up to, but not including, `stop`, under the same id."""
        index, ids = self.partition_index, self.transaction_ids
        return PlainBlock(
            self.id,
            self.payloads[start:stop],
            self.partition_table,
            None if index is None else index[start:stop],
            None if ids is None else ids[start:stop],
        )


def decode_plain(body: bytes) -> Block | PlainBlock:
    """Verify and decode a block, or raise Corrupt."""
    raw = decode_raw(body)
    index, ids = bytes(raw.partition_index), bytes(raw.transaction_ids)
    numbers = None if index == _NIL else small_numbers(index, len(raw.payloads))
    texts = None if ids == _NIL else even_texts(ids, len(raw.payloads))
    if _has_more(raw) or (numbers is None) != (index == _NIL) or (texts is None) != (ids == _NIL):
        return raw.whole()
    if numbers is None and len(raw.partition_table) != 1:
        raise Corrupt("the columns of a block do not fit: there is not one partition, and no index")
    if numbers is not None and numbers.max() >= len(raw.partition_table):
        raise Corrupt("the columns of a block do not fit: partition_index points outside its table")
    return PlainBlock(raw.id, raw.payloads, raw.partition_table, numbers, texts)


def _has_more(raw: RawBlock) -> bool:
    return raw.header_table is not None or raw.header_index is not None or raw.start_times is not None


def small_numbers(column: bytes, count: int) -> Any | None:
    """An array of numbers that take a byte each; None where it is something else."""
    start = _start(column, count)
    if start is None or len(column) != start + count:
        return None
    numbers = np.frombuffer(column, np.uint8, offset=start)
    return numbers.astype(np.int32) if numbers.max() <= _SMALL_MAX else None


def even_texts(column: bytes, count: int) -> pa.Array | None:
    """An array of ASCII texts of one length, none of them empty; None where it is something else."""
    start = _start(column, count)
    if start is None or (len(column) - start) % count:
        return None
    table = np.frombuffer(column, np.uint8, offset=start).reshape(count, -1)
    head, length = _text_head(table[0])
    texts = table[:, head:]
    if not length or texts.shape[1] != length or (table[:, :head] != table[0, :head]).any():
        return None
    if texts.max() > _SMALL_MAX:
        return None
    ends = np.arange(0, length * count + 1, length, dtype=np.int32)
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(texts.tobytes())]
    return pa.Array.from_buffers(pa.string(), count, buffers)


def _start(column: bytes, count: int) -> int | None:
    """Where the first entry of an array is, if it has so many, and any; as msgpack writes it shortest."""
    if not count:
        return None
    if count <= _ARRAY_MAX:
        head = bytes([_ARRAY | count])
    else:
        head = b"\xdc" + count.to_bytes(2) if count < 1 << 16 else b"\xdd" + count.to_bytes(4)
    return len(head) if column.startswith(head) else None


def _text_head(row: Any) -> tuple[int, int]:
    """How long the head of a text is, and how long the text; nothing where that is no text, or a long one."""
    first = int(row[0])
    if first & ~_TEXT_MAX == _TEXT:
        return 1, first & _TEXT_MAX
    if first == _TEXT_8 and len(row) > 1:
        return 2, int(row[1])
    return 0, 0
