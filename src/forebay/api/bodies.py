"""Bodies of requests: received within a time, a size and a budget, and unpacked up to a limit.

Invariants: no more than `body_bytes_max` of one body, and no more than `pending_bytes_max` of all of them, is
in memory at a time; a body that is not whole is never used.
"""

from __future__ import annotations

import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any, Final

import zstandard

from forebay.model import Rejected, TooLarge, Unavailable
from forebay.model.quantity import format_bytes

Receive = Callable[[], Awaitable[Any]]

_GZIP_WINDOW: Final = 31
_ZSTD_WINDOW_MAX: Final = 8 << 20
"""What RFC 9659 allows; a decoder sets aside as much as the sender says."""
FRAMES_FREE: Final = 10_000
FRAME_BYTES_LEAST: Final = 1 << 10
"""Of gzip members and zstd frames so many may come at once, and one more for so many bytes that come out.

To begin one costs a thousand times as much as its bytes do. A body of empty ones would keep the server busy
for longer than other servers wait before they take its leases over.
"""
_PIECES: Final = {"gzip": 1 << 12, "x-gzip": 1 << 12, "zstd": 1 << 8}
"""Bytes that are unpacked at a time: up to 4 MiB come out of 4 KiB of gzip, and 8 MiB of 256 of zstd."""


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


async def read_body(receive: Receive, bytes_max: int, arrived: Callable[[int], None]) -> bytes:
    """The whole body as it was sent; `arrived` is told of every part, before the next one is waited for."""
    message = await receive()
    if message["type"] == "http.disconnect":
        raise Gone
    body: bytes = message["body"]
    _fits(len(body), bytes_max)
    arrived(len(body))
    if not message.get("more_body", False):
        return body
    parts, size = [body], len(body)
    async for part in pieces(receive):
        size += len(part)
        _fits(size, bytes_max)
        arrived(len(part))
        parts.append(part)
    return b"".join(parts)


def _fits(size: int, bytes_max: int) -> None:
    if size > bytes_max:
        raise too_large(bytes_max)


class Unpacker:
    """Undoes a Content-Encoding piece by piece; all that comes out together is bounded.

    Several gzip members, or zstd frames, one after the other are one body.
    """

    def __init__(self, encoding: str, bytes_max: int) -> None:
        self._left = self._max = bytes_max
        self._encoding = encoding
        self._piece = _PIECES.get(encoding, 0)
        if encoding not in ("", "identity", *_PIECES):
            text = f"the body is encoded as {encoding[:32]!r}"
            raise Unsupported(text, hint="use gzip or zstd, or none")
        self._out = self._frames = 0
        self._inner: Any = self._fresh() if self._piece else None
        self._begun = False

    def _fresh(self) -> Any:
        self._frames += 1
        if self._frames > FRAMES_FREE + self._out // FRAME_BYTES_LEAST:
            text = f"the body is {self._frames:,} parts of {self._encoding}, most of them next to empty"
            raise Rejected(text, hint="compress it as a whole, or in larger parts")
        if self._encoding == "zstd":
            return zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW_MAX).decompressobj()
        return zlib.decompressobj(_GZIP_WINDOW)

    def feed(self, piece: bytes) -> Iterator[bytes]:
        """What comes out of a piece, in parts of a few megabytes at most."""
        if self._inner is None:
            yield self._counted(piece)
            return
        self._out = self._frames = 0
        try:
            for begin in range(0, len(piece), self._piece):
                yield self._counted(self._fed(piece[begin : begin + self._piece]))
        except (zlib.error, zstandard.ZstdError) as error:
            text = f"the body is not {self._encoding}: {error}"
            raise Rejected(text, hint="send it as its Content-Encoding says") from None

    def _fed(self, piece: bytes) -> bytes:
        out = b""
        while piece:
            if self._inner.eof:
                self._inner = self._fresh()
            self._begun = True
            part = self._inner.decompress(piece)
            self._out += len(part)
            out += part
            piece = self._inner.unused_data if self._inner.eof else b""
        return out

    def finish(self) -> None:
        """Make sure that it was whole."""
        if self._begun and not self._inner.eof:
            text = f"the body ends in the middle of its {self._encoding}"
            raise Rejected(text, hint="send all of it")

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
