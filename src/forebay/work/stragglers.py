"""Stragglers: handlers that were given up and still run, in a thread, or as they swallow what cancels them.

Invariants: of a queue there are no more than twice as many as its processors. As many as these may be left
while it is worked on as before; each that comes on top of that keeps its turn, so that its queue, and no
other, has a processor less until one of them ends. Whatever they end with is said, and changes nothing.
"""

from __future__ import annotations

import asyncio
import logging
from time import monotonic
from typing import Any, Final

from forebay.work.fairness import Turn
from forebay.work.outcomes import named
from forebay.work.served import Served
from forebay.work.taking import Taker

__all__ = ["Stragglers"]

logger: Final = logging.getLogger("forebay.work")


class _Left:
    """Those of one queue."""

    __slots__ = ("held", "served", "works")

    def __init__(self, served: Served) -> None:
        self.served = served
        self.works: set[asyncio.Task[Any]] = set()
        self.held: list[Turn] = []
        """Turns that aren't over, as there are too many."""


class Stragglers:
    """See the module. All processors of a worker share them."""

    def __init__(self, taker: Taker) -> None:
        self._taker = taker
        self._left: dict[str, _Left] = {}

    def __len__(self) -> int:
        """How many there are."""
        return sum(len(left.works) for left in self._left.values())

    @property
    def trouble(self) -> str | None:
        """Which queue isn't worked on because of them; None if all are."""
        for queue, left in self._left.items():
            if left.held and len(left.held) >= left.served.settings.max_processors:
                return f"no tasks of {queue} are taken: {len(left.works)} of its handlers don't end"
        return None

    def add(self, served: Served, turn: Turn, work: asyncio.Task[Any]) -> None:
        """Leave a handler behind, whose turn is over, unless there are too many of them."""
        queue, most = served.binding.queue, served.settings.max_processors
        left = self._left.setdefault(queue, _Left(served))
        left.works.add(work)
        served.add(stragglers=1)
        if len(left.works) > most:
            left.held.append(turn)
        else:
            self._taker.end(turn, is_overdue=True)
        text = (
            "the handler of %s doesn't end though it was cancelled, and is left behind, with %d in all: "
            "at %d its queue isn't worked on here any more; its tasks come back when their leases end; "
            "give what it waits for a timeout, and restart the worker to be rid of it"
        )
        logger.warning(text, queue, len(left.works), 2 * most)
        work.add_done_callback(lambda ended: self._end(left, ended, turn.began))

    def _end(self, left: _Left, work: asyncio.Task[Any], began: float) -> None:
        left.works.discard(work)
        left.served.add(stragglers=-1)
        if left.held:
            self._taker.end(left.held.pop(0), is_overdue=True)
            self._taker.nudge()  # whoever waits for other queues
        error = None if work.cancelled() else work.exception()
        said = "it was cancelled" if work.cancelled() else "it returned" if error is None else named(error)
        text = "a handler of %s that was left behind has ended after %.0f s, too late: %s"
        logger.warning(text, left.served.binding.queue, monotonic() - began, said)
