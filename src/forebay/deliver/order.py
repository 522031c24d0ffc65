"""Which entries are delivered one after the other, in the order in which they came.

Prometheus refuses a sample that is older than one it has, and with it the whole request. Its senders keep the
order of a series, so two of their requests may never overtake each other on the way: not by a second worker,
and not by a retry. Other requests don't care, and are sent side by side.
"""

import re
from collections.abc import Callable
from typing import Final, Literal

__all__ = ["Order", "order_rule"]

Order = Literal["auto", "strict", "none"]
_HEAD_BYTES: Final = 4096
"""Where headers are: an entry is a request with its body last."""
_REMOTE_WRITE: Final = re.compile(rb"x-prometheus-remote-write-version", re.IGNORECASE)


def order_rule(order: Order) -> Callable[[bytes], bool]:
    """Tell of an entry whether it has to keep its place: with `auto`, Prometheus' remote writes do."""
    if order == "auto":
        return lambda data: _REMOTE_WRITE.search(data, 0, _HEAD_BYTES) is not None
    is_strict = order == "strict"
    return lambda _: is_strict
