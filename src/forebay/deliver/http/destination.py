"""HttpDestination: requests over HTTP/1.1, on connections that are kept.

Redirects aren't followed: a 3xx is a failure of class client_error. A connection that was kept and has ended
before any byte of the answer came costs one more try, on a new connection; delivery is at least once anyway.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable
from typing import Final

from forebay.deliver.backoff import retry_after_seconds
from forebay.deliver.failure import AUTH_STATUSES, failed, of_status
from forebay.deliver.http.connection import Answer, StaleError
from forebay.deliver.http.pool import ConnectionPool
from forebay.deliver.http.tls import client_context
from forebay.deliver.settings import DestinationSettings
from forebay.deliver.signature import SIGNATURE_HEADERS, signature_headers
from forebay.deliver.values import Headers, Outcome, Prepared, Request, header
from forebay.model import Rejected

__all__ = ["HttpDestination"]

_OF_CONNECTION: Final = frozenset(
    (
        *(
            b"connection",
            b"keep-alive",
            b"proxy-connection",
            b"te",
            b"trailer",
            b"transfer-encoding",
            b"upgrade",
        ),
        *(
            b"host",
            b"content-length",
            b"expect",
            b"proxy-authorization",
            b"proxy-authenticate",
            b"accept-encoding",
        ),
    )
)
"""Headers that are about a connection or its answers, and not passed on."""
_AUTHORIZATION: Final = b"authorization"
_METHOD: Final = re.compile(rb"[A-Z]{3,16}")
_METHODS_REFUSED: Final = frozenset((b"HEAD", b"CONNECT", b"TRACE"))
_TARGET: Final = re.compile(rb"/[\x21-\x7e\x80-\xff]*")
_NAMES: Final = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]*")
_ID: Final = re.compile(r"[\x21-\x2d\x2f-\x7e]{1,128}")
"""What a webhook-id may be: no dots, since those separate what is signed."""


class HttpDestination:
    """A destination over HTTP. Used by one event loop; `prepare` by any thread.

    With `sends_id` a request that isn't signed has its `webhook-id`, too.
    """

    def __init__(
        self,
        settings: DestinationSettings,
        *,
        sends_id: bool = False,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._settings = settings
        self._sends_id = sends_id
        self._address = settings.address
        self._wall = wall
        self._keys = settings.signing_keys
        self._agent = b"User-Agent: forebay\r\n"
        self._last: tuple[tuple[bytes, bytes, Headers], bytes] = ((b"", b"", ()), b"")
        """The start of the last head and what it was made of: clients send the same one again and again."""
        self.use_headers(settings.fixed_headers)
        tls = client_context(settings.tls) if self._address.is_tls else None
        self._pool = ConnectionPool(settings, tls)
        self._slots = asyncio.Semaphore(settings.concurrency)
        self.stale = 0
        """Connections that had ended when they were used again."""

    @property
    def name(self) -> str:
        """The address, without secrets."""
        return self._address.name

    def use_headers(self, fixed: Headers) -> None:
        """Send these headers with all requests that are prepared from now on."""
        own = frozenset(name.lower() for name, _ in fixed)
        ours = SIGNATURE_HEADERS if self._keys or self._sends_id else frozenset()
        self._fixed = b"".join(b"%s: %s\r\n" % pair for pair in fixed)
        self._left_out = _OF_CONNECTION | own | ours
        self._has_agent = b"user-agent" in own
        self._last = ((b"", b"", ()), b"")

    def prepare(self, request: Request, *, id: str) -> Prepared:
        """Make the head of a request."""
        if (self._keys or self._sends_id) and not _ID.fullmatch(id):
            raise Rejected(f"the id {id[:64]!r} can't be a webhook-id", hint="use letters, digits, - and _")
        known, start = self._last
        given = (request.method, request.target, request.headers)
        if known != given:
            start = self._start(request)
            self._last = (given, start)
        head = b"%sContent-Length: %d\r\n" % (start, len(request.body))
        return Prepared(id, request, head, request.body)

    def _start(self, request: Request) -> bytes:
        """The head of a request but for its length; checked, since it comes from others."""
        if not _METHOD.fullmatch(request.method) or request.method in _METHODS_REFUSED:
            raise Rejected(f"the method {_shown(request.method)} can't be delivered", hint="use POST")
        if not _TARGET.fullmatch(request.target):
            raise Rejected(f"the path {_shown(request.target)} can't be sent", hint="percent-encode it")
        left_out = self._left_out
        headers = [pair for pair in request.headers if pair[0].lower() not in left_out]
        lines = b"".join([b"%s: %s\r\n" % pair for pair in headers])
        if lines.count(b"\n") != len(headers) or lines.count(b"\r") != len(headers) or b"\0" in lines:
            raise Rejected("a header holds the end of a line", hint="remove it")
        if not _NAMES.fullmatch(b"".join([name for name, _ in headers])) or any(
            not name for name, _ in headers
        ):
            raise Rejected("the name of a header holds characters that it may not have", hint="rename it")
        has_agent = self._has_agent or any(name.lower() == b"user-agent" for name, _ in headers)
        return b"%s %s HTTP/1.1\r\nHost: %s\r\n%s%s%s" % (
            request.method,
            request.target,
            self._address.authority,
            lines,
            self._fixed,
            b"" if has_agent else self._agent,
        )

    async def send(self, prepared: Prepared) -> Outcome:
        """Send it once; every failure is an outcome."""
        deadline = asyncio.get_running_loop().time() + self._settings.timeout_seconds
        try:
            await self._wait_for_slot(deadline)
        except TimeoutError:
            return failed(TimeoutError(), "no connection was free in time")
        try:
            answer = await self._exchange(self._head(prepared), prepared.body, deadline)
        except OSError as error:
            return failed(error, f"{self._address.authority.decode()}: {_reason(error)}")
        finally:
            self._slots.release()
        asked = answer.retry_after
        pause = None if asked is None else retry_after_seconds(asked, self._wall())
        return of_status(
            answer.status,
            answer=answer.body,
            retry_after_seconds=pause,
            retries_auth=answer.status in AUTH_STATUSES and self._retries_auth(prepared.request),
        )

    def _retries_auth(self, request: Request) -> bool:
        """Tell if credentials may become good by waiting: those that a request brought itself don't."""
        if not self._settings.retry_auth:
            return False
        return _AUTHORIZATION in self._left_out or header(request.headers, _AUTHORIZATION) is None

    async def close(self) -> None:
        """End all connections."""
        await self._pool.close()

    def _head(self, prepared: Prepared) -> bytes:
        if not self._keys:
            named = b"webhook-id: %s\r\n" % prepared.id.encode("ascii") if self._sends_id else b""
            return prepared.head + named + b"\r\n"
        signed = signature_headers(self._keys, prepared.id, int(self._wall()), prepared.body)
        return prepared.head + b"".join(b"%s: %s\r\n" % pair for pair in signed) + b"\r\n"

    async def _wait_for_slot(self, deadline: float) -> None:
        if not self._slots.locked():
            await self._slots.acquire()
            return
        async with asyncio.timeout_at(deadline):
            await self._slots.acquire()

    async def _exchange(self, head: bytes, body: bytes, deadline: float) -> Answer:
        connection = self._pool.take()
        if connection is not None:
            try:
                return await connection.exchange(head, body, deadline)
            except StaleError:
                self.stale += 1
            finally:
                self._pool.give(connection)
        connection = await self._pool.connect(deadline)
        try:
            return await connection.exchange(head, body, deadline)
        finally:
            self._pool.give(connection)


def _reason(error: OSError) -> str:
    return error.strerror or str(error) or type(error).__name__


def _shown(part: bytes) -> str:
    return repr(part[:64])[1:]
