"""What is asked of a store, checked before it is done: the same for a store here and one over a network."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

import msgspec

from forebay.log.registry import SECONDS_MAX
from forebay.log.values import Durable, Queue
from forebay.model import TIME_MAX, LeaseLost, Message, Rejected, check_partition, from_datetime

COUNT_MAX: Final = 10_000
LISTED_MAX: Final = 5
"""Ids that an error names."""
DELAY_SECONDS_MAX: Final = TIME_MAX // 1_000_000
"""What begins later than this, counted from 1970, begins at no time that can be said."""


def checked_count(count: int) -> int:
    """How many tasks to take, unless it is too many or none."""
    if not (_is_whole(count) and 1 <= count <= COUNT_MAX):
        raise Rejected(f"{count!r} tasks can't be taken at once", hint=f"ask for 1 to {COUNT_MAX}")
    return count


def _is_whole(count: object) -> bool:
    return isinstance(count, int) and not isinstance(count, bool)


def checked_seconds(seconds: float | None) -> float | None:
    """How long a lease is to hold; None where the queue says it."""
    is_number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
    if seconds is not None and not (is_number and 0 < seconds <= SECONDS_MAX):
        hint = f"give more than 0 and up to {SECONDS_MAX}, or nothing for the queue's own"
        raise Rejected(f"a lease of {seconds!r} seconds", hint=hint)
    return seconds


def checked_partitions(
    queues: Sequence[str], partition: str | None, partitions_max: int | None
) -> Sequence[str]:
    """The queues to take from, unless what is said of partitions can't be."""
    if partition is not None:
        check_partition(partition)
        if len(queues) > 1:
            hint = "name one queue, or no partition"
            raise Rejected(f"partition {partition!r} of {len(queues)} queues", hint=hint)
    if partitions_max is not None and not (_is_whole(partitions_max) and partitions_max >= 1):
        hint = "ask for 1 or more, or leave it out for any number"
        raise Rejected(f"tasks of {partitions_max!r} partitions can't be taken", hint=hint)
    return queues


def check_ordered(queue: Queue, partition: str | None, partitions_max: int | None) -> None:
    """Raise Rejected where partitions are asked for of a queue that ignores them when handing out."""
    if queue.settings.ordered or (partition is None and partitions_max is None):
        return
    hint = "leave out what you say of partitions, or put such tasks in an ordered queue"
    raise Rejected(f"queue {queue.name!r} is unordered: it hands out whatever partition", hint=hint)


def checked_begin(
    start_time: int | datetime | None, delay: float | timedelta | None
) -> tuple[int | None, float | None]:
    """When tasks begin: at a time (µs), or after seconds; one of the two at most."""
    if start_time is not None and delay is not None:
        raise Rejected("both start_time and delay are given", hint="give one of them")
    seconds = delay.total_seconds() if isinstance(delay, timedelta) else delay
    if seconds is not None and not 0 <= seconds <= DELAY_SECONDS_MAX:
        raise Rejected(f"a delay of {seconds} seconds", hint="give 0 or more, and nothing past the year 9999")
    return from_datetime(start_time) if isinstance(start_time, datetime) else start_time, seconds


def addressed(
    tasks: Sequence[Message | bytes], partition: str, headers: dict[str, str] | None, begins: int | None
) -> Sequence[Message | bytes]:
    """Tasks with what a call says of them: a time for each, the rest for those that are bytes alone."""
    if not tasks:
        raise Rejected("there is no task to put", hint="give one or more")
    if not (partition or headers or begins is not None):
        return tasks
    return [
        Message(task, partition, None, headers, begins) if isinstance(task, bytes) else _later(task, begins)
        for task in tasks
    ]


def _later(task: Message, begins: int | None) -> Message:
    is_said = begins is not None and isinstance(task, Message)  # what is no message is refused later
    return msgspec.structs.replace(task, start_time=begins) if is_said else task


def raise_for_lost(lost: Sequence[int], where: Durable = "log") -> None:
    """Raise LeaseLost for tasks that were no longer the caller's, if there are any.

    The outcomes of the others are there.
    """
    if lost:
        raise LeaseLost(
            f"{len(lost)} tasks were no longer yours, and nothing was changed about them: {listed(lost)}",
            hint="drop the work; they are handed out again, or were settled before",
            ids=sorted(lost),
            is_spooled=where == "spool",
        )


def listed(ids: Sequence[int]) -> str:
    """Some of the ids, for people."""
    return ", ".join(map(str, sorted(ids)[:LISTED_MAX])) + (", ..." if len(ids) > LISTED_MAX else "")
