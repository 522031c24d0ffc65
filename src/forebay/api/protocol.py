"""Connections that cannot hold the server up: bounded in number, in heads, in what is queued, and in time.

On top of uvicorn's protocol, which bounds none of these. Invariants: a connection that isn't being answered
has a timer, and so has one whose client doesn't read; what is neither body nor the end of a request (heads,
trailers, extensions of chunks) never takes more than `header_bytes_max`, but for what came with the first of
it; a request that is turned away is answered after those before it, and by a problem like any other.
"""

from __future__ import annotations

import asyncio
import fcntl
import struct
import termios
from collections.abc import Callable
from http import HTTPStatus
from secrets import token_hex
from typing import Any, Final

import httptools
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from forebay.api.answers import encode_json
from forebay.api.counters import Counters
from forebay.api.lingering import LingeringTransport
from forebay.api.settings import ServerLimits
from forebay.api.unread import SMALL_BYTES
from forebay.wire.media import PROBLEM
from forebay.wire.problems import TYPE, Problem

PIPELINED_MAX: Final = 64
"""Requests that one connection may send ahead of their answers."""
READ_BYTES_PER_SECOND: Final = 1 << 14
"""A client that reads its answers slower than this is given up."""
_COUNT: Final = struct.Struct("i")
_OFFER: Final = frozenset({b"connection", b"upgrade", b"http2-settings"})
"""Headers by which a client offers to go on with another protocol."""
_LINGERING_MAX: Final = 1_000
"""Connections beyond the limit that are told so; those beyond these are cut."""


class BoundedProtocol(HttpToolsProtocol):
    """See the module; `limits` and `counters` are set by `bounded`."""

    limits: ServerLimits
    counters: Counters
    _in_head = True
    _is_offered = False
    _unseen_bytes = 0
    _progressed = False
    _may_be_large = False
    _head_timer: asyncio.TimerHandle | None = None
    _write_timer: asyncio.TimerHandle | None = None
    _unread_bytes = 0
    _unwritten_bytes = 0
    _refusal: tuple[HTTPStatus, str, str] | None = None
    _refusal_is_sent = False
    _running: Any = None

    def connection_made(self, transport: Any) -> None:
        """Count the connection, or turn it away."""
        transport.set_write_buffer_limits(high=SMALL_BYTES)  # TLS would have eight times as much
        super().connection_made(LingeringTransport(transport, self._expects_more))  # type: ignore[arg-type]
        count = self.counters.connections = len(self.connections)
        most = self.limits.connections_max
        if count > most + _LINGERING_MAX:
            self.transport.abort()
        elif count > most:
            text = f"there are {most} connections already"
            self._refuse(HTTPStatus.SERVICE_UNAVAILABLE, text, "try again, or use fewer connections")
        else:
            self._start_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        """Let go of the timers with the connection, and tell whoever answers that nobody listens."""
        self._stop_timer()
        self._stop_write_timer()
        running = self._running
        if running is not None and running is not self.cycle and not running.response_complete:
            running.disconnected = True  # uvicorn tells the newest request only
            running.message_event.set()
        self.pipeline.clear()
        super().connection_lost(exc)
        self._unset_keepalive_if_required()
        self.counters.connections = len(self.connections)

    # Reading

    def data_received(self, data: bytes) -> None:
        """Take in data, and no more of a head than may be."""
        if self._is_over():
            return
        self._progressed = False
        self._unseen_bytes += len(data)
        self._unset_keepalive_if_required()
        self._parse(data)
        if self._is_over():
            return
        if self._progressed:
            self._may_be_large = self._unseen_bytes > self.limits.header_bytes_max
            self._unseen_bytes = 0
        elif self._unseen_bytes > self.limits.header_bytes_max:
            self._refuse_head()
            return
        if self._in_head or not self._busy:
            self._start_timer()  # whatever it was, it has stopped the timer of an idle connection

    def _parse(self, data: bytes) -> None:
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as offer:
            self._decline(data[offer.args[0] :])
        except httptools.HttpParserError:
            self.send_400_response("Invalid HTTP request received.")

    def _decline(self, rest: bytes) -> None:
        """Take a request that offers another protocol, such as HTTP/2, as if it didn't.

        The parser leaves the body to the other protocol, so it gets the head again, without the offer.
        """
        if not self._is_offered or self._is_over():
            return
        self._is_offered = False
        method, version = self.parser.get_method(), self.parser.get_http_version().encode()
        kept = [pair for pair in self.headers if pair[0] not in _OFFER]
        head = [b"%b %b HTTP/%b\r\n" % (method, self.url, version), *(b"%b: %b\r\n" % pair for pair in kept)]
        self.parser = httptools.HttpRequestParser(self)
        self._parse(b"".join([*head, b"\r\n", rest]))

    def eof_received(self) -> bool:  # type: ignore[override]  # asyncio's own may say so
        """The client sends no more: an answer that is on its way still goes out, but over TLS."""
        if not self._unwritten_bytes or self.scheme == "https":
            return False
        self._running.keep_alive = False
        return True

    def on_message_begin(self) -> None:
        """A request begins: what doesn't come with its first bytes must come in time."""
        super().on_message_begin()
        self._in_head = self._progressed = True

    def on_headers_complete(self) -> None:
        """The head is there: from now on the time of the request is the application's."""
        self._stop_timer()
        self._in_head = False
        if self._refusal is not None:
            return
        self._is_offered = self.parser.should_upgrade() and self.parser.get_method() != b"CONNECT"
        if self._is_offered:
            return
        if self._is_head_too_large():
            self._refuse_head()
        elif len(self.pipeline) >= PIPELINED_MAX:
            text = f"{PIPELINED_MAX} requests wait on this connection already"
            self._refuse(HTTPStatus.TOO_MANY_REQUESTS, text, "read the answers first")
        else:
            super().on_headers_complete()
            self.headers = []  # what comes after the body is no header of the request
            self.flow.resume_reading()  # else nobody would notice when a client that has sent ahead leaves

    def _is_head_too_large(self) -> bool:
        """Whether it is; it is looked at only where that much has come, with whatever was before it."""
        most = self.limits.header_bytes_max
        if self._unseen_bytes <= most and not self._may_be_large:
            return False
        return len(self.url) + sum(len(name) + len(value) for name, value in self.headers) > most

    def on_body(self, body: bytes) -> None:
        """Take in a part of the body, unless the request was turned away."""
        self._progressed = True
        if self._refusal is None:
            super().on_body(body)

    def on_message_complete(self) -> None:
        """The request is whole, unless it was turned away."""
        self._progressed = True
        if self._refusal is None and not self._is_offered:
            super().on_message_complete()

    def _start_asgi_task(self, cycle: Any, app: Any) -> None:
        self._running = cycle
        cycle.scope["forebay.respond"] = self._respond
        cycle.scope["forebay.is_gone"] = lambda: cycle.disconnected
        super()._start_asgi_task(cycle, app)

    async def _respond(self, status: int, head: bytes, body: bytes) -> None:
        """Answer the request that is running: what two messages of ASGI would do, in one write.

        A large body is written as its client reads it, so that the caller knows how long it is held.
        """
        cycle = self._running
        if self.flow.write_paused and not cycle.disconnected:
            await self.flow.drain()
        if cycle.disconnected:
            return
        cycle.response_started = True
        cycle.waiting_for_100_continue = False
        date = self.server_state.default_headers
        parts = [STATUS_LINE[status], *(b"%b: %b\r\n" % header for header in date), head]
        if b"connection: close\r\n" in head:
            cycle.keep_alive = False
        elif not cycle.keep_alive:
            parts.append(b"connection: close\r\n")
        parts.append(b"\r\n")
        if cycle.scope["method"] == "HEAD":
            body = b""
        if len(body) <= SMALL_BYTES:
            parts.append(body)
        self.transport.write(b"".join(parts))
        if len(body) > SMALL_BYTES and not await self._write(body, cycle):
            return
        cycle.response_complete = True
        cycle.message_event.set()
        if not cycle.keep_alive:
            self.transport.close()
        cycle.on_response()

    async def _write(self, body: bytes, cycle: Any) -> bool:
        """Write a body piece by piece; tell whether the client was there for all of it.

        Over TLS a body that is written at once would leave no trace in what the transport says it holds.
        """
        self._unread_bytes += len(body)  # if the last answer is still watched, it is together with this one
        self._unwritten_bytes = len(body)
        try:
            for begin in range(0, len(body), SMALL_BYTES):
                if self.flow.write_paused and not cycle.disconnected:
                    await self.flow.drain()
                if cycle.disconnected or self.transport.is_closing():
                    cycle.disconnected = True
                    return False
                # Copied, since a view would hold the whole body until its last piece is read.
                self.transport.write(body[begin : begin + SMALL_BYTES])
                self._unwritten_bytes = max(0, len(body) - begin - SMALL_BYTES)
        except asyncio.CancelledError:  # the server has stopped, and waited long enough
            cycle.disconnected = True
            self.transport.abort()
            return False
        finally:
            self._unwritten_bytes = 0
        if not self.flow.write_paused and not self.transport.is_closing():
            self._stop_write_timer()
        return True

    def _expects_more(self) -> bool:
        """Whether the client may still be sending."""
        cycle: Any = self.cycle
        return self._refusal is not None or bool(self.pipeline) or (cycle is not None and cycle.more_body)

    def _is_over(self) -> bool:
        """Whether nothing that comes matters any more."""
        return self._refusal is not None or self.transport.is_closing()

    @property
    def _busy(self) -> bool:
        """Whether a request is being answered, or waits for it."""
        cycle: Any = self.cycle  # None before the first request
        return cycle is not None and not cycle.response_complete

    def _start_timer(self) -> None:
        if self._head_timer is None and self._refusal is None:
            self._head_timer = self.loop.call_later(self.limits.request_seconds, self._late)

    def _stop_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _late(self) -> None:
        self._head_timer = None
        if self._busy:  # the head of the next request may take as long as the answer to this one
            self._start_timer()
            return
        text = f"no request came within {self.limits.request_seconds:g} seconds"
        self._refuse(HTTPStatus.REQUEST_TIMEOUT, text, "send it faster")

    # Writing

    def on_response_complete(self) -> None:
        """Go on with what was sent ahead; the last of it may be a refusal."""
        super().on_response_complete()
        if self._refusal is not None and not self._busy:
            self._answer_refusal()
        if self.transport.is_closing() and self.transport.get_write_buffer_size():
            self._start_write_timer()

    def pause_writing(self) -> None:
        """The client doesn't keep up: watch whether it reads at all."""
        super().pause_writing()
        self._start_write_timer()

    def resume_writing(self) -> None:
        """The client has read; while there is more for it, it is watched on."""
        super().resume_writing()
        if not self._unwritten_bytes and not self.transport.is_closing():
            self._stop_write_timer()

    def timeout_keep_alive_handler(self) -> None:
        """Close a connection that was idle for too long; one that still reads its answer isn't idle."""
        if self.transport.get_write_buffer_size():
            self._start_write_timer()
        super().timeout_keep_alive_handler()

    def shutdown(self) -> None:
        """The server stops: close when everything that was asked is answered."""
        super().shutdown()
        if self._running is not None and not self._running.response_complete and not self.pipeline:
            self._running.keep_alive = False
        if self.transport.get_write_buffer_size():
            self._start_write_timer()

    def _start_write_timer(self) -> None:
        if self._write_timer is None:
            self._unread_bytes = self._on_its_way()
            self._write_timer = self.loop.call_later(self.limits.request_seconds, self._unread)

    def _stop_write_timer(self) -> None:
        if self._write_timer is not None:
            self._write_timer.cancel()
            self._write_timer = None

    def _unread(self) -> None:
        """The client had its time to read: it has read enough, or it is cut off."""
        self._write_timer = None
        if not self._unwritten_bytes and not self.transport.get_write_buffer_size():
            return
        enough = READ_BYTES_PER_SECOND * self.limits.request_seconds
        if self._unread_bytes - self._on_its_way() < enough:
            self.counters.refused["client does not read"] += 1
            self.transport.abort()
        else:
            self._start_write_timer()

    def _on_its_way(self) -> int:
        """What the client has yet to take of its answer: not written, waiting here, or held by the kernel.

        The kernel takes more only when a third of its megabytes is free: looked at from here alone, a client
        that reads steadily stands still for long.
        """
        waiting = self._unwritten_bytes + self.transport.get_write_buffer_size()
        try:
            held = fcntl.ioctl(
                self.transport.get_extra_info("socket").fileno(), termios.TIOCOUTQ, bytes(_COUNT.size)
            )
        except (OSError, ValueError):  # a socket that is gone, or a system that doesn't tell
            return waiting
        return waiting + int(_COUNT.unpack(held)[0])

    # Refusing

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002 - uvicorn's words
        """Answer what is no HTTP."""
        if self._refusal is None:
            self._refuse(HTTPStatus.BAD_REQUEST, "this is no HTTP/1.1 request", "see RFC 9112")

    def _refuse_head(self) -> None:
        text = f"the head of the request is over {self.limits.header_bytes_max} bytes"
        self._refuse(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, text, "send shorter headers")

    def _refuse(self, status: HTTPStatus, detail: str, hint: str) -> None:
        """Answer without asking the application, after what was asked before, and close."""
        self._refusal = (status, detail, hint)
        self._stop_timer()
        self.counters.refused[status.phrase.lower()] += 1
        if self._busy and self.cycle.more_body:  # what came is no body of the request that waits for one
            self.cycle.disconnected = True
            self.cycle.message_event.set()
            if self.cycle is self._running and not self.cycle.response_started:
                self._answer_refusal()
            else:
                self.transport.abort()
        elif not self._busy:
            self._answer_refusal()

    def _answer_refusal(self) -> None:
        assert self._refusal is not None
        if self._refusal_is_sent or self.transport.is_closing():
            return
        self._refusal_is_sent = True
        status, detail, hint = self._refusal
        id = token_hex(8)
        body = encode_json(
            Problem(
                type=f"{TYPE}refused",
                title=status.phrase,
                status=status,
                detail=detail,
                hint=hint,
                request_id=id,
            )
        )
        head = (
            f"HTTP/1.1 {status.value} {status.phrase}\r\ncontent-type: {PROBLEM}\r\n"
            f"content-length: {len(body)}\r\nx-request-id: {id}\r\n"
            "retry-after: 1\r\nconnection: close\r\n\r\n"
        )
        self.transport.write(head.encode() + body)
        self.transport.close()
        if self.transport.get_write_buffer_size():
            self._start_write_timer()


def bounded(limits: ServerLimits, counters: Counters) -> Callable[..., BoundedProtocol]:
    """The class of connections with these limits."""
    return type("Connection", (BoundedProtocol,), {"limits": limits, "counters": counters})
