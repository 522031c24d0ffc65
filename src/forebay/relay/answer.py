"""The answers of a relay, as bytes.

A request that is safe gets 202 without a body. OTLP's clients are answered as their protocol asks: 200 with
an empty message, which is no bytes in protobuf and `{}` in JSON. Failures are RFC 9457 problems. Where the
queue is full the answer is 503, not 507: clients of OTLP try again after the first only.
"""

from __future__ import annotations

import math
import re
from http import HTTPStatus
from typing import Final

import msgspec

from forebay.deliver.values import Headers, header
from forebay.model import ForebayError, Full, Unavailable

__all__ = ["ACCEPTED", "accepted", "page", "problem", "problem_of"]

_OTLP: Final = re.compile(rb"(?:.*/)?v1(?:development)?/(?:metrics|traces|logs|profiles)(?:\?.*)?")
_PHRASES: Final = {status.value: status.phrase for status in HTTPStatus}


def _whole(status: int, kind: str, body: bytes, *, extra: str = "") -> bytes:
    phrase = _PHRASES.get(status, "")
    head = f"HTTP/1.1 {status} {phrase}\r\n"
    if kind:
        head += f"content-type: {kind}\r\n"
    return f"{head}{extra}content-length: {len(body)}\r\n".encode() + b"\r\n" + body


ACCEPTED: Final = _whole(202, "", b"")
_OTLP_PROTOBUF: Final = _whole(200, "application/x-protobuf", b"")
_OTLP_JSON: Final = _whole(200, "application/json", b"{}")


def accepted(target: bytes, headers: Headers) -> bytes:
    """The answer to a request that is safe."""
    if b"v1" not in target or not _OTLP.fullmatch(target):
        return ACCEPTED
    kind = (header(headers, b"content-type") or b"").partition(b";")[0].strip().lower()
    return _OTLP_JSON if kind == b"application/json" else _OTLP_PROTOBUF


def page(status: int, kind: str, body: bytes) -> bytes:
    """A page of the relay's own."""
    return _whole(status, kind, body)


def problem(status: int, detail: str, hint: str, *, extra: str = "") -> bytes:
    """A failure, with what to do about it."""
    title = _PHRASES.get(status, "Error")
    body = msgspec.json.encode(
        {"type": "about:blank", "title": title, "status": status, "detail": detail, "hint": hint}
    )
    return _whole(status, "application/problem+json", body, extra=extra)


def problem_of(error: ForebayError) -> bytes:
    """The answer to a request that isn't kept."""
    status, extra = error.status or 500, ""
    if isinstance(error, Unavailable):
        status = 503 if isinstance(error, Full) else status
        extra = f"retry-after: {math.ceil(error.retry_after_seconds or 1)}\r\n"
    return problem(status, error.message, error.hint or "", extra=extra)
