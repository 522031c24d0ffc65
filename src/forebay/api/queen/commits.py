"""What acknowledgements commit, given what is out under their leases: values and pure functions.

An acknowledgement commits its partition up to its message, as in Queen: what the same lease has of the
partition before it, and nobody mentioned, is done as well. In one call nothing is committed past a message
that comes back: the partition goes on from there, so the rest of it goes back as well, unused. This holds in
ordered queues; in others each message stands for itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from forebay.api.queen.directory import Partition
from forebay.api.queen.hands import Hands, Place
from forebay.api.queen.reading import Body
from forebay.log.values import Queue
from forebay.store.values import Task, Ticket

DONE: Final = frozenset({"completed", "success"})
HELD_UP: Final = "Not committed: an earlier message of its partition comes back first"


class AckItem(Body):
    """What became of one message."""

    transaction_id: str | None = None
    partition_id: str | None = None
    status: str = "completed"
    lease_id: str | None = None
    error: str | None = None
    consumer_group: str | None = None


_ACKED: Final = AckItem()


@dataclass(slots=True)
class Found:
    """An item, what it is about, and why not."""

    item: AckItem
    partition: Partition | None = None
    queue: Queue | None = None
    place: Place | None = None
    task: Task | Ticket | None = None
    id: int | None = None
    """The message, where it was looked for in the log."""
    error: str | None = None
    buried: bool = False
    comes_back: bool = False
    released: bool = False
    noop: bool = False
    """It was committed before, and nothing changes."""

    @property
    def status(self) -> str:
        """What its client says of it."""
        return self.item.status.lower()


Lane = tuple[int, str, str]
"""A partition of an ordered queue, for one group."""


def hold_up(found: Sequence[Found]) -> None:
    """Commit nothing past a message of an ordered partition that comes back by the same call."""
    first = _first_back(found)
    for lane, one, task in _in_order(found):
        if lane in first and task.id > first[lane][0] and not one.comes_back:
            one.task, one.error = None, HELD_UP


def gaps(hands: Hands, found: Sequence[Found]) -> list[Found]:
    """What leases have before what is acknowledged of their partitions, and nobody mentioned."""
    named = {one.place for one in found}
    last: dict[Lane, tuple[Task | Ticket, Found]] = {}
    for lane, one, task in _in_order(found):
        if one.status in DONE and (lane not in last or last[lane][0].id < task.id):
            last[lane] = (task, one)
    return [
        Found(_ACKED, one.partition, one.queue, place, earlier)
        for task, one in last.values()
        if one.place is not None
        for place, earlier in hands.before(one.place, task.id)
        if place not in named
    ]


def rest(hands: Hands, found: Sequence[Found]) -> dict[Place, Task]:
    """What leases have past what comes back of their partitions, and nothing else becomes of."""
    named = {one.place for one in found if one.task is not None}
    return {
        place: later
        for id, one in _first_back(found).values()
        if one.place is not None
        for place, later in hands.after(one.place, id)
        if place not in named
    }


def _first_back(found: Sequence[Found]) -> dict[Lane, tuple[int, Found]]:
    """The first message of each partition that comes back."""
    first: dict[Lane, tuple[int, Found]] = {}
    for lane, one, task in _in_order(found):
        if one.comes_back and (lane not in first or task.id < first[lane][0]):
            first[lane] = (task.id, one)
    return first


def _in_order(found: Sequence[Found]) -> Iterator[tuple[Lane, Found, Task | Ticket]]:
    """What is about messages of ordered queues."""
    for one in found:
        is_ordered = one.queue is not None and one.queue.settings.ordered
        if is_ordered and one.place is not None and one.task is not None:
            yield one.place[:3], one, one.task


def judge(found: Sequence[Found], retry_limit: Callable[[Queue], int]) -> None:
    """Say of each message whether it comes back, or is given up."""
    for one in found:
        if one.task is None or one.queue is None:
            continue
        is_last = one.task.lease.attempts >= retry_limit(one.queue)
        one.comes_back = one.status == "retry" or (one.status == "failed" and not is_last)
        one.buried = one.status == "dlq" or (one.status == "failed" and is_last)
