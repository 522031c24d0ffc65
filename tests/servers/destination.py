"""A destination on loopback that answers as a test says: well, badly, late or not at all."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Self, TypeAlias

import msgspec

__all__ = ["Behaviour", "DestinationServer", "Received", "answer", "answers"]


class Received(msgspec.Struct, frozen=True):
    """One request as it arrived."""

    method: str
    target: str
    headers: dict[str, str]
    """Names in lower case."""
    body: bytes
    connection: int
    """Connections are counted from 1."""


Behaviour: TypeAlias = Callable[[Received, asyncio.StreamWriter], Awaitable[None]]


def answer(status: int = 200, body: bytes = b"", *headers: str) -> bytes:
    """An answer as bytes."""
    lines = [f"HTTP/1.1 {status} Whatever", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def answers(*given: bytes) -> Behaviour:
    """Give these bytes in turn, and the last of them from then on."""
    left = list(given)

    async def behave(_: Received, writer: asyncio.StreamWriter) -> None:
        writer.write(left.pop(0) if len(left) > 1 else left[0])
        await writer.drain()

    return behave


class DestinationServer:
    """Counts connections and keeps requests; `behaviour` may be changed at any time."""

    def __init__(self, behaviour: Behaviour | None = None, *, tls: ssl.SSLContext | None = None) -> None:
        self.behaviour = behaviour or answers(answer())
        self.received: list[Received] = []
        self.connections = 0
        self.arrived = asyncio.Event()
        """Set by every request."""
        self.emptied = asyncio.Event()
        """Set when the last connection has ended."""
        self._tls = tls
        self._server: asyncio.Server | None = None
        self.port = 0
        """Where it listens, or did last."""
        self._writers: set[asyncio.StreamWriter] = set()

    @property
    def url(self) -> str:
        """Its address."""
        return f"{'http' if self._tls is None else 'https'}://127.0.0.1:{self.port}/hook"

    @property
    def bodies(self) -> Sequence[bytes]:
        """The bodies of all requests, as they came."""
        return [one.body for one in self.received]

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.stop()

    async def start(self) -> None:
        """Listen: at a port of its own, and after a stop at the same one."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port, ssl=self._tls)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """End the port and every connection."""
        assert self._server is not None
        self._server.close()
        self.cut()
        await self._server.wait_closed()

    def cut(self) -> None:
        """End every connection that is open."""
        for writer in list(self._writers):
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        number = self.connections
        self._writers.add(writer)
        try:
            with suppress(ConnectionError, asyncio.IncompleteReadError):
                while True:
                    received = await _read(reader, number)
                    self.received.append(received)
                    self.arrived.set()
                    await self.behaviour(received, writer)
        finally:
            self._writers.discard(writer)
            writer.close()
            if not self._writers:
                self.emptied.set()


async def _read(reader: asyncio.StreamReader, connection: int) -> Received:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    method, target, _ = head[0].split(" ")
    pairs = (line.partition(": ") for line in head[1:] if line)
    headers = {name.lower(): value for name, _, value in pairs}
    body = await reader.readexactly(int(headers.get("content-length", 0)))
    return Received(method, target, headers, body, connection)
