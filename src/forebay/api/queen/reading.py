"""Bodies and queries in Queen's format: what is unknown is ignored, as clients differ."""

from __future__ import annotations

from collections.abc import Hashable
from functools import cache
from typing import Any, Final, TypeVar, cast
from urllib.parse import parse_qsl

import msgspec

from forebay.api.calls import Call
from forebay.model import Rejected

T = TypeVar("T")
_TRUE: Final = frozenset({"true", "1"})
_QUERY_MAX: Final = 100


class Body(msgspec.Struct, rename="camel"):
    """What a body is made of: names as Queen writes them, unknown ones ignored."""


@cache
def _decoder(form: Hashable) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(form, strict=False)


async def read(call: Call, form: type[T], *, optional: bool = False) -> T:
    """The body of a call by its form; Rejected says what is wrong in Queen's words where it has some."""
    body = await call.body()
    return parse(b"{}" if not body and optional else body, form)


def parse(body: bytes, form: type[T]) -> T:
    """A body that was read, by its form."""
    if not body:
        raise Rejected("Empty request body", hint="send JSON")
    try:
        if not body.isascii():
            body.decode()
        found: T = _decoder(cast("Hashable", form)).decode(body)
    except msgspec.ValidationError as error:
        raise Rejected(_explained(str(error)), hint="see docs/how-to/move-from-queen.md") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Rejected(f"Invalid JSON: {error}", hint="send JSON, encoded as UTF-8") from None
    return found


_WORDS: Final = {
    "queue": "Queue must be a string",
    "partition": "Partition must be a string",
    "transactionId": "TransactionId must be a string",
    "traceId": "TraceId must be a string",
    "partitionId": "PartitionId must be a string",
}


def _explained(text: str) -> str:
    """A fault in Queen's words, where it has words for it, and where it is."""
    what, _, where = text.rpartition(" - at `")
    path = where.rstrip("`")
    word = _WORDS.get(path.rpartition(".")[2])
    return f"{word} ({path})" if word else f"{what or text} ({path})"


class Query:
    """The query of a call."""

    def __init__(self, call: Call) -> None:
        try:
            pairs = parse_qsl(
                call.scope["query_string"].decode(),
                keep_blank_values=True,
                max_num_fields=_QUERY_MAX,
                errors="strict",
            )
        except (UnicodeDecodeError, ValueError):
            text = "the query can't be read"
            raise Rejected(text, hint="percent-encode it as UTF-8, with fewer parameters") from None
        self._values = dict(reversed(pairs))

    def text(self, name: str) -> str | None:
        """A text; None when it isn't there, or is empty."""
        return self._values.get(name) or None

    def flag(self, name: str, *, default: bool = False) -> bool:
        """Whether something is wanted."""
        value = self._values.get(name)
        return default if not value else value.lower() in _TRUE

    def number(self, name: str, default: int, *, least: int = 0, most: int = 1 << 53) -> int:
        """A whole number; what is beyond the bounds is taken as the bound."""
        value = self._values.get(name)
        if not value:
            return default
        try:
            return min(max(int(value), least), most)
        except ValueError:
            raise Rejected(f"{name} must be a number, not {value[:32]!r}", hint=f"{name}=10") from None
