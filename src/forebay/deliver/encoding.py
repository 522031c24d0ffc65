"""Content encodings of whole bodies: undone up to a limit, and done again.

Snappy is the raw block format, as Prometheus sends it. Invariant: however small a body is, no more than
`bytes_max` comes out of it.
"""

from __future__ import annotations

import gzip
import zlib
from typing import Final

import cramjam
import zstandard

from forebay.model import Rejected, TooLarge
from forebay.model.quantity import format_bytes

__all__ = ["ENCODINGS", "decode", "encode"]

ENCODINGS: Final = ("identity", "gzip", "deflate", "snappy", "zstd")

_GZIP_WINDOW: Final = 31
_GZIP_LEVEL: Final = 6
_FRAMES_MAX: Final = 10_000
"""Gzip members or zstd frames of one body: beginning one costs far more than its bytes do."""
_ZSTD_WINDOW_MAX: Final = 8 << 20
_ZSTD_PIECE_BYTES: Final = 1 << 8
"""Up to 8 MiB come out of such a piece, before what came out is counted."""
_VARINT_BYTES_MAX: Final = 5


def decode(encoding: str, body: bytes, bytes_max: int) -> bytes:
    """Undo an encoding. TooLarge when more than `bytes_max` comes out, Rejected when it isn't that."""
    if encoding == "identity":
        _fitting(body, bytes_max)
        return body
    try:
        if encoding == "gzip":
            return _gunzip(body, bytes_max)
        if encoding == "deflate":
            return _inflate(body, bytes_max)
        if encoding == "zstd":
            return _unzstd(body, bytes_max)
        return _unsnappy(body, bytes_max)
    except (zlib.error, zstandard.ZstdError, cramjam.DecompressionError) as error:
        raise Rejected(f"the body isn't {encoding}: {error}") from None


def encode(encoding: str, body: bytes) -> bytes:
    """Encode a whole body."""
    if encoding == "gzip":
        return gzip.compress(body, _GZIP_LEVEL, mtime=0)
    if encoding == "deflate":
        return zlib.compress(body, _GZIP_LEVEL)
    if encoding == "zstd":
        return zstandard.ZstdCompressor().compress(body)
    return bytes(cramjam.snappy.compress_raw(body)) if encoding == "snappy" else body


def _gunzip(body: bytes, bytes_max: int) -> bytes:
    out = bytearray()
    for _ in range(_FRAMES_MAX):
        inner = zlib.decompressobj(_GZIP_WINDOW)
        out += inner.decompress(body, bytes_max - len(out) + 1)
        _fitting(out, bytes_max)
        if not inner.eof:
            raise Rejected("the body ends in the middle of its gzip")
        body = inner.unused_data
        if not body:
            return bytes(out)
    raise Rejected(f"the body has more than {_FRAMES_MAX:,} gzip members")


def _inflate(body: bytes, bytes_max: int) -> bytes:
    """Undo `deflate`, which in HTTP is the zlib format."""
    inner = zlib.decompressobj()
    out = inner.decompress(body, bytes_max + 1)
    _fitting(out, bytes_max)
    if not inner.eof or inner.unused_data:
        raise Rejected("the body isn't deflate: it ends too early or too late")
    return out


def _unzstd(body: bytes, bytes_max: int) -> bytes:
    decoder = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW_MAX)
    out, frames, inner = bytearray(), 1, decoder.decompressobj()
    for begin in range(0, len(body), _ZSTD_PIECE_BYTES):
        piece = body[begin : begin + _ZSTD_PIECE_BYTES]
        while piece:
            if inner.eof:
                frames, inner = frames + 1, decoder.decompressobj()
            out += inner.decompress(piece)
            _fitting(out, bytes_max)
            piece = inner.unused_data if inner.eof else b""
        if frames > _FRAMES_MAX:
            raise Rejected(f"the body has more than {_FRAMES_MAX:,} zstd frames")
    if not inner.eof:
        raise Rejected("the body ends in the middle of its zstd")
    return bytes(out)


def _unsnappy(body: bytes, bytes_max: int) -> bytes:
    # The block begins with the size of what comes out, and its decoder sets aside as much.
    if _varint(body) > bytes_max:
        raise _too_large(bytes_max)
    return bytes(cramjam.snappy.decompress_raw(body))


def _varint(body: bytes) -> int:
    value = 0
    for place, byte in enumerate(body[:_VARINT_BYTES_MAX]):
        value |= (byte & 0x7F) << (7 * place)
        if byte < 0x80:  # noqa: PLR2004 - the bit that says that more follows
            return value
    raise Rejected("the body isn't snappy: it doesn't begin with a size")


def _fitting(out: bytes | bytearray, bytes_max: int) -> None:
    if len(out) > bytes_max:
        raise _too_large(bytes_max)


def _too_large(bytes_max: int) -> TooLarge:
    return TooLarge(f"the body unpacks to more than {format_bytes(bytes_max)}")
