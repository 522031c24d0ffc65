"""Requests to a server: connections that are kept, attempts that are repeated, problems that become errors.

Invariants: a request is sent again only if it may be, or if the server can't have seen it; all attempts of a
request together have one deadline; connections are bounded, and those on which a take waits are not those
that everything else needs; no error tells the key.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from random import random
from typing import Any, Final

import aiohttp
import msgspec
from yarl import URL

from forebay.client.address import checked_key, parse_server, trust
from forebay.client.pausing import pause_seconds
from forebay.model import ForebayError, Misconfigured, Rejected, Unavailable
from forebay.wire.media import MSGPACK, PROBLEM, WAITED
from forebay.wire.problems import Problem, error_of

CONNECT_SECONDS_MAX: Final = 5.0
PIECE_BYTES_MAX: Final = 1 << 20
"""A larger body is not written at once: others would have to wait for it."""
IDLE_SECONDS: Final = 30.0
"""How long an idle connection is kept: less than a server does, so that it isn't cut while it is used."""
_UNSEEN: Final = frozenset({408, 429})
"""Answers to requests that were not worked on."""
_LATER: Final = frozenset({408, 429, 502, 503, 504})
"""Answers that may be others a little later."""
_problem: Final = msgspec.json.Decoder(Problem)


@dataclass(frozen=True, slots=True)
class Ask:
    """A request."""

    method: str
    path: str
    body: bytes | None = None
    media: str = MSGPACK
    repeats: bool = True
    """Whether doing it twice is the same as doing it once."""
    wait_seconds: float = 0.0
    """How long the server may wait before it answers."""
    id: str | None = None
    """The Idempotency-Key."""
    waited_seconds: float | None = None
    """How long it has waited in a spool, if it has."""
    attempts_max: int | None = None
    """How often it is sent at most; None for as often as there is time."""


@dataclass(frozen=True, slots=True)
class Reply:
    """The last answer to a request."""

    body: bytes = b""
    error: ForebayError | None = None
    in_doubt: bool = False
    """Whether an earlier attempt may have been worked on, though its answer is unknown."""


class NotForebayError(Rejected):
    """Somebody answered, such as a proxy, who knows nothing of what was asked."""


class _Failed(Exception):  # noqa: N818 - what happened to an attempt
    """An attempt has failed."""

    def __init__(self, error: ForebayError, *, seen: bool, later: bool) -> None:
        super().__init__()
        self.error = error
        self.seen = seen
        """Whether the server may have worked on it."""
        self.later = later
        """Whether another attempt may succeed."""


class Caller:
    """Sends requests to one server. Opened and closed by whoever owns it."""

    def __init__(
        self,
        url: str,
        *,
        key: str | None,
        ca_file: str | Path | None,
        timeout_seconds: float,
        connections_max: int,
    ) -> None:
        self.server = parse_server(url)
        self._headers = {"Accept": MSGPACK, "User-Agent": "forebay"}
        if (key := checked_key(key)) is not None:
            self._headers["Authorization"] = f"Bearer {key}"
        if not timeout_seconds > 0 or connections_max < 1:
            text = f"timeout_seconds is {timeout_seconds} and connections_max is {connections_max}"
            raise Misconfigured(text, hint="both must be more than 0")
        self._trust = trust(self.server, ca_file)
        self._timeout_seconds = timeout_seconds
        self._connections_max = connections_max
        self._quick: aiohttp.ClientSession | None = None
        self._patient: aiohttp.ClientSession | None = None

    @property
    def is_open(self) -> bool:
        """Whether requests can be sent."""
        return self._quick is not None

    def open(self) -> None:
        """Make ready; connections are made when they are needed."""
        if self._quick is not None:
            raise Rejected("the client is open already", hint="open it once, and share it")
        self._quick, self._patient = self._session(), self._session()

    async def close(self) -> None:
        """Close all connections; twice does nothing more."""
        sessions, self._quick, self._patient = (self._quick, self._patient), None, None
        for session in sessions:
            if session is not None:
                await session.close()

    def _session(self) -> aiohttp.ClientSession:
        connector = aiohttp.TCPConnector(
            limit=self._connections_max, keepalive_timeout=IDLE_SECONDS, ssl=self._trust
        )
        return aiohttp.ClientSession(connector=connector, headers=self._headers, auto_decompress=False)

    async def ask(self, ask: Ask) -> Reply:
        """Send a request, again if need be; the last answer, or Unavailable once the time is up."""
        now = asyncio.get_running_loop().time
        deadline = now() + self._timeout_seconds
        attempt, in_doubt, last = 0, False, (ask.attempts_max or 0) - 1
        while True:
            try:
                return Reply(await self._once(ask, deadline - now()), in_doubt=in_doubt)
            except _Failed as failed:
                error, may_repeat = failed.error, failed.later and (ask.repeats or not failed.seen)
                asked = error.retry_after_seconds if isinstance(error, Unavailable) else None
                pause = pause_seconds(attempt, random(), asked)  # noqa: S311 - it only spreads
                if not may_repeat or attempt == last or now() + pause >= deadline:
                    return Reply(error=_explained(failed, ask), in_doubt=in_doubt)
                in_doubt = in_doubt or failed.seen
            attempt += 1
            await asyncio.sleep(pause)

    async def _once(self, ask: Ask, seconds: float) -> bytes:
        session = self._patient if ask.wait_seconds else self._quick
        if session is None:
            raise Rejected("the client is not open", hint="use it within `async with`")
        timeout = aiohttp.ClientTimeout(
            total=max(0.001, seconds) + ask.wait_seconds,
            sock_connect=min(CONNECT_SECONDS_MAX, max(0.001, seconds)),
        )
        headers = {} if ask.body is None else {"Content-Type": ask.media}
        if ask.id is not None:
            headers["Idempotency-Key"] = ask.id
        if ask.waited_seconds is not None:
            headers[WAITED] = f"{ask.waited_seconds:.6f}"
        url = URL(self.server + ask.path, encoded=True)
        try:
            async with session.request(
                ask.method,
                url,
                data=_sendable(ask.body),
                headers=headers,
                timeout=timeout,
                allow_redirects=False,
            ) as response:
                body = await response.read()
                if response.status < 300:  # noqa: PLR2004 - success, by RFC 9110
                    return body
                raise self._refused(response, body)
        except (aiohttp.ClientError, OSError) as error:  # TimeoutError is an OSError
            raise self._cut(error) from None

    def _refused(self, response: aiohttp.ClientResponse, body: bytes) -> _Failed:
        """What the server said."""
        status = response.status
        if response.content_type == PROBLEM:
            try:
                error = error_of(_problem.decode(body))
            except (msgspec.MsgspecError, UnicodeDecodeError, ValueError):
                error = self._stranger(status)
        else:
            error = self._stranger(status)
        if isinstance(error, Unavailable) and error.retry_after_seconds is None:
            error.retry_after_seconds = _seconds(response.headers.get("Retry-After"))
        return _Failed(error, seen=status not in _UNSEEN, later=status in _LATER)

    def _stranger(self, status: int) -> ForebayError:
        text = f"{self.server} answered {status}, and not as a Forebay server does"
        hint = "check the address"
        error = error_of(Problem(type="", title="", status=status, detail=text, hint=hint))
        return NotForebayError(text, hint=hint) if type(error) is Rejected else error

    def _cut(self, error: Exception) -> _Failed:
        """What the network said. Its own words are left out where they could quote the request."""
        if isinstance(error, aiohttp.ClientConnectorCertificateError | aiohttp.ClientConnectorSSLError):
            text = f"{self.server} can't prove who it is: {_reason(error)}"
            wrong = Misconfigured(text, hint="give the certificate that signed its own as ca_file")
            return _Failed(wrong, seen=False, later=False)
        if isinstance(error, aiohttp.InvalidURL):
            return _Failed(Misconfigured("this is no address of a server"), seen=False, later=False)
        if isinstance(error, aiohttp.ClientConnectorError | aiohttp.ConnectionTimeoutError):
            text = f"there is no server at {self.server}"
            hint = "start it with `forebay serve`, or check the address"
            return _Failed(Unavailable(text, hint=hint), seen=False, later=True)
        what = "did not answer in time" if isinstance(error, TimeoutError) else "has cut the connection"
        return _Failed(Unavailable(f"{self.server} {what}", hint="try again"), seen=True, later=True)


def _sendable(body: bytes | None) -> bytes | BytesIO | None:
    """A body; a large one as a file, which is sent piece by piece."""
    return body if body is None or len(body) <= PIECE_BYTES_MAX else BytesIO(body)


def decoded(body: bytes, decoder: msgspec.msgpack.Decoder[Any]) -> Any:
    """An answer as a value."""
    try:
        return decoder.decode(body)
    except msgspec.MsgspecError as error:
        text = f"the server's answer can't be read: {error}"
        raise Unavailable(text, hint="is it a Forebay of another version?") from None


def _explained(failed: _Failed, ask: Ask) -> ForebayError:
    """The error, with what it means for a request that may not be sent twice."""
    error = failed.error
    if failed.later and failed.seen and not ask.repeats:
        text = f"{error.message}; nobody knows whether it was done"
        return Unavailable(text, hint="look, and then ask again if it wasn't")
    return error


def _reason(error: aiohttp.ClientConnectorCertificateError | aiohttp.ClientConnectorSSLError) -> str:
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return getattr(error.certificate_error, "verify_message", "") or "its certificate is not trusted"
    return "it does not speak TLS as we do"


def _seconds(text: str | None) -> float | None:
    """A Retry-After in seconds; dates are left out, as ours has none."""
    return float(text) if text is not None and text.isdigit() and len(text) < 10 else None  # noqa: PLR2004
