"""Answers: a status, a value, and how it is written in the encoding that the caller wants."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Any, Final

import msgspec

from forebay.wire.media import JSON, MSGPACK

Header = tuple[bytes, bytes]
encode_json: Final = msgspec.json.Encoder().encode
encode_msgpack: Final = msgspec.msgpack.Encoder().encode
_NOTHING: Final[tuple[Header, ...]] = ()


class Answer:
    """What a route answers.

    `value` is written as it is in MessagePack, and as `form(value)` in JSON; bytes are a body already.
    """

    __slots__ = ("form", "headers", "media", "status", "value")

    def __init__(
        self,
        value: Any = None,
        form: Callable[[Any], Any] | None = None,
        *,
        status: int = 200,
        headers: Sequence[Header] = _NOTHING,
        media: str | None = None,
    ) -> None:
        self.value = value
        self.form = form
        self.status = status
        self.headers = headers
        self.media = media

    def encode(self, *, packed: bool) -> None:
        """Make the value the body, and let go of what it was made from."""
        if self.media is not None:
            return
        if packed:
            self.value, self.media = encode_msgpack(self.value), MSGPACK
        else:
            self.value = encode_json(self.value if self.form is None else self.form(self.value))
            self.media = JSON


class Stream(Answer):
    """An answer whose body is sent piece by piece, as it comes, until there is nothing more."""

    __slots__ = ("pieces",)

    def __init__(self, pieces: AsyncGenerator[bytes, None], media: str) -> None:
        super().__init__(headers=[(b"cache-control", b"no-store")], media=media)
        self.pieces = pieces
