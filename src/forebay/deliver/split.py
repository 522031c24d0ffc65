"""Splitting a request that is too large (413) in two halves, each a request of its own.

================================  ==========================================================
body                              divided by
================================  ==========================================================
protobuf (remote write, OTLP)     top-level records; in remote write 2.0 both halves have all
                                  symbols; in OTLP a lone resource by its scopes, a lone scope
                                  by its metrics, spans or log records
NDJSON, JSON lines                lines
JSON                              items of an array, or of the one array in an object; in OTLP
                                  a lone resource and a lone scope as above
================================  ==========================================================

Items keep their bytes and their order, and each is in one half. Both halves have the content encoding and
the headers of the whole, but for digests of the body. It costs CPU: large bodies belong in a thread.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

from forebay.deliver import protobuf
from forebay.deliver.encoding import ENCODINGS, decode, encode
from forebay.deliver.values import Request, header
from forebay.model import ForebayError, Rejected

__all__ = ["Unsplittable", "split"]

DECODED_BYTES_MAX: Final = 256 << 20

_DIGESTS: Final = frozenset((b"content-md5", b"content-digest", b"digest", b"repr-digest"))
_PROTOBUF: Final = frozenset(
    ("application/x-protobuf", "application/protobuf", "application/vnd.google.protobuf")
)
_LINES: Final = frozenset(
    ("application/x-ndjson", "application/ndjson", "application/jsonl", "application/x-jsonlines")
)
_OTLP: Final = re.compile(rb".*/v1/(?:metrics|traces|logs)/?(?:\?.*)?")
_OTLP_NESTED: Final = (2, 2)
"""Scopes of a resource, and metrics, spans or log records of a scope, are field 2 of either."""
_OTLP_MEMBERS: Final = (
    frozenset(("scopeMetrics", "scopeSpans", "scopeLogs")),
    frozenset(("metrics", "spans", "logRecords")),
)
"""The same in JSON."""
_BULK: Final = re.compile(rb".*/_bulk/?(?:\?.*)?")
_SYMBOLS: Final = frozenset((4,))
"""The field of remote write 2.0 that time series refer to by number."""


class Unsplittable(msgspec.Struct, frozen=True):
    """Why a request can't be split; the reason of its dead letter."""

    reason: str


def split(
    request: Request, *, decoded_bytes_max: int = DECODED_BYTES_MAX
) -> tuple[Request, Request] | Unsplittable:
    """Two requests that say what one says, or why that can't be."""
    encoding = (header(request.headers, b"content-encoding") or b"identity").strip().lower().decode("latin-1")
    if encoding not in ENCODINGS:
        return Unsplittable(f"its content encoding is {encoding[:32]!r}")
    try:
        parts = _halves(request, decode(encoding, request.body, decoded_bytes_max))
    except ForebayError as error:
        return Unsplittable(error.message)
    if isinstance(parts, Unsplittable):
        return parts
    headers = tuple(pair for pair in request.headers if pair[0].lower() not in _DIGESTS)
    first, second = (
        msgspec.structs.replace(request, headers=headers, body=encode(encoding, part)) for part in parts
    )
    return first, second


def _halves(request: Request, body: bytes) -> tuple[bytes, bytes] | Unsplittable:
    kind = (header(request.headers, b"content-type") or b"").lower().decode("latin-1")
    media, _, parameters = kind.partition(";")
    media = media.strip()
    if media in _PROTOBUF:
        return _protobuf(request, body, parameters)
    if media in _LINES:
        return _lines(request, body)
    if media == "application/json" or media.endswith("+json"):
        return _json(request, body)
    return Unsplittable(f"a body of type {media[:64]!r} has no parts" if media else "its body has no type")


def _protobuf(request: Request, body: bytes, parameters: str) -> tuple[bytes, bytes] | Unsplittable:
    shared = _SYMBOLS if "io.prometheus.write.v2" in parameters else frozenset[int]()
    nested = _OTLP_NESTED if _OTLP.fullmatch(request.target) else ()
    return protobuf.halves(body, shared=shared, nested=nested) or Unsplittable(
        "it holds fewer than two records"
    )


def _lines(request: Request, body: bytes) -> tuple[bytes, bytes] | Unsplittable:
    if _BULK.fullmatch(request.target):
        # Lines of a bulk request come in pairs of an action and its document, but not always.
        return Unsplittable("the lines of a bulk request belong together")
    lines = [line for line in body.splitlines(keepends=True) if line.strip()]
    if len(lines) < 2:  # noqa: PLR2004 - one for each half
        return Unsplittable("it holds fewer than two lines")
    middle = _middle([len(line) for line in lines])
    return b"".join(lines[:middle]), b"".join(lines[middle:])


def _json(request: Request, body: bytes) -> tuple[bytes, bytes] | Unsplittable:
    name, items = _items(body)
    parts = _divide(items, _OTLP_MEMBERS if _OTLP.fullmatch(request.target) else ())
    if parts is None:
        return Unsplittable("it holds fewer than two items")
    begin, end = (b"[", b"]") if name is None else (b"{" + name + b":[", b"]}")
    first, second = (begin + b",".join(part) + end for part in parts)
    return first, second


def _divide(items: list[bytes], nested: tuple[frozenset[str], ...]) -> tuple[list[bytes], list[bytes]] | None:
    """Items in two parts; one that is alone by the items of its member that `nested` names, and so on."""
    if len(items) > 1:
        middle = _middle([len(item) for item in items])
        return items[:middle], items[middle:]
    if not items or not nested:
        return None
    try:
        members = msgspec.json.decode(items[0], type=dict[str, msgspec.Raw])
        name = next((name for name in members if name in nested[0]), None)
        inner = [] if name is None else msgspec.json.decode(members[name], type=list[msgspec.Raw])
    except msgspec.DecodeError:
        return None
    parts = _divide([bytes(item) for item in inner], nested[1:])
    if name is None or parts is None:
        return None
    first, second = ({**members, name: msgspec.Raw(b"[" + b",".join(part) + b"]")} for part in parts)
    return [msgspec.json.encode(first)], [msgspec.json.encode(second)]


def _items(body: bytes) -> tuple[bytes | None, list[bytes]]:
    """The items of an array, as they are written, and the name of the array in an object of one member."""
    try:
        if body.lstrip()[:1] != b"{":
            return None, [bytes(item) for item in msgspec.json.decode(body, type=list[msgspec.Raw])]
        members = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
        if len(members) != 1:
            raise Rejected("its body is a JSON object, not an array")
        ((name, value),) = members.items()
        items = msgspec.json.decode(value, type=list[msgspec.Raw])
    except msgspec.DecodeError as error:
        raise Rejected(f"its body isn't a JSON array: {error}") from None
    return msgspec.json.encode(name), [bytes(item) for item in items]


def _middle(sizes: list[int]) -> int:
    """How many items belong to the first half, by size; each half has one at least."""
    size, half = 0, sum(sizes) / 2
    for count, item in enumerate(sizes[:-1], 1):
        size += item
        if size >= half:
            return count
    return len(sizes) - 1
