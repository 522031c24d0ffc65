"""Which entries are delivered one after the other, in the order in which they came.

Prometheus refuses a sample that is older than one it has, and with it the whole request. Its senders keep the
order of a series, so two of their requests may never overtake each other on the way: not by a second worker,
and not by a retry. Other requests don't care, and are sent side by side.
"""

from collections.abc import Callable
from typing import Final, Literal

import msgspec

from forebay.deliver.values import Headers

__all__ = ["Order", "order_rule"]

Order = Literal["auto", "strict", "none"]
_REMOTE_WRITE: Final = b"X-Prometheus-Remote-Write-Version"
_REMOTE_WRITE_LOWER: Final = _REMOTE_WRITE.lower()
_AS_WRITTEN: Final = msgspec.msgpack.encode(_REMOTE_WRITE)
"""As Prometheus writes the name, and as msgpack keeps it: a part of a path or of a body never looks so."""
_SEARCH_BYTES: Final = 512
"""Where Prometheus has it. To search more costs more than to decode the headers."""
_NAME_BYTES: Final = len(_REMOTE_WRITE)


class _Head(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The beginning of an entry: its body, which is large, isn't copied."""

    method: msgspec.Raw
    target: msgspec.Raw
    headers: Headers


_decode: Final = msgspec.msgpack.Decoder(_Head).decode


def order_rule(order: Order) -> Callable[[bytes], bool]:
    """Tell of an entry whether it has to keep its place: with `auto`, Prometheus' remote writes do."""
    if order == "auto":
        return _is_remote_write
    is_strict = order == "strict"
    return lambda _: is_strict


def _is_remote_write(data: bytes) -> bool:
    if data.find(_AS_WRITTEN, 0, _SEARCH_BYTES) >= 0:
        return True
    try:
        headers = _decode(data).headers
    except msgspec.MsgspecError:  # bytes of a stranger, which are buried
        return False
    for name, _ in headers:  # noqa: SIM110 - every entry comes by here, and `any` takes three times as long
        if len(name) == _NAME_BYTES and name.lower() == _REMOTE_WRITE_LOWER:
            return True
    return False
