"""The application: finds the route of a request, runs it within its time, and answers, whatever happens.

Invariants: every request is answered or its connection closed; every error is a problem that says what to do;
what is not one of ours is reported and answered 500 without its text.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from itertools import count
from secrets import token_hex
from time import perf_counter
from typing import Any, Final

from forebay.api.answers import Answer, Header, Stream, encode_json
from forebay.api.bodies import Gone
from forebay.api.browser_guard import check_browser
from forebay.api.calls import Call
from forebay.api.context import Context
from forebay.api.keys import ANYONE
from forebay.api.queen.faults import ANY_ORIGIN, fault, is_foreign, preflight
from forebay.api.routing import Route, Router, WrongMethod
from forebay.api.unread import SMALL_BYTES
from forebay.model import Corrupt, ForebayError, Rejected, Unavailable
from forebay.wire.media import PROBLEM
from forebay.wire.problems import Problem, problem_of

Send = Callable[[Any], Awaitable[None]]

logger: Final = logging.getLogger("forebay.api")
_ID_CHARACTERS_MAX: Final = 128
_PREFIX: Final = token_hex(6)
"""Tells the requests of this process from those of all others."""
_numbers: Final = count(1)


class Late(Unavailable):
    """The request did not arrive in time."""

    status = 408


class Application:
    """The ASGI application."""

    def __init__(self, context: Context, routes: Sequence[Route]) -> None:
        self.context = context
        self.router = Router(routes)

    async def __call__(self, scope: Any, receive: Any, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            return
        began = perf_counter()
        call = Call(self.context, scope, receive, _request_id(scope))
        try:
            try:
                answer = await self._run(call)
            except ForebayError as error:
                answer = self._problem(call, error)
            except asyncio.CancelledError:
                if not self.context.draining.is_set():
                    raise
                answer = self._problem(call, _stopped())
            seconds = perf_counter() - began  # without what the client takes to read it
            await self._send(call, answer, send)
        except Gone:
            self.context.counters.refused["client left"] += 1
            return
        except Exception:
            logger.exception("%s %s failed", scope["method"], _path_of(call), extra={"request_id": call.id})
            answer = Answer(encode_json(_unexpected(call.id)), status=500, media=PROBLEM)
            seconds = perf_counter() - began
            await self._send(call, answer, send)
        finally:
            call.release()
        self._count(call, answer.status, seconds)

    async def _run(self, call: Call) -> Answer:
        context, scope = self.context, call.scope
        if scope["method"] == "OPTIONS" and is_foreign(scope["raw_path"]):
            return preflight()
        call.route, call.params = self.router.find(scope["method"], scope["raw_path"])
        if context.keys is not None and call.route.scope is not None:
            call.key = context.keys.admit(call.header(b"authorization"), call.route.scope)
            if not call.route.checks_queues:
                call.key.check(call.route.scope, call.params.get("queue"))
        if call.route.scope is not None and call.key is ANYONE:
            own_origin = call.route.scope != "read" or is_foreign(scope["raw_path"])
            check_browser(dict(scope["headers"]), context.known_hosts, own_origin=own_origin)
        if call.route.query is None and scope["query_string"]:
            raise Rejected("there is a query, but this path takes none", hint="leave it out")
        call.deadline = context.deadlines.begin()
        try:
            if not call.route.bulk:
                return self._made(call, await call.route.run(call))
            async with call.reading():
                return self._made(call, await call.route.run(call))
        except asyncio.CancelledError as error:
            if not call.deadline.explains(error):
                raise
            raise _late(call) from None
        finally:
            context.deadlines.finish(call.deadline)

    def _made(self, call: Call, answer: Answer) -> Answer:
        """The answer, encoded and counted; Unavailable where there is no room for it and nothing was changed.

        Reads are looked at here once more, since others were answered meanwhile; takes do it themselves.
        """
        if isinstance(answer, Stream):
            return answer
        answer.encode(packed=answer.media is None and call.packed)
        size = 0 if answer.value is None else len(answer.value)
        if call.route.scope == "read":
            call.claim_room(size)
        else:
            call.hold(size if size > SMALL_BYTES else 0)
        return answer

    async def _send(self, call: Call, answer: Answer, send: Send) -> None:
        answer.encode(packed=answer.media is None and call.packed)
        body, media = answer.value, answer.media
        headers: list[Header] = [(b"x-request-id", call.id.encode("latin-1")), *answer.headers]
        if is_foreign(call.scope["raw_path"]):
            headers += ANY_ORIGIN
        if isinstance(answer, Stream):
            headers.append((b"content-type", (answer.media or "").encode()))
            await self._send_pieces(call, answer, headers, send)
            return
        if media:
            headers += [(b"content-type", media.encode()), (b"content-length", b"%d" % len(body))]
        if not call.body_is_read and _has_body(call):
            headers.append((b"connection", b"close"))  # else the rest of it would be read for nothing
        respond = call.scope.get("forebay.respond")
        if respond is not None:
            await respond(answer.status, b"".join([b"%b: %b\r\n" % header for header in headers]), body)
            return
        await send({"type": "http.response.start", "status": answer.status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    async def _send_pieces(self, call: Call, answer: Stream, headers: list[Header], send: Send) -> None:
        """Send what comes, until there is nothing more or the client has left."""
        await send({"type": "http.response.start", "status": answer.status, "headers": headers})
        if call.scope["method"] != "HEAD":
            async with aclosing(answer.pieces) as pieces:
                async for piece in pieces:
                    await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    def _problem(self, call: Call, error: ForebayError) -> Answer:
        self.context.counters.errors[error.label] += 1
        if isinstance(error, Corrupt):
            logger.error("%s", error, extra={"request_id": call.id})
        problem = problem_of(error, call.id, accepted=call.accepted)
        foreign = is_foreign(call.scope["raw_path"])
        headers: list[Header] = []
        if problem.retry_after_seconds is not None:
            headers.append((b"retry-after", b"%d" % max(1, math.ceil(problem.retry_after_seconds))))
        if isinstance(error, WrongMethod):
            headers.append((b"allow", ", ".join(error.allowed).encode()))
        if problem.status == 401:  # noqa: PLR2004 - what the number means is HTTP's to say
            headers.append((b"www-authenticate", b'Bearer realm="forebay"'))
        if foreign:
            return Answer(fault(problem), status=problem.status, headers=headers)
        return Answer(encode_json(problem), status=problem.status, headers=headers, media=PROBLEM)

    def _count(self, call: Call, status: int, seconds: float) -> None:
        route = getattr(call, "route", None)
        path = "(none)" if route is None else route.path
        timed = route is not None and not route.waits
        self.context.counters.answered(
            call.scope["method"] if route else "(any)", path, status, seconds, timed=timed
        )
        if logger.isEnabledFor(logging.DEBUG):
            details = {"request_id": call.id, "status": status, "seconds": round(seconds, 6)}
            logger.debug("%s %s %d", call.scope["method"], _path_of(call), status, extra=details)


def _request_id(scope: Any) -> str:
    """The id that the client gave, if it can be given back in a header; else one of ours."""
    for name, value in scope["headers"]:
        if name == b"x-request-id" and 0 < len(value) <= _ID_CHARACTERS_MAX and value.isascii():
            text: str = value.decode()
            if text.isprintable():
                return text
    return f"{_PREFIX}-{next(_numbers):x}"


def _has_body(call: Call) -> bool:
    length = call.header(b"content-length")
    return call.header(b"transfer-encoding") is not None or (length is not None and length != "0")


def _late(call: Call) -> ForebayError:
    seconds = call.context.settings.limits.request_seconds
    if not call.body_is_read and _has_body(call):
        text = f"the request did not arrive within {seconds:g} seconds"
        return Late(text, hint="send it faster, or less at once", retry_after_seconds=1.0)
    text = f"the request took longer than {seconds:g} seconds"
    hint = "nobody knows what became of it: repeat it with the same Idempotency-Key"
    return Unavailable(text, hint=hint, retry_after_seconds=1.0)


def _stopped() -> ForebayError:
    hint = "nobody knows what became of it: repeat it with the same Idempotency-Key"
    return Unavailable("the server stopped before this was done", hint=hint, retry_after_seconds=1.0)


def _path_of(call: Call) -> str:
    return str(call.scope["raw_path"].decode("latin-1"))


def _unexpected(request_id: str) -> Problem:
    return Problem(
        type="urn:forebay:problem:unexpected",
        title="The server failed",
        status=500,
        detail="something failed that should not have",
        hint="look for the request id in the server's log",
        request_id=request_id,
    )
