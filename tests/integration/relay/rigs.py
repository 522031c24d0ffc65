"""A relay in this process, in front of a destination that answers as it is told, and a raw client."""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Self

from forebay.deliver.dead_letters import DeadLetters
from forebay.deliver.delivery import Delivery
from forebay.deliver.entry_store import MemoryBacking
from forebay.deliver.failure import of_status
from forebay.deliver.queue_settings import SendQueueSettings
from forebay.deliver.send_queue import SendQueue
from forebay.deliver.sizes import sizes
from forebay.deliver.values import Outcome, Prepared, Request
from forebay.model import SystemClock
from forebay.relay.relay import Relay
from forebay.relay.settings import RelayLimits, RelaySettings
from forebay.relay.tls import certificate_of
from forebay.relay.tokens import tokens_of
from forebay.wire.port import listen


class Recorder:
    """A destination that remembers what it got."""

    def __init__(self, name: str = "recorder") -> None:
        self.name = name
        self.seen: list[Request] = []
        self.answer: Callable[[Request], Outcome] = lambda _: of_status(200)
        self._got = asyncio.Condition()

    def prepare(self, request: Request, *, id: str) -> Prepared:
        return Prepared(id, request, b"", request.body)

    async def send(self, prepared: Prepared) -> Outcome:
        self.seen.append(prepared.request)
        async with self._got:
            self._got.notify_all()
        return self.answer(prepared.request)

    async def close(self) -> None:
        pass

    async def until(self, count: int) -> list[Request]:
        """What it got, once there is so much of it."""
        async with self._got:
            await self._got.wait_for(lambda: len(self.seen) >= count)
        return self.seen


class RelayRig:
    """A relay, its queues' backings, and where it listens."""

    def __init__(self, count: int, relay: RelaySettings, settings: SendQueueSettings) -> None:
        clock = SystemClock()
        found = sizes(settings, memory_limit=None, disk_bytes=None)
        self.destinations = [Recorder(f"recorder-{number}") for number in range(count)]
        self.backings = [MemoryBacking(clock.now) for _ in range(count)]
        sends = asyncio.Semaphore(settings.global_send_limit)
        self.deliveries = [
            Delivery(
                SendQueue(backing, DeadLetters(MemoryBacking(clock.now)), settings, found, clock=clock.now),
                destination,
                settings,
                sends=sends,
                clock=clock.now,
            )
            for backing, destination in zip(self.backings, self.destinations, strict=True)
        ]
        self.relay = Relay(
            relay, settings, self.deliveries, certificate=certificate_of(relay), tokens=tokens_of(relay)
        )
        self.port = 0

    @property
    def destination(self) -> Recorder:
        return self.destinations[0]

    async def start(self) -> None:
        sock = listen("127.0.0.1:0")
        self.port = sock.getsockname()[1]
        await self.relay.start(sock)

    async def client(self, tls: ssl.SSLContext | None = None) -> "RawClient":
        return RawClient(*await asyncio.open_connection("127.0.0.1", self.port, ssl=tls))


class RawClient:
    """Writes bytes, reads answers."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.writer.close()

    def send(self, *parts: bytes) -> None:
        self.writer.write(b"".join(parts))

    async def answer(self) -> tuple[int, dict[str, str], bytes]:
        """Status, headers and body of the next answer."""
        head = (await self.reader.readuntil(b"\r\n\r\n")).decode()
        line, *lines = head.strip().split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (one.partition(":") for one in lines)}
        status = int(line.split()[1])
        body = await self.reader.readexactly(int(headers.get("content-length", 0)))
        return status, headers, body

    async def ends(self) -> bool:
        """Wait for the end of the connection; nothing more may come before it."""
        try:
            return await self.reader.read() == b""
        except ConnectionResetError:
            return True

    def half_close(self) -> None:
        sock: socket.socket = self.writer.get_extra_info("socket")
        assert sock is not None
        self.writer.write_eof()


def post(body: bytes = b"x", path: str = "/push", *headers: str, method: str = "POST") -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "Host: relay", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


@asynccontextmanager
async def a_relay(
    *,
    count: int = 1,
    limits: RelayLimits | None = None,
    tls_cert: str | None = None,
    tls_key: str | None = None,
    token_file: Path | None = None,
    **settings: Any,
) -> AsyncIterator[RelayRig]:
    tokens = None if token_file is None else str(token_file)
    relay = RelaySettings(
        limits=limits or RelayLimits(), tls_cert=tls_cert, tls_key=tls_key, token_file=tokens
    )
    rig = RelayRig(count, relay, SendQueueSettings(**settings).resolve())
    await rig.start()
    try:
        yield rig
    finally:
        await rig.relay.stop()
