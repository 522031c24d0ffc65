"""Messages between Queen's items and ours: what is kept where, and how it is shown.

A payload is kept as the JSON that it came as. What Queen has beside it is kept in headers: the trace id, who
pushed it (as the token says, never as the body says), whether the payload is sealed; and where it is spooled,
that its queue is one of Queen's, for whoever has to make it when it is replayed.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from typing import Any, Final

from msgspec import UNSET, Raw, UnsetType

from forebay.api.queen.options import Facts
from forebay.api.queen.reading import Body
from forebay.spool.original import TRACE, headers_in
from forebay.wire.forms import is_json

PRODUCER: Final = "queen-producer-sub"
SEALED: Final = "queen-sealed"
_NULL: Final = b"null"


class PushItem(Body):
    """A message to push."""

    queue: str
    partition: str | None = None
    payload: Raw | UnsetType = UNSET
    transaction_id: str | None = None
    trace_id: str | None = None

    def data(self) -> bytes:
        """The payload as it came; what is left out is null."""
        return _NULL if isinstance(self.payload, UnsetType) else bytes(self.payload)


def headers_of(
    item: PushItem, producer: str | None, *, sealed: bool, spooled: Facts | None = None
) -> dict[str, str] | None:
    """What is kept beside the payload; `spooled` is what is known of the queue, for an item that may be."""
    headers = {}
    if item.trace_id:
        headers[TRACE] = item.trace_id
    if producer is not None:
        headers[PRODUCER] = producer
    if sealed:
        headers[SEALED] = "1"
    if spooled is not None:
        headers |= headers_in(item.trace_id, spooled.namespace, spooled.task)
    return headers or None


def shown_data(payload: bytes) -> Any:
    """A payload in an answer: as it came, or as base64 where it isn't JSON (it was not pushed here then)."""
    return Raw(payload) if is_json(payload) else b64encode(payload).decode()


def shown_headers(headers: Mapping[str, str] | None) -> dict[str, str | None]:
    """Trace id and producer."""
    found = headers or {}
    return {"traceId": found.get(TRACE), "producerSub": found.get(PRODUCER)}
