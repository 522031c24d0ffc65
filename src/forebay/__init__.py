"""Forebay: a durable queue for data pipelines.

The names a program needs; everything else is reached through them.
"""

from typing import TYPE_CHECKING, Any

from forebay.app.opening import open_log, open_sync
from forebay.app.opening import open_store as open  # noqa: A004 - read as `forebay.open`
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

if TYPE_CHECKING:
    from forebay.client import Client, SyncClient

__all__ = [
    "Append",
    "Block",
    "Claim",
    "Client",
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
    "SyncClient",
    "Task",
    "Ticket",
    "Unavailable",
    "__version__",
    "mint",
    "open",
    "open_log",
    "open_sync",
]

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """The clients, when they are first asked for: who works on a file needs no HTTP."""
    if name in ("Client", "SyncClient"):
        from forebay import client  # noqa: PLC0415 - see above

        return getattr(client, name)
    raise AttributeError(f"module 'forebay' has no attribute {name!r}")
