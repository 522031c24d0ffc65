"""Settlements in doubt: the answer to one was lost, and the second attempt found the leases gone.

Then either the first attempt was worked on, and is the reason why they are gone, or they were lost before.
For tasks that come back (retry, release) it makes no difference to whoever gave them back. For those that are
done or dead it does, and the log knows: it says what was written of a message, and after how many returns.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, Literal, NamedTuple

from forebay.model import LeaseLost
from forebay.store.asking import listed
from forebay.store.values import Task, Ticket, Whereabouts

LOOKED_AT_MAX: Final = 1_000
"""More than so many are not looked at."""


class Ending(NamedTuple):
    """How a task was to end, under which lease."""

    outcome: Literal["done", "dead"]
    group: int
    attempts: int


def endings_of(done: Iterable[Task | Ticket], dead: Iterable[Task | Ticket]) -> dict[int, Ending]:
    """How tasks were to end, by their ids."""
    ends = {task.id: Ending("done", task.lease.group, task.lease.attempts) for task in done}
    ends |= {task.id: Ending("dead", task.lease.group, task.lease.attempts) for task in dead}
    return ends


def has_ended(where: Whereabouts, group: str, ending: Ending) -> bool:
    """Whether a message has ended as it was to, in the group of this name.

    A lease that was lost before has cost an attempt, so an end after as many returns as the lease says was
    written under that lease.
    """
    return any(
        one.outcome == ending.outcome and one.attempts == ending.attempts
        for place in where.groups
        if place.group == group
        for one in place.history
    )


def unknown(ids: Sequence[int]) -> LeaseLost:
    """What is said of tasks of which nothing can be found out."""
    return LeaseLost(
        f"{len(ids)} tasks are no longer yours, maybe by your own doing: {listed(ids)}",
        hint="the answer to a first attempt was lost; look with `where` before you undo the work",
        ids=sorted(ids),
        in_doubt=True,
    )
