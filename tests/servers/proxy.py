"""A TCP proxy on loopback that fails on command, between a client and a server under test.

It makes the faults that a network makes: connections cut at once, a request or its answer lost,
silence. A cut is a reset, as after a crash; without a fault, closing is passed on in order.
"""

import asyncio
import contextlib
import socket
import struct
from collections.abc import Callable
from enum import Enum, auto
from types import TracebackType
from typing import Final, Self

__all__ = ["ClientHook", "FaultProxy", "Verdict"]

_CHUNK_BYTES: Final = 64 * 1024
_DRAIN_SECONDS: Final = 5
_LINGER_NOT: Final = struct.pack("ii", 1, 0)


class Verdict(Enum):
    """What happens to bytes that a client sent."""

    FORWARD = auto()
    """Pass them on."""
    LOSE_REQUEST = auto()
    """Drop them and cut: the server never sees them."""
    LOSE_ANSWER = auto()
    """Pass them on, let the server act on them, and cut without a byte of its answer."""


ClientHook = Callable[[bytes], Verdict]
"""Called with each chunk from a client, before it is passed on."""


class _Trap:
    """Waits for a pattern in the bytes of any one connection, also across chunks, since it was set.

    `sprung` is set once the connection is cut, so with LOSE_ANSWER the server has acted by then.
    """

    def __init__(self, pattern: bytes, verdict: Verdict) -> None:
        assert pattern, "an empty pattern is in everything"
        self._pattern = pattern
        self._verdict = verdict
        self._tails: dict[_Link, bytes] = {}
        self.sprung = asyncio.Event()

    def judge(self, link: "_Link", chunk: bytes) -> Verdict:
        window = self._tails.get(link, b"") + chunk
        if self._pattern in window:
            return self._verdict
        self._tails[link] = window[max(0, len(window) - len(self._pattern) + 1) :]
        return Verdict.FORWARD


class _Link:
    """One client's connection and its connection upstream."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, proxy: "FaultProxy"
    ) -> None:
        self._from_client = reader
        self._to_client = writer
        self._proxy = proxy
        self._writers = [writer]
        self._verdict = Verdict.FORWARD
        self._trap: _Trap | None = None
        self._answered = asyncio.Event()

    async def run(self) -> None:
        """Carry bytes both ways until one side ends, fails, or a verdict says to cut."""
        pumps: list[asyncio.Task[None]] = []
        try:
            await self._proxy.flowing.wait()
            from_server, to_server = await asyncio.open_connection(*self._proxy.upstream)
            self._writers.append(to_server)
            requests = asyncio.create_task(self._carry_requests(to_server))
            answers = asyncio.create_task(self._carry_answers(from_server))
            pumps = [requests, answers]
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
            if requests.done():
                requests.result()
                await self._last_answers(answers)
            else:
                answers.result()
        except OSError:
            self.reset()
        finally:
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
            self._finish()

    def reset(self) -> None:
        """Reset both connections, so that neither side sees an orderly end."""
        for writer in self._writers:
            endpoint = writer.get_extra_info("socket")
            with contextlib.suppress(OSError):  # the socket is closed already
                endpoint.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_NOT)
            writer.transport.abort()

    async def closed(self) -> None:
        """Wait until both sockets are closed."""
        for writer in self._writers:
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def _carry_requests(self, to_server: asyncio.StreamWriter) -> None:
        """Pass on what the client sends; return when it ends or a verdict says to cut."""
        while chunk := await self._from_client.read(_CHUNK_BYTES):
            await self._proxy.flowing.wait()
            # Noted before the bytes leave, so that no part of an answer can slip through.
            self._verdict, self._trap = self._proxy.judge(self, chunk)
            if self._verdict is Verdict.LOSE_REQUEST:
                return
            to_server.write(chunk)
            await to_server.drain()
            if self._verdict is Verdict.LOSE_ANSWER:
                await self._answered.wait()
                break
        to_server.write_eof()

    async def _carry_answers(self, from_server: asyncio.StreamReader) -> None:
        """Pass on what the server sends, or swallow it; return when it ends."""
        while chunk := await from_server.read(_CHUNK_BYTES):
            await self._proxy.flowing.wait()
            if self._verdict is Verdict.LOSE_ANSWER:
                self._answered.set()
                continue
            self._to_client.write(chunk)
            await self._to_client.drain()

    async def _last_answers(self, answers: asyncio.Task[None]) -> None:
        """Let the server finish after the client's last byte, unless it never got that byte.

        A server that was told of the end has acted on all that came before when it closes.
        """
        if self._verdict is Verdict.FORWARD:
            await answers
        elif self._verdict is Verdict.LOSE_ANSWER:
            async with asyncio.timeout(_DRAIN_SECONDS):
                await answers

    def _finish(self) -> None:
        if self._verdict is not Verdict.FORWARD:
            self.reset()
        for writer in self._writers:
            writer.close()
        if self._trap is not None:
            self._trap.sprung.set()


class FaultProxy:
    """Listens on a free loopback port and forwards to `host:port`. Use as `async with`."""

    def __init__(self, port: int, host: str = "127.0.0.1") -> None:
        self.upstream = (host, port)
        self.host = "127.0.0.1"
        self.flowing = asyncio.Event()
        self.flowing.set()
        self._refusing = False
        self._hook: ClientHook | None = None
        self._traps: list[_Trap] = []
        self._links: dict[_Link, asyncio.Task[None]] = {}
        self._server: asyncio.Server | None = None
        self._port = 0

    @property
    def port(self) -> int:
        """The port that clients connect to; it stays the same after `stop` and `start`."""
        assert self._port, "the proxy was not started"
        return self._port

    async def start(self) -> None:
        """Listen."""
        self._server = await asyncio.start_server(self._accept, self.host, self._port)
        self._port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Stop listening and cut what is open; a second call does nothing."""
        if self._server is None:
            return
        self._server.close()
        links = dict(self._links)
        self.cut()
        await asyncio.gather(*links.values(), return_exceptions=True)
        for link in links:
            await link.closed()
        await self._server.wait_closed()
        self._server = None

    def cut(self) -> int:
        """Reset all open connections at once and return how many; new ones are welcome."""
        links = dict(self._links)
        for link, task in links.items():
            link.reset()
            task.cancel()
        return len(links)

    def cut_after_client_bytes(self, pattern: bytes) -> asyncio.Event:
        """Once: the first request with `pattern` reaches the server, its answer is lost.

        The event is set when the connection is cut; the server has acted on the request by then.
        """
        return self._set_trap(_Trap(pattern, Verdict.LOSE_ANSWER))

    def cut_before_client_bytes(self, pattern: bytes) -> asyncio.Event:
        """Once: the first request with `pattern` is lost, and its connection cut.

        The event is set when the connection is cut; the server never saw that chunk.
        """
        return self._set_trap(_Trap(pattern, Verdict.LOSE_REQUEST))

    def on_client_bytes(self, hook: ClientHook | None) -> None:
        """Ask `hook` about every chunk from a client that springs no trap; None asks nobody."""
        self._hook = hook

    def blackhole(self) -> None:
        """Keep connections open and accept new ones, but hold back every byte until `heal`."""
        self.flowing.clear()

    def refuse(self) -> None:
        """Cut all connections, and reset new ones at once until `heal`."""
        self._refusing = True
        self.cut()

    def heal(self) -> None:
        """End every fault: what was held back flows, new connections work, traps are gone."""
        self._refusing = False
        self._hook = None
        self._traps.clear()
        self.flowing.set()

    def judge(self, link: _Link, chunk: bytes) -> tuple[Verdict, _Trap | None]:
        """Decide about a chunk; a trap that springs is taken away."""
        for trap in self._traps:
            verdict = trap.judge(link, chunk)
            if verdict is not Verdict.FORWARD:
                self._traps.remove(trap)
                return verdict, trap
        return (self._hook(chunk) if self._hook else Verdict.FORWARD), None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.stop()

    def _set_trap(self, trap: _Trap) -> asyncio.Event:
        self._traps.append(trap)
        return trap.sprung

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        link = _Link(reader, writer, self)
        if self._refusing:
            link.reset()
            return
        task = asyncio.create_task(link.run())
        self._links[link] = task
        task.add_done_callback(lambda _: self._links.pop(link, None))
