"""One request on its way through the server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final, TypeVar

from forebay.api.bodies import Budget, Gone, Receive, Unpacker, Unsupported, pieces, read_body, too_large
from forebay.api.deadlines import Deadline
from forebay.api.decoding import decode_json, decode_msgpack, decode_query, field_names
from forebay.api.keys import ANYONE, Key
from forebay.api.routing import Route
from forebay.api.unread import SMALL_BYTES
from forebay.wire.media import JSON, MSGPACK_NAMES

if TYPE_CHECKING:
    from forebay.api.context import Context
    from forebay.api.queen.desk import Desk

T = TypeVar("T")

_CURLS_OWN: Final = "application/x-www-form-urlencoded"
"""What curl calls any body when nobody says what it is; we take no forms, so nobody means it."""
_STREAM_BYTES_PER_SECOND: Final = 1 << 14
"""A stream that is slower than this, for longer than a request may take, is given up."""


class Call:
    """A request: what it asks, whose it is, and until when it may take."""

    __slots__ = (
        "_budgeted",
        "_held",
        "accepted",
        "body_is_read",
        "context",
        "deadline",
        "id",
        "key",
        "params",
        "receive",
        "route",
        "scope",
    )

    def __init__(self, context: Context, scope: Any, receive: Receive, id: str) -> None:
        self.context = context
        self.scope = scope
        self.receive = receive
        self.id = id
        self.params: dict[str, str] = {}
        self.route: Route
        self.key: Key = ANYONE
        self.body_is_read = False
        self.accepted: int | None = None
        """Messages of a stream that are durable, whatever becomes of the rest."""
        self.deadline: Deadline
        self._budgeted = 0
        self._held = 0

    def header(self, name: bytes) -> str | None:
        """A header by its name in lower case."""
        for key, value in self.scope["headers"]:
            if key == name:
                text: str = value.decode("latin-1")
                return text
        return None

    @property
    def desk(self) -> Desk:
        """What routes in Queen's format share."""
        return self.context.desk

    @property
    def media(self) -> str:
        """What the body is, by its Content-Type; JSON when it isn't said, or only by curl's `-d`."""
        named = (self.header(b"content-type") or JSON).partition(";")[0].strip().lower()
        return JSON if named == _CURLS_OWN else named

    @property
    def packed(self) -> bool:
        """Whether the answer is wanted in MessagePack."""
        accept = self.header(b"accept")
        return accept is not None and any(name in accept for name in MSGPACK_NAMES)

    def query(self, form: type[T]) -> T:
        """The query, by its form."""
        return decode_query(self.scope["query_string"], form)

    # Time

    def wait_longer(self, seconds: float) -> None:
        """Allow so many seconds more than a request has, from now on."""
        limit = self.context.settings.limits.request_seconds
        self.deadline.at = asyncio.get_running_loop().time() + limit + seconds

    # The body

    async def body(self) -> bytes:
        """The whole body, unpacked."""
        limit = self.context.settings.limits.body_bytes_max
        said = self.header(b"content-length")
        if said is not None and int(said) > limit:  # the parser has made sure that it is a number
            raise too_large(limit)
        encoding = self.header(b"content-encoding")
        unpacker = None if encoding is None else Unpacker(encoding.strip().lower(), limit)
        body = await read_body(self.receive, limit, self._take)
        self.body_is_read = True
        if unpacker is None:
            return body
        packed = len(body)
        body = b"".join(unpacker.feed(body))
        unpacker.finish()
        self._take(len(body) - packed)
        return body

    async def stream(self) -> AsyncIterator[bytes]:
        """The body as it comes, unpacked, without a limit; given up when it comes too slowly.

        Only the time that the client takes counts: while a part is being worked on, it may wait.
        """
        encoding = (self.header(b"content-encoding") or "").strip().lower()
        unpacker = Unpacker(encoding, 1 << 50)
        clock = asyncio.get_running_loop().time
        parts, received, waited = pieces(self.receive), 0, 0.0
        while True:
            began = clock()
            self.wait_longer(received / _STREAM_BYTES_PER_SECOND - waited)
            piece = await anext(parts, None)
            if piece is None:
                break
            waited += clock() - began
            received += len(piece)
            self.wait_longer(0.0)
            for part in unpacker.feed(piece):
                yield part
        self.body_is_read = True
        unpacker.finish()

    async def form(self, form: Any = None) -> Any:
        """The body, by the form of the route."""
        body = await self.body()
        wanted = self.route.body if form is None else form
        if not body and self.route.body_is_optional:
            body = b"{}"
        media = self.media
        if media == JSON or media.endswith("+json"):
            return decode_json(body, wanted, field_names(wanted))
        if media in MSGPACK_NAMES:
            return decode_msgpack(body, wanted, field_names(wanted))
        raise self.unsupported()

    def unsupported(self) -> Unsupported:
        """The body is of a type that the route doesn't take."""
        text = f"the body is {self.media[:64]!r}"
        return Unsupported(text, hint=f"send one of: {', '.join(self.route.media)}")

    def _take(self, size: int) -> None:
        budget: Budget = self.context.budget
        if size > 0:
            budget.take(size)
            self._budgeted += size

    def reserve(self, size: int) -> None:
        """Count what else a body became, until the call is over."""
        self._take(size)

    # The answer

    def check_room(self) -> None:
        """Raise Unavailable while too many answers are unread for one that may be large."""
        self.context.unread.check(self.key)

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[None]:
        """Load what changes nothing and may be large, when it is its turn and there is room for it."""
        async with self.context.unread.reading(self.key):
            if self.is_gone:
                raise Gone
            yield

    def claim_room(self, size: int) -> None:
        """Count an answer that will have about this size; Unavailable where there is no room for it."""
        if size > SMALL_BYTES:
            self.context.unread.check(self.key, size)
            self.hold(size)

    def hold(self, size: int) -> None:
        """Count the answer by this size from now on, until the call is over."""
        if size != self._held:
            self.context.unread.hold(self.key, size - self._held)
            self._held = size

    @property
    def is_gone(self) -> bool:
        """Whether the client has left, as far as it is known."""
        is_gone: Callable[[], bool] | None = self.scope.get("forebay.is_gone")
        return is_gone is not None and is_gone()

    def release(self) -> None:
        """The call is over."""
        if self._held:
            self.context.unread.give_back(self.key, self._held)
            self._held = 0
        if self._budgeted:
            self.context.budget.give(self._budgeted)
            self._budgeted = 0

    # Who may

    def allow(self, queue: str) -> None:
        """Raise Forbidden unless the key is for this queue."""
        if self.route.scope is not None:
            self.key.check(self.route.scope, queue)

    async def watch(self) -> None:
        """Return when the client has left."""
        while (await self.receive())["type"] != "http.disconnect":
            pass
