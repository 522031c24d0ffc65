"""Parts of trials with a relay in a process of its own: the process, pushers, and a destination."""

from __future__ import annotations

import asyncio
import hashlib
import os
import random
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Literal, Self

import httptools

ROOT = Path(__file__).parents[2]
Mood = Literal["good", "refusing", "resetting", "silent", "garbage", "endless"]
_OK = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"
_BUSY = b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 4\r\n\r\nbusy"
_ENDLESS = b"HTTP/1.1 500 Internal Server Error\r\ncontent-length: 99999999999\r\n\r\n"


def make_body(name: str, size: int) -> bytes:
    """A body that can be checked: a name, then bytes that follow from it."""
    filling = hashlib.sha256(name.encode()).hexdigest().encode()
    return f"{name}\n".encode() + (filling * (size // len(filling) + 1))[:size]


def name_of(body: bytes) -> str:
    """The name of a body, which is as it was made."""
    name, _, rest = body.partition(b"\n")
    assert body == make_body(name.decode(), len(rest)), "a body has changed on its way"
    return name.decode()


class Sink:
    """A destination: counts what it has accepted by name, and can be in a bad mood."""

    def __init__(self) -> None:
        self.accepted: Counter[str] = Counter()
        self.attempts = 0
        self.mood: Mood = "good"
        self.port = 0
        self.changed = asyncio.Condition()
        self._server: asyncio.Server | None = None
        self._notices: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def open(self) -> None:
        """Listen, at the port of the last time."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: _SinkConnection(self), "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        """Listen no more."""
        assert self._server is not None
        self._server.close()
        await asyncio.gather(*self._notices)

    async def until_all(self, names: set[str], seconds: float) -> None:
        """Wait until everything of these names was accepted."""
        async with asyncio.timeout(seconds), self.changed:
            await self.changed.wait_for(lambda: names <= self.accepted.keys())

    async def until_attempts(self, count: int) -> None:
        """Wait until it was asked so often."""
        async with self.changed:
            await self.changed.wait_for(lambda: self.attempts >= count)

    def notice(self) -> None:
        """Wake those who wait for something here."""
        task = asyncio.get_running_loop().create_task(self._notice())
        self._notices.add(task)
        task.add_done_callback(self._notices.discard)

    async def _notice(self) -> None:
        async with self.changed:
            self.changed.notify_all()


class _SinkConnection(asyncio.Protocol):
    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._parser = httptools.HttpRequestParser(self)
        self._body = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_body(self, body: bytes) -> None:
        self._body += body

    def on_message_complete(self) -> None:
        sink, body, self._body = self._sink, self._body, b""
        sink.attempts += 1
        match sink.mood:
            case "good":
                sink.accepted[name_of(body)] += 1
                self._transport.write(_OK)
            case "refusing":
                self._transport.write(_BUSY)
            case "resetting":
                self._transport.abort()
            case "silent":
                pass
            case "garbage":
                self._transport.write(bytes(range(128, 192)) + b"\r\n\r\n")
            case "endless":
                self._transport.write(_ENDLESS + b"x" * (1 << 20))
        sink.notice()


class RelayProcess:
    """`forebay relay` as a user starts it."""

    def __init__(self, folder: Path, urls: list[str], *flags: str) -> None:
        to = [word for url in urls for word in ("--to", url)]
        self._command = [
            sys.executable, "-m", "forebay.app.cli", "relay", "--listen", "127.0.0.1:0",
            "--data", str(folder), "--log-level", "error", *to, *flags,
        ]  # fmt: skip
        self._process: asyncio.subprocess.Process | None = None
        self.port = 0

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.kill()

    async def start(self) -> None:
        """Start, and wait until it listens."""
        environ = os.environ | {"PYTHONPATH": str(ROOT / "src")}
        self._process = await asyncio.create_subprocess_exec(
            *self._command, cwd=ROOT, env=environ, stdout=asyncio.subprocess.PIPE
        )
        assert self._process.stdout is not None
        said = (await self._process.stdout.readline()).decode()
        assert said.startswith("http://"), "the relay didn't start"
        self.port = int(said.rpartition(":")[2])

    async def kill(self) -> None:
        """Kill -9, if it runs."""
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
            await self._process.wait()

    async def stop(self) -> int:
        """SIGTERM, and the exit status."""
        assert self._process is not None
        self._process.terminate()
        return await self._process.wait()

    async def page(self, path: str) -> str:
        """A page of the relay's own."""
        async with connection(self.port) as (reader, writer):
            writer.write(f"GET {path} HTTP/1.1\r\nConnection: close\r\n\r\n".encode())
            text = (await reader.read()).decode()
        return text.partition("\r\n\r\n")[2]


@asynccontextmanager
async def connection(port: int) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """Give a connection that is closed for good afterwards, also where the other end is gone."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        yield reader, writer
    finally:
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()


class Pushers:
    """Clients that push one after the other, and note what was acknowledged."""

    def __init__(self, draw: random.Random) -> None:
        self._draw = draw
        self.tried: set[str] = set()
        self.acknowledged: set[str] = set()
        self.refused: Counter[int] = Counter()
        self._number = 0

    async def push(self, port: int, stop: asyncio.Event) -> None:
        """Push until told to stop, or until the relay is gone."""
        with suppress(OSError, asyncio.IncompleteReadError):
            async with connection(port) as (reader, writer):
                while not stop.is_set():
                    await self._push_one(reader, writer)

    async def _push_one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._number += 1
        name = f"{self._number:08d}"
        body = make_body(name, self._draw.choice((0, 10, 1000, 1000, 20_000)))
        self.tried.add(name)
        writer.write(b"POST /push HTTP/1.1\r\nHost: r\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))
        head = await reader.readuntil(b"\r\n\r\n")
        status = int(head.split()[1])
        length = int(head.lower().partition(b"content-length: ")[2].split()[0])
        await reader.readexactly(length)
        if status == 202:
            self.acknowledged.add(name)
        else:
            self.refused[status] += 1
