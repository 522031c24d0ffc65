"""The compressions that a block's body may have, behind one pair of functions.

Invariants: `compress` never returns more than it was given; `expand` never allocates more than the
length it was told, and returns exactly that length or raises `Corrupt`.
"""

from enum import IntEnum
from typing import Final

import cramjam

from forebay.model.errors import Corrupt

_WORTH_IT_BYTES: Final = 256
"""Bodies below this are stored as they are: little can be won."""
_ZSTD_LEVEL: Final = 1


class Compression(IntEnum):
    """The compression of a body, numbered as in the block's header."""

    NONE = 0
    LZ4 = 1
    ZSTD = 2
    SNAPPY = 3


Bytes = bytes | bytearray | memoryview


def compress(body: bytes, compression: Compression) -> tuple[Compression, Bytes]:
    """Compress a body, or leave it alone where that does not pay; return what was done as well."""
    if len(body) < _WORTH_IT_BYTES or compression is Compression.NONE:
        return Compression.NONE, body
    if compression is Compression.LZ4:
        packed = cramjam.lz4.compress_block(body, store_size=False)
    elif compression is Compression.SNAPPY:
        packed = cramjam.snappy.compress_raw(body)
    else:
        packed = cramjam.zstd.compress(body, level=_ZSTD_LEVEL)
    return (compression, memoryview(packed)) if len(packed) < len(body) else (Compression.NONE, body)


def expand(stored: Bytes, compression: Compression, length: int) -> Bytes:
    """Undo `compress`; `length` is that of the body, and has been checked: it is allocated."""
    if compression is Compression.NONE:
        return stored
    body = bytearray(length)
    try:
        if compression is Compression.LZ4:
            written = cramjam.lz4.decompress_block_into(stored, body, output_len=length)
        elif compression is Compression.SNAPPY:
            written = cramjam.snappy.decompress_raw_into(stored, body)
        else:
            written = cramjam.zstd.decompress_into(stored, body)
    except cramjam.DecompressionError as error:
        raise Corrupt(f"the body of a block does not decompress ({error})") from None
    if written != length:
        raise Corrupt(f"the body of a block decompresses to {written} bytes, not {length}")
    return body
