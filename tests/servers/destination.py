"""A destination on loopback that answers as a test says: well, badly, late or not at all."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Awaitable, Callable, Coroutine, Sequence
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
        self._listener: socket.socket | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        """Connections that begin, and those that are served."""
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
        # Not asyncio's own server: one that is closed between taking a connection and serving it leaves that
        # connection open.
        self._listener = socket.create_server(("127.0.0.1", self.port), backlog=100)
        self._listener.setblocking(False)
        self.port = self._listener.getsockname()[1]
        asyncio.get_running_loop().add_reader(self._listener, self._accept, self._listener)

    async def stop(self) -> None:
        """End the port and every connection."""
        if self._listener is not None:
            asyncio.get_running_loop().remove_reader(self._listener)
            self._listener.close()
            self._listener = None
        self.cut()
        while self._tasks:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def cut(self) -> None:
        """End every connection that is open."""
        for writer in list(self._writers):
            writer.transport.abort()

    def _accept(self, listener: socket.socket) -> None:
        with suppress(BlockingIOError, ConnectionError):
            sock, _ = listener.accept()
            self._run(self._connect(sock)).add_done_callback(lambda task: _close_unused(task, sock))

    async def _connect(self, sock: socket.socket) -> None:
        """Begin to serve a connection; one whose handshake fails is ended."""
        sock.setblocking(False)
        protocol = asyncio.StreamReaderProtocol(asyncio.StreamReader(), self._begin)
        loop = asyncio.get_running_loop()
        with suppress(OSError):
            await loop.connect_accepted_socket(lambda: protocol, sock, ssl=self._tls)

    def _begin(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._writers.add(writer)
        self._run(self._serve(reader, writer, self.connections))

    def _run(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int) -> None:
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


def _close_unused(task: asyncio.Task[None], sock: socket.socket) -> None:
    """Close the socket of a connection that was cancelled, perhaps before it had begun."""
    if task.cancelled():
        sock.close()


async def _read(reader: asyncio.StreamReader, connection: int) -> Received:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    method, target, _ = head[0].split(" ")
    pairs = (line.partition(": ") for line in head[1:] if line)
    headers = {name.lower(): value for name, _, value in pairs}
    body = await reader.readexactly(int(headers.get("content-length", 0)))
    return Received(method, target, headers, body, connection)
