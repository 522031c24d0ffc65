"""Bodies of requests: received within a time, a size and a budget, and unpacked up to a limit.

Invariants: no more than `body_bytes_max` of one body, and no more than `pending_bytes_max` of all of them, is
in memory at a time; a body that is not whole is never used.
"""

from __future__ import annotations

import zlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final

import zstandard

from forebay.model import Rejected, TooLarge, Unavailable
from forebay.model.quantity import format_bytes

Receive = Callable[[], Awaitable[Any]]

_GZIP_WINDOW: Final = 31
_PIECE: Final = 1 << 10
"""A thousand times as much may come out of it, before it is counted."""


class Gone(Exception):  # noqa: N818 - what happened to the client
    """The client has left: there is nobody to answer."""


class Budget:
    """How many bytes of bodies may be worked on at a time."""

    def __init__(self, bytes_max: int) -> None:
        self._left = self._max = bytes_max

    @property
    def used(self) -> int:
        """Bytes that are worked on."""
        return self._max - self._left

    def take(self, size: int) -> None:
        """Take a part of it, to be given back."""
        if size > self._left:
            text = f"{format_bytes(self.used)} of requests are being worked on already"
            raise Unavailable(text, hint="slow down", retry_after_seconds=0.5)
        self._left -= size

    def give(self, size: int) -> None:
        """Give a part back."""
        self._left += size


async def pieces(receive: Receive) -> AsyncIterator[bytes]:
    """The body as it comes."""
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Gone
        if message["body"]:
            yield message["body"]
        if not message.get("more_body", False):
            return


async def read_body(receive: Receive, bytes_max: int) -> bytes:
    """The whole body as it was sent."""
    message = await receive()
    if message["type"] == "http.disconnect":
        raise Gone
    body: bytes = message["body"]
    if not message.get("more_body", False):
        if len(body) > bytes_max:
            raise too_large(bytes_max)
        return body
    parts, size = [body], len(body)
    async for part in pieces(receive):
        size += len(part)
        if size > bytes_max:
            raise too_large(bytes_max)
        parts.append(part)
    return b"".join(parts)


def unpack(body: bytes, encoding: str, bytes_max: int) -> bytes:
    """Undo a Content-Encoding, and stop where the limit is passed."""
    unpacker = Unpacker(encoding, bytes_max)
    return unpacker.feed(body) + unpacker.finish()


class Unpacker:
    """Undoes a Content-Encoding piece by piece; all that comes out together is bounded."""

    def __init__(self, encoding: str, bytes_max: int) -> None:
        self._left = self._max = bytes_max
        self._inner: Any = None
        self._encoding = encoding
        if encoding in ("gzip", "x-gzip"):
            self._inner = zlib.decompressobj(_GZIP_WINDOW)
        elif encoding == "zstd":
            self._inner = zstandard.ZstdDecompressor(max_window_size=1 << 27).decompressobj()
        elif encoding not in ("", "identity"):
            text = f"the body is encoded as {encoding[:32]!r}"
            raise Unsupported(text, hint="use gzip or zstd, or none")

    def feed(self, piece: bytes) -> bytes:
        """What comes out of a piece."""
        if self._inner is None:
            return self._counted(piece)
        out = bytearray()
        try:
            for begin in range(0, len(piece), _PIECE):
                out += self._counted(self._fed(piece[begin : begin + _PIECE]))
        except (zlib.error, zstandard.ZstdError) as error:
            text = f"the body is not {self._encoding}: {error}"
            raise Rejected(text, hint="send it as its Content-Encoding says") from None
        return bytes(out)

    def _fed(self, piece: bytes) -> bytes:
        if isinstance(self._inner, zstandard.ZstdDecompressionObj):
            return self._inner.decompress(piece)
        out: bytes = self._inner.decompress(piece, self._left + 1)
        if self._inner.unconsumed_tail:
            raise too_large(self._max)
        return out

    def finish(self) -> bytes:
        """Make sure that it was whole."""
        if self._inner is not None and not self._inner.eof:
            text = f"the body ends in the middle of its {self._encoding}"
            raise Rejected(text, hint="send all of it")
        return b""

    def _counted(self, out: bytes) -> bytes:
        self._left -= len(out)
        if self._left < 0:
            raise too_large(self._max)
        return out


class Unsupported(Rejected):
    """The body is in an encoding or of a type that the route doesn't take."""

    status = 415


def too_large(bytes_max: int) -> TooLarge:
    """The body is over its limit."""
    return TooLarge(
        f"the body is over {format_bytes(bytes_max)}",
        hint="send less at once, stream it as NDJSON, or raise server.limits.body_bytes_max",
    )
