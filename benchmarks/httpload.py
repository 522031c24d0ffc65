"""Load over HTTP that costs its own process next to nothing: requests are bytes, put together before.

A connection sends one request at a time and waits for the answer; of that it reads the status and the length.
"""

import asyncio
from collections.abc import Sequence
from typing import Final, Self, cast

_HEAD_END: Final = b"\r\n\r\n"
_LENGTH: Final = b"content-length: "


def request(
    path: str,
    body: bytes = b"",
    *,
    method: str = "POST",
    media: str = "application/json",
    accept: str = "",
    encoding: str = "",
) -> bytes:
    """One request as bytes; the encoding is that of the answer."""
    accepted = f"Accept: {accept}\r\n" if accept else ""
    accepted += f"Accept-Encoding: {encoding}\r\n" if encoding else ""
    head = (
        f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: {media}\r\n{accepted}"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


class HttpConnection(asyncio.Protocol):
    """One connection; `ask` sends a request and gives the body of its answer."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport
        self._buffer = bytearray()  # an answer of a megabyte comes in many pieces
        self._wanted = 0
        self._answer: asyncio.Future[tuple[int, bytes]] | None = None

    @classmethod
    async def open(cls, port: int) -> Self:
        """Connect to the server on this machine."""
        loop = asyncio.get_running_loop()
        _, protocol = await loop.create_connection(cls, "127.0.0.1", port)
        return protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is one in all but name

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail whoever waits for an answer."""
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(exc or ConnectionResetError("the server closed the connection"))

    def data_received(self, data: bytes) -> None:
        """Answer when all of it is there."""
        self._buffer += data
        if not self._wanted:
            end = self._buffer.find(_HEAD_END)
            if end < 0:
                return
            at = self._buffer.find(_LENGTH, 0, end) + len(_LENGTH)
            self._wanted = end + len(_HEAD_END) + int(self._buffer[at : self._buffer.find(b"\r", at)])
        if len(self._buffer) >= self._wanted and self._answer is not None:
            whole, self._buffer, self._wanted = bytes(self._buffer), bytearray(), 0
            answer, self._answer = self._answer, None
            answer.set_result((int(whole[9:12]), whole[whole.find(_HEAD_END) + len(_HEAD_END) :]))

    async def ask(self, message: bytes, expected: int = 200) -> bytes:
        """Send a request; the body of its answer, which must have the expected status."""
        self._answer = asyncio.get_running_loop().create_future()
        self._transport.write(message)
        status, body = await self._answer
        assert status == expected, f"{status}: {body[:300]!r}"
        return body

    def close(self) -> None:
        """Close the connection."""
        self._transport.close()


async def connections(port: int, count: int) -> Sequence[HttpConnection]:
    """Open so many connections."""
    return [await HttpConnection.open(port) for _ in range(count)]
