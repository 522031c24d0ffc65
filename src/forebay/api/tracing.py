"""W3C Trace Context: what a request says about its trace is carried in the headers of its messages."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from forebay.model import Message, whole

if TYPE_CHECKING:
    from forebay.api.calls import Call

_PARENT: Final = re.compile(
    r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(?:-.*)?"
)
_STATE_CHARACTERS_MAX: Final = 512


def trace_headers(call: Call) -> Mapping[str, str]:
    """The trace of a request, as headers of messages; what isn't one is left out, as the standard says."""
    parent = call.header(b"traceparent")
    if parent is None or _PARENT.fullmatch(parent) is None:
        return {}
    state = call.header(b"tracestate")
    if not state or len(state) > _STATE_CHARACTERS_MAX or not state.isprintable():
        return {"traceparent": parent}
    return {"traceparent": parent, "tracestate": state}


def traced(messages: Sequence[Message | bytes], headers: Mapping[str, str]) -> Sequence[Message | bytes]:
    """The messages with a trace, but for those that have one of their own."""
    if not headers:
        return messages
    shared = dict(headers)
    return [
        message
        if message.headers and "traceparent" in message.headers
        else msgspec.structs.replace(
            message, headers={**message.headers, **shared} if message.headers else shared
        )
        for message in map(whole, messages)
    ]
