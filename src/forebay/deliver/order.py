"""Which entries are delivered one after the other, in the order in which they came.

Prometheus refuses a sample that is older than one it has, and with it the whole request. Its senders keep the
order of a series, so two of their requests may never overtake each other on the way: not by a second worker,
and not by a retry. Other requests don't care, and are sent side by side.
"""

from collections.abc import Callable
from typing import Final, Literal

__all__ = ["Order", "order_rule"]

Order = Literal["auto", "strict", "none"]
_HEAD_BYTES: Final = 4096
"""Where headers are: an entry is a request with its body last."""
_REMOTE_WRITE: Final = b"X-Prometheus-Remote-Write-Version"
_REMOTE_WRITE_LOWER: Final = _REMOTE_WRITE.lower()
"""Clients write it in one of these ways. To look for any other would cost more than the rest of an entry."""


def order_rule(order: Order) -> Callable[[bytes], bool]:
    """Tell of an entry whether it has to keep its place: with `auto`, Prometheus' remote writes do."""
    if order == "auto":
        return _is_remote_write
    is_strict = order == "strict"
    return lambda _: is_strict


def _is_remote_write(data: bytes) -> bool:
    return (
        data.find(_REMOTE_WRITE, 0, _HEAD_BYTES) >= 0 or data.find(_REMOTE_WRITE_LOWER, 0, _HEAD_BYTES) >= 0
    )
