"""One connection of a client: HTTP/1.1 in, answers in the order of their requests.

Invariants: bounded in heads, bodies, requests sent ahead, and time; a request that can't be taken is answered
and ends the connection, so that nothing behind it is mistaken for a request; an answer goes to its request
also where later ones are done first.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final, Protocol, cast

import httptools

from forebay.deliver.values import Request
from forebay.relay.answer import problem
from forebay.relay.settings import RelayLimits
from forebay.relay.tokens import Tokens

__all__ = ["Connection", "Host", "Reply"]

_AHEAD_MAX: Final = 256
"""Requests of one connection that wait for their answers before reading pauses."""
_READ_BYTES: Final = 256 << 10
"""The most that comes at one time: the body of one request and the head of the next, say."""
_LINGER_SECONDS: Final = 2.0
_LINGER_BYTES_MAX: Final = 64 << 20
_CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"
_CLOSE: Final = b"connection: close\r\n"
_WHO: Final = 'www-authenticate: Bearer realm="forebay relay"\r\n'
_OF_CONNECTION: Final = frozenset(
    (b"connection", b"keep-alive", b"proxy-connection", b"te", b"trailer", b"transfer-encoding", b"upgrade",
     b"host", b"content-length", b"expect", b"proxy-authorization", b"proxy-authenticate")
)  # fmt: skip
"""Headers that are about a connection, and not kept."""
_OF_CONNECTION_AND_CLIENT: Final = _OF_CONNECTION | {b"authorization"}
"""Likewise, where clients show a token: it is for the relay, and not for the destination."""
_OPEN_PAGES: Final = (b"/healthz", b"/readyz")
"""Pages that anyone may see: probes know no token."""
_NEEDED: Final = frozenset((b"content-length", b"transfer-encoding", b"expect", b"host", b"authorization"))
"""Of these, those that say how the body comes; and who sends it, where that is asked."""


class Reply:
    """The answer to one request, once it is there."""

    __slots__ = ("_connection", "answer", "keeps_alive", "size")

    def __init__(self, connection: Connection, size: int, *, keeps_alive: bool) -> None:
        self._connection = connection
        self.answer: bytes | None = None
        self.size = size
        self.keeps_alive = keeps_alive

    def __call__(self, answer: bytes) -> None:
        """Answer; the head ends with an empty line."""
        self.answer = answer
        self._connection.flush(self)


class Host(Protocol):
    """State that all connections share."""

    limits: RelayLimits
    pending_bytes: int
    """Bodies that are received, or wait for their answers."""
    tokens: Tokens | None
    """The tokens of clients; None where none is asked for."""

    def accept(self, request: Request, reply: Reply) -> None:
        """Take a whole request in; `reply` is called once."""
        ...

    def refused(self, status: int) -> None:
        """Count a request that never became one."""
        ...

    def opened(self, connection: Connection) -> bool:
        """Take in a connection, unless there are too many."""
        ...

    def closed(self, connection: Connection) -> None:
        """Forget a connection."""
        ...


class Connection(asyncio.Protocol):
    """A client's connection."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._limits = host.limits
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport = cast("asyncio.Transport", None)
        self._parser = httptools.HttpRequestParser(self)
        self._replies: deque[Reply] = deque()
        self._is_over = False
        self._linger_left = _LINGER_BYTES_MAX
        self._is_reading = True
        self._unwritten_since: float | None = None
        self._head_bytes = 0
        self._in_head = False
        self._began_at: float | None = None
        """When the request that is being received began."""
        self._touched_at = self._loop.time()
        self._wants_continue = False
        self._is_offered = False
        """The request that comes offers another protocol."""
        self._clear()

    def _clear(self) -> None:
        self._url = b""
        self._headers: list[tuple[bytes, bytes]] = []
        self._dropped = _OF_CONNECTION if self._host.tokens is None else _OF_CONNECTION_AND_CLIENT
        self._body: list[bytes] = []
        self._size = 0

    # asyncio's callbacks

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin, unless there are too many."""
        self._transport = cast("asyncio.Transport", transport)
        if not self._host.opened(self):
            self._refuse(503, "too many connections are open", "try again soon", extra="retry-after: 1\r\n")

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's signature
        """Forget what wasn't received; what was is kept and answered to nobody."""
        self._is_over = True
        self._host.pending_bytes -= self._size
        self._size = 0
        self._host.closed(self)

    def eof_received(self) -> bool:
        """The client sends no more: answers that are due still go out."""
        if not self._replies:
            return False
        self._replies[-1].keeps_alive = False
        return True

    def data_received(self, data: bytes) -> None:
        """Take bytes in."""
        if self._is_over:
            self._linger_left -= len(data)
            if self._linger_left < 0:
                self._transport.abort()
            return
        self._touched_at = self._loop.time()
        self._parse(data)
        if self._in_head:
            self._head_bytes += len(data)
            if self._head_bytes > self._limits.header_bytes_max + _READ_BYTES:
                self._refuse_head()
        if len(self._replies) >= _AHEAD_MAX and self._is_reading:
            self._is_reading = False
            self._transport.pause_reading()

    def _parse(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as offer:
            self._decline(data[offer.args[0] :])
        except httptools.HttpParserError:
            self._refuse(400, "this is not an HTTP/1.1 request", "see RFC 9112")

    def _decline(self, rest: bytes) -> None:
        """Take a request that offers another protocol as if it didn't.

        The parser leaves the body to the other protocol, so it gets the head again, without the offer.
        """
        self._is_offered = False
        if self._is_over:
            return
        method, version = self._parser.get_method(), self._parser.get_http_version()
        if method == b"CONNECT":
            self._refuse(405, "CONNECT isn't relayed", "send POST, PUT, PATCH or DELETE")
            return
        dropped = self._dropped - _NEEDED | {b"connection", b"upgrade"}
        kept = [pair for pair in self._headers if pair[0].lower() not in dropped]
        head = b"%s %s HTTP/%s\r\n" % (method, self._url, version.encode())
        self._clear()
        self._parser = httptools.HttpRequestParser(self)
        self._parse(head + b"".join([b"%s: %s\r\n" % pair for pair in kept]) + b"\r\n" + rest)

    def pause_writing(self) -> None:
        """The client doesn't read its answers: take no more requests from it."""
        self._unwritten_since = self._loop.time()
        if self._is_reading:
            self._is_reading = False
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        """The client has read."""
        self._unwritten_since = None
        self._read_on()

    # The parser's callbacks

    def on_message_begin(self) -> None:
        """A request begins."""
        self._in_head = True
        self._began_at = self._touched_at

    def on_url(self, url: bytes) -> None:
        """A part of the target."""
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header; those behind a chunked body are left out."""
        if not self._in_head:
            return
        self._headers.append((name, value))
        if len(name) == 6 and name.lower() == b"expect":  # noqa: PLR2004 - the length of the word
            self._wants_continue = value.lower() == b"100-continue"
        elif len(name) == 10 and name.lower() == b"connection":  # noqa: PLR2004 - likewise
            named = {part.strip().lower() for part in value.split(b",")} - {b"close", b"keep-alive", b""}
            if named:
                self._dropped = self._dropped | named
        elif (
            len(name) == 14  # noqa: PLR2004 - likewise
            and name.lower() == b"content-length"
            and len(value) < 20  # noqa: PLR2004 - the parser refuses what is no number
            and value.isdigit()
            and int(value) > self._limits.body_bytes_max
        ):
            self._refuse_body()

    def on_headers_complete(self) -> None:
        """The head is there."""
        self._in_head = False
        self._head_bytes = 0
        if self._is_over:
            return
        if self._parser.should_upgrade():
            self._is_offered = True
            return
        size = len(self._url) + sum([len(name) + len(value) for name, value in self._headers])
        if len(self._headers) > self._limits.headers_max or size > self._limits.header_bytes_max:
            self._refuse_head()
        elif not self._is_known():
            self._refuse(401, "no token that is known here", "send Authorization: Bearer", extra=_WHO)
        elif self._wants_continue:
            self._continue()

    def _is_known(self) -> bool:
        """Let the client send what comes, or refuse it by its head, before a byte of the body is kept."""
        tokens = self._host.tokens
        if tokens is None or tokens.has(tuple(self._headers)):
            return True
        return self._parser.get_method() in (b"GET", b"HEAD") and self._url.partition(b"?")[0] in _OPEN_PAGES

    def _continue(self) -> None:
        """Ask for the body that the client holds back, after the answers to what came before."""
        if not self._replies and not self._transport.is_closing():
            self._wants_continue = False
            self._transport.write(_CONTINUE)

    def on_body(self, body: bytes) -> None:
        """A part of the body."""
        if self._is_over:
            return
        self._wants_continue = False
        self._body.append(body)
        self._size += len(body)
        self._host.pending_bytes += len(body)
        if self._size > self._limits.body_bytes_max:
            self._refuse_body()
        elif self._host.pending_bytes > self._limits.pending_bytes_max:
            text = "the relay has too many requests in hand"
            self._refuse(503, text, "try again soon", extra="retry-after: 1\r\n")

    def on_message_complete(self) -> None:
        """A request is whole."""
        if self._is_over or self._is_offered:
            return
        parser = self._parser
        dropped = self._dropped
        body = self._body
        request = Request(
            parser.get_method(),
            self._url,
            tuple([pair for pair in self._headers if pair[0].lower() not in dropped]),
            body[0] if len(body) == 1 else b"".join(body),
        )
        reply = Reply(self, self._size, keeps_alive=parser.should_keep_alive())
        self._replies.append(reply)
        self._began_at = None
        self._wants_continue = False
        self._clear()
        if not reply.keeps_alive:
            self._is_over = True  # whatever comes behind it is not for us
        self._host.accept(request, reply)

    # Answers

    def flush(self, reply: Reply) -> None:
        """Write what is due, in order."""
        self._host.pending_bytes -= reply.size
        replies = self._replies
        if not replies or replies[0] is not reply:
            return
        while replies and (answer := replies[0].answer) is not None:
            reply = replies.popleft()
            if self._transport.is_closing():
                continue
            if reply.keeps_alive:
                self._transport.write(answer)
            else:
                head, _, body = answer.partition(b"\r\n\r\n")
                self._transport.write(head + b"\r\n" + _CLOSE + b"\r\n" + body)
                self._close()
        self._touched_at = self._loop.time()
        if self._wants_continue and not self._in_head and not self._is_over:
            self._continue()
        if not self._is_reading:
            self._read_on()

    def _read_on(self) -> None:
        if not self._is_reading and self._unwritten_since is None and len(self._replies) < _AHEAD_MAX // 2:
            self._is_reading = True
            if not self._transport.is_closing():
                self._transport.resume_reading()

    # The end

    def look(self, now: float) -> None:
        """Cut off a client that takes too long, or that has nothing to say."""
        limits = self._limits
        if self._is_over:
            return
        if self._unwritten_since is not None and now - self._unwritten_since > limits.request_seconds:
            self._host.refused(408)
            self._transport.abort()
        elif (
            self._began_at is not None and now - self._began_at > limits.request_seconds and self._is_reading
        ):
            text = f"the request didn't come within {limits.request_seconds:g} seconds"
            self._refuse(408, text, "send it faster")
        elif self._began_at is None and not self._replies and now - self._touched_at > limits.idle_seconds:
            self._is_over = True
            self._transport.close()

    def stop(self) -> None:
        """The relay stops: close once everything that was asked is answered."""
        if self._replies:
            self._replies[-1].keeps_alive = False
        elif self._began_at is None or self._is_over:
            self._is_over = True
            self._transport.close()

    def abort(self) -> None:
        """End at once."""
        self._transport.abort()

    def _refuse_head(self) -> None:
        limits = self._limits
        text = f"the head is over {limits.header_bytes_max} bytes or {limits.headers_max} headers"
        self._refuse(431, text, "send fewer and shorter headers")

    def _refuse_body(self) -> None:
        text = f"the body is over {self._limits.body_bytes_max} bytes"
        self._refuse(413, text, "send less at once, or raise relay.limits.body_bytes_max")

    def _refuse(self, status: int, detail: str, hint: str, *, extra: str = "") -> None:
        """Answer what isn't a request, after those before it, and end."""
        if self._is_over:
            return
        self._is_over = True
        self._in_head = False
        self._host.refused(status)
        self._host.pending_bytes -= self._size
        self._clear()
        reply = Reply(self, 0, keeps_alive=False)
        self._replies.append(reply)
        reply(problem(status, detail, hint, extra=extra))

    def _close(self) -> None:
        """Say that nothing more is written, and throw away what comes for a moment.

        A socket that is closed while something is unread resets the connection, and takes the answer with it.
        """
        self._is_over = True
        if self._transport.is_closing():
            return  # the last write has found it reset; uvloop raises where more is asked of it
        if self._transport.can_write_eof():
            self._transport.write_eof()
            if not self._is_reading and not self._transport.is_closing():
                self._is_reading = True
                self._transport.resume_reading()
            self._loop.call_later(_LINGER_SECONDS, self._transport.abort)
        elif self._began_at is not None:  # TLS can't be closed by half, and the rest of a request still comes
            self._loop.call_later(_LINGER_SECONDS, self._transport.close)
        else:
            self._transport.close()
