"""Forebay: a durable queue for data pipelines.

The names a program needs; everything else is reached through them.
"""

from forebay.app.opening import open_embedded as open  # noqa: A004 - read as `forebay.open`
from forebay.app.opening import open_log
from forebay.log.seam import Log
from forebay.log.values import (
    Append,
    Claim,
    Death,
    Deferral,
    Group,
    Position,
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
    Flow,
    ForebayError,
    LeaseLost,
    Limits,
    Message,
    Misconfigured,
    Rejected,
    Unavailable,
    mint,
)
from forebay.store.letters import Letters
from forebay.store.seam import Store
from forebay.store.store import StoreSettings
from forebay.store.values import (
    FlowStats,
    Peeked,
    Purged,
    QueueStat,
    Retry,
    Running,
    StoreStats,
    Task,
    Ticket,
)

__all__ = [
    "Append",
    "Block",
    "Claim",
    "Conflict",
    "Corrupt",
    "Death",
    "Deferral",
    "Flow",
    "FlowStats",
    "ForebayError",
    "Group",
    "LeaseLost",
    "Letters",
    "Limits",
    "Log",
    "Message",
    "Misconfigured",
    "Peeked",
    "Position",
    "Purged",
    "Queue",
    "QueueSettings",
    "QueueStat",
    "Receipt",
    "Rejected",
    "Retry",
    "Room",
    "Running",
    "Settlement",
    "Store",
    "StoreSettings",
    "StoreStats",
    "Task",
    "Ticket",
    "Unavailable",
    "__version__",
    "mint",
    "open",
    "open_log",
]

__version__ = "0.1.0"
