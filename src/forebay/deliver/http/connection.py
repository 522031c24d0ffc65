"""One connection: a request at a time, its answer, and the time it may take.

Invariants: bytes that come while no request is out end the connection, so an answer is never taken for that
of another request; a connection is used again only after an answer that ended cleanly and a request that
was sent whole. Once the head of an answer is there its status decides, also if the body is cut off, goes on
without end or takes too long: the destination has said what it did.
"""

from __future__ import annotations

import asyncio
from typing import Final, cast

import msgspec

from forebay.deliver.http.answer import AnswerParser, BadAnswerError

__all__ = ["Answer", "Connection", "StaleError"]

_COPIED_BYTES_MAX: Final = 64 << 10
"""Up to this size a body is copied behind its head, which costs less than two writes."""


class Answer(msgspec.Struct, frozen=True, gc=False):
    """The final answer to one request."""

    status: int
    retry_after: bytes | None
    body: bytes
    """Its start."""


class StaleError(ConnectionError):
    """A connection that was kept had ended before any byte of an answer came."""


class Connection(asyncio.Protocol):
    """The client's end. `exchange` is called again only after the answer, while `is_reusable`."""

    def __init__(self, *, head_bytes_max: int, body_bytes_max: int) -> None:
        self._loop = asyncio.get_running_loop()
        self._parser = AnswerParser(head_bytes_max, body_bytes_max)
        self._transport: asyncio.Transport | None = None
        self._waiter: asyncio.Future[Answer] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._heard = False
        self._closed = self._loop.create_future()
        self.exchanges = 0
        self.idle_since = 0.0
        self.is_reusable = False

    def exchange(self, head: bytes, body: bytes, deadline: float) -> asyncio.Future[Answer]:
        """Send a request, and give its answer; TimeoutError or ConnectionError when there is none."""
        assert self._waiter is None, "one request at a time"
        waiter: asyncio.Future[Answer] = self._loop.create_future()
        transport = self._transport
        if transport is None or transport.is_closing():
            waiter.set_exception(StaleError("the connection has ended"))
            return waiter
        self._waiter, self._heard, self.is_reusable = waiter, False, False
        self.exchanges += 1
        if self.exchanges > 1:
            self._parser.reset()
        self._timer = self._loop.call_at(deadline, self._time_out)
        if len(body) < _COPIED_BYTES_MAX:
            transport.write(head + body)
        else:
            transport.writelines((head, body))
        return waiter

    def abort(self) -> None:
        """End the connection at once."""
        self.is_reusable = False
        if self._transport is not None:
            self._transport.abort()

    async def wait_closed(self) -> None:
        """Wait until the system has let go of the connection."""
        await asyncio.shield(self._closed)

    # asyncio's callbacks

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Take a part of the answer in."""
        if self._waiter is None:
            self.abort()
            return
        self._heard = True
        parser = self._parser
        try:
            parser.feed(data)
        except BadAnswerError as error:
            self._fail(error)
            return
        if parser.is_complete or parser.is_over or (parser.is_dirty and parser.has_head):
            self._finish()

    def eof_received(self) -> None:
        """Let the transport close; `connection_lost` follows."""

    def connection_lost(self, error: Exception | None) -> None:
        """End a request that is out."""
        if not self._closed.done():
            self._closed.set_result(None)
        self.is_reusable = False
        if self._waiter is None:
            return
        if self._parser.has_head:
            self._finish()
        elif self.exchanges > 1 and not self._heard:
            self._fail(StaleError("the destination ended a connection that was kept"))
        elif isinstance(error, OSError):
            self._fail(error)
        else:
            self._fail(ConnectionResetError("the destination ended the connection without an answer"))

    def _time_out(self) -> None:
        if self._waiter is None:
            return
        if self._parser.has_head:
            self._finish()
        else:
            self._fail(TimeoutError("the destination didn't answer in time"))

    def _finish(self) -> None:
        parser = self._parser
        waiter = self._settle()
        transport = self._transport
        assert transport is not None, "there was a request"
        is_whole = parser.is_complete and not parser.is_dirty and not transport.get_write_buffer_size()
        if is_whole and parser.is_kept and not transport.is_closing():
            self.is_reusable = True
        else:
            transport.abort()
        if not waiter.done():
            waiter.set_result(Answer(parser.status, parser.retry_after, parser.body))

    def _fail(self, error: Exception) -> None:
        waiter = self._settle()
        self.abort()
        if not waiter.done():
            waiter.set_exception(error)

    def _settle(self) -> asyncio.Future[Answer]:
        waiter = self._waiter
        assert waiter is not None, "there was a request"
        self._waiter = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        return waiter
