"""Forebay: a durable queue for data pipelines.

The names a program needs; everything else is reached through them.
"""

from forebay.app.opening import open_log
from forebay.log.seam import Log
from forebay.log.values import (
    Append,
    Claim,
    Death,
    Deferral,
    Group,
    Queue,
    QueueSettings,
    Receipt,
    Room,
    Settlement,
)
from forebay.model import (
    Block,
    Conflict,
    Corrupt,
    ForebayError,
    Limits,
    Message,
    Misconfigured,
    Rejected,
    Unavailable,
)

__all__ = [
    "Append",
    "Block",
    "Claim",
    "Conflict",
    "Corrupt",
    "Death",
    "Deferral",
    "ForebayError",
    "Group",
    "Limits",
    "Log",
    "Message",
    "Misconfigured",
    "Queue",
    "QueueSettings",
    "Receipt",
    "Rejected",
    "Room",
    "Settlement",
    "Unavailable",
    "__version__",
    "open_log",
]

__version__ = "0.1.0"
