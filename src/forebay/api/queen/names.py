"""Groups as Queen's clients name them, and as we keep them; queues and partitions are the spool's rule.

Invariants: both ways fit: what one writes, the other reads back; two names of Queen's are never one of ours.
Who names no group is in our default group.
"""

from __future__ import annotations

from typing import Final

from forebay.model.limits import check_group_name
from forebay.spool.original import (
    DEFAULT_PARTITION,
    kept_name,
    partition_name,
    plain_name,
    queue_name,
    shown_partition,
    shown_queue,
)
from forebay.store.values import DEFAULT_GROUP

__all__ = [
    "DEFAULT_PARTITION", "QUEUE_MODE", "group_name", "partition_name", "queue_name", "shown_group",
    "shown_partition", "shown_queue",
]  # fmt: skip

QUEUE_MODE: Final = "__QUEUE_MODE__"
"""What Queen calls the group of those who name none."""


def group_name(text: str | None) -> str:
    """The name under which we keep a group."""
    if text is None or text in ("", QUEUE_MODE):
        return DEFAULT_GROUP
    return check_group_name(kept_name(text, _check_group))


def shown_group(name: str) -> str:
    """The name of a group as its clients know it."""
    return QUEUE_MODE if name == DEFAULT_GROUP else plain_name(name)


def _check_group(text: str) -> str:
    """A name that isn't our default group's: that one is of those who name none."""
    return "" if text == DEFAULT_GROUP else check_group_name(text)
