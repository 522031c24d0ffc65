"""Connections that can't hold the server up: bounded in number, in the size of heads, and in time.

On top of uvicorn's protocol, which bounds none of these. Invariants: a connection that isn't being answered
has a timer; a head never takes more than `header_bytes_max`; one that is closed while its client doesn't read
is aborted, so that nothing is kept for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from http import HTTPStatus
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from forebay.api.answers import encode_json
from forebay.api.counters import Counters
from forebay.api.settings import ServerLimits
from forebay.wire.media import PROBLEM
from forebay.wire.problems import Problem


class BoundedProtocol(HttpToolsProtocol):
    """See the module; `limits` and `counters` are set by `bounded`."""

    limits: ServerLimits
    counters: Counters
    _head_bytes = 0
    _in_head = True
    _head_timer: asyncio.TimerHandle | None = None
    _refusal: tuple[HTTPStatus, str, str] | None = None

    def connection_made(self, transport: Any) -> None:
        """Count the connection, or turn it away."""
        super().connection_made(transport)
        self.counters.connections = len(self.connections)
        if len(self.connections) > self.limits.connections_max:
            text = f"there are {self.limits.connections_max} connections already"
            self._refuse(HTTPStatus.SERVICE_UNAVAILABLE, text, "try again, or use fewer connections")
            return
        self._start_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        """Let go of the timer with the connection."""
        self._stop_timer()
        super().connection_lost(exc)
        self.counters.connections = len(self.connections)

    def data_received(self, data: bytes) -> None:
        """Take in data, and no more of a head than may be."""
        if self.transport.is_closing():
            return
        super().data_received(data)
        if self._in_head:
            self._head_bytes += len(data)
            if self._head_bytes > self.limits.header_bytes_max and not self.transport.is_closing():
                self._refuse_head()

    def on_message_begin(self) -> None:
        """A request begins: its head must come in time."""
        super().on_message_begin()
        self._in_head, self._head_bytes = True, 0
        self._start_timer()

    def on_headers_complete(self) -> None:
        """The head is there: from now on the time of the request is the application's."""
        self._stop_timer()
        self._in_head = False
        size = len(self.url) + sum(len(name) + len(value) for name, value in self.headers)
        if size > self.limits.header_bytes_max:
            self._refuse_head()
            return
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Take in a part of the body, unless the request was turned away."""
        if self._refusal is None:
            super().on_body(body)

    def on_message_complete(self) -> None:
        """The request is whole, unless it was turned away."""
        if self._refusal is None:
            super().on_message_complete()

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002 - uvicorn's words
        """Answer what is no HTTP."""
        if self._refusal is None:
            self._refuse(HTTPStatus.BAD_REQUEST, "this is no HTTP/1.1 request", "see RFC 9112")

    def timeout_keep_alive_handler(self) -> None:
        """Close a connection that was idle for too long, also when its client doesn't read."""
        if self.transport.get_write_buffer_size():
            self.transport.abort()
        else:
            super().timeout_keep_alive_handler()

    def _start_timer(self) -> None:
        if self._head_timer is None:
            self._head_timer = self.loop.call_later(self.limits.request_seconds, self._late)

    def _stop_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _late(self) -> None:
        text = f"no request came within {self.limits.request_seconds:g} seconds"
        self._refuse(HTTPStatus.REQUEST_TIMEOUT, text, "send it faster")

    def _refuse_head(self) -> None:
        text = f"the head of the request is over {self.limits.header_bytes_max} bytes"
        self._refuse(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, text, "send shorter headers")

    def _refuse(self, status: HTTPStatus, detail: str, hint: str) -> None:
        """Answer without asking the application, and close."""
        self._refusal = (status, detail, hint)
        self._stop_timer()
        self.counters.refused[status.phrase.lower()] += 1
        cycle: Any = self.cycle  # None before the first request
        busy = cycle is not None and not cycle.response_complete
        if not busy and not self.transport.is_closing():
            body = encode_json(
                Problem(
                    type="urn:forebay:problem:refused",
                    title=status.phrase,
                    status=status,
                    detail=detail,
                    hint=hint,
                )
            )
            head = (
                f"HTTP/1.1 {status.value} {status.phrase}\r\ncontent-type: {PROBLEM}\r\n"
                f"content-length: {len(body)}\r\nretry-after: 1\r\nconnection: close\r\n\r\n"
            )
            self.transport.write(head.encode() + body)
        self.transport.close()


def bounded(limits: ServerLimits, counters: Counters) -> Callable[..., BoundedProtocol]:
    """The class of connections with these limits."""
    return type("Connection", (BoundedProtocol,), {"limits": limits, "counters": counters})
