"""How a message stands, in Queen's words, told from where each group has it: pure functions.

A message is taken in queue mode by those who name no group, in bus mode by groups; in both if both do. The
group of those who name none is there in every queue, and counts where somebody uses it, or nobody else does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from forebay.api.queen.census import is_used
from forebay.log.values import GroupStats
from forebay.store.values import DEFAULT_GROUP

PENDING, PROCESSING, COMPLETED, DEAD = "pending", "processing", "completed", "dead_letter"
STATUSES: Final = frozenset({PENDING, PROCESSING, COMPLETED, DEAD})
_WORDS: Final = {"cold": PENDING, "warm": PENDING, "delayed": PENDING, "leased": PROCESSING, "dead": DEAD}
OPEN: Final = frozenset({"cold", "warm", "delayed", "leased"})
"""States in which a group has a message still to do."""


def modes(groups: Sequence[GroupStats]) -> tuple[bool, int]:
    """Whether a queue is taken from without naming a group, and by how many groups."""
    named = sum(stats.group.name != DEFAULT_GROUP for stats in groups)
    return any(stats.group.name == DEFAULT_GROUP and is_used(stats) for stats in groups), named


def shown_mode(has_queue_mode: bool, named: int) -> dict[str, Any]:  # noqa: FBT001 - a pair, as `modes` gives it
    """The modes as they are shown."""
    kind = ("hybrid" if named else "queue") if has_queue_mode else "bus" if named else "none"
    return {"hasQueueMode": has_queue_mode, "busGroupsCount": named, "type": kind}


def status_of(state: str) -> str:
    """Queen's word for where a message is for one group; what is finished in any way is completed."""
    return _WORDS.get(state, COMPLETED)


def shown_status(states: Mapping[str, str], has_queue_mode: bool) -> dict[str, Any]:  # noqa: FBT001 - as `modes` gives it
    """How a message stands, given its state for each group."""
    queue = status_of(states.get(DEFAULT_GROUP, "cold"))
    bus = [status_of(state) for name, state in states.items() if name != DEFAULT_GROUP]
    if DEAD in bus or queue == DEAD:
        status = DEAD
    elif bus and not has_queue_mode:
        status = COMPLETED if set(bus) == {COMPLETED} else PROCESSING if PROCESSING in bus else PENDING
    else:
        status = queue
    consumed = sum(one in {COMPLETED, DEAD} for one in bus)
    return {
        "status": status,
        "queueStatus": queue,
        "busStatus": {"consumedBy": consumed, "totalGroups": len(bus)},
    }


def is_deleted(states: Mapping[str, str]) -> bool:
    """Whether a message was given up by hand: it is kept for a while, and nobody gets it."""
    found = set(states.values())
    return "purged" in found and not found & (OPEN | {"dead"})
