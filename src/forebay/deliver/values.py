"""Values that cross the seam with destinations: a request on its way, and what became of it.

Invariant: a request is bytes, exactly as they came; nothing here decodes a name, a path or a body.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TypeAlias

import msgspec

__all__ = ["ANSWER_BYTES_KEPT", "ErrorClass", "Headers", "Outcome", "Prepared", "Request", "header"]

ANSWER_BYTES_KEPT = 1024
"""Bytes of an answer's body that an outcome keeps."""

Headers: TypeAlias = tuple[tuple[bytes, bytes], ...]
"""Names and values in the order in which they came; names as they were written."""


class ErrorClass(StrEnum):
    """Why a request wasn't delivered; a label of metrics."""

    TIMEOUT = "timeout"
    NETWORK = "network"
    """No answer that could be understood: refused, reset, cut off, garbage, a bad certificate."""
    RATE_LIMIT = "rate_limit"
    SERVER_ERROR = "server_error"
    CLIENT_ERROR = "client_error"
    """The destination doesn't want this request; redirects count as such."""
    AUTH = "auth"
    TOO_LARGE = "too_large"


class Request(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A request as it came in or was made; msgpack has it as an array, so that queues can keep it."""

    method: bytes
    target: bytes
    """Path and query, as `/api/v1/write?x=1`."""
    headers: Headers
    """Without hop-by-hop headers, Host and Content-Length: those belong to a connection."""
    body: bytes


class Prepared(msgspec.Struct, frozen=True, gc=False):
    """A request that is ready to be sent: all CPU work but the signature is done."""

    id: str
    """Names the request in all its attempts; its `webhook-id`, where it is sent."""
    request: Request
    """As it was given, to split it or to prepare it again."""
    head: bytes
    """What is sent ahead of the body; for HTTP without the empty line, since a signature may follow."""
    body: bytes


class Outcome(msgspec.Struct, frozen=True, gc=False):
    """The outcome of one attempt: delivered, unless `error_class` says why not."""

    status: int | None = None
    """The status of the answer; None when there was none."""
    error_class: ErrorClass | None = None
    is_retried: bool = False
    """The same request may succeed later. A failure that isn't retried is final, or has to be split."""
    retry_after_seconds: float | None = None
    """The pause that the destination asks for."""
    answer: bytes = b""
    """The start of the answer's body."""
    reason: str = ""
    """Why it failed, for people; nothing is decided by it."""

    @property
    def is_delivered(self) -> bool:
        """Whether the destination has accepted the request."""
        return self.error_class is None


def header(headers: Headers, name: bytes) -> bytes | None:
    """The first value of a header; `name` in lower case."""
    return next((value for key, value in headers if key.lower() == name), None)
