"""Fairness: which queue a free job processor serves next. Pure: the clock is passed in, in seconds.

Queues share the time of the processors, not their number of turns: of those that have work and room, the one
goes first that has used the least time so far. With batches that take equally long that is round-robin. A
queue whose batches take a hundred times longer gets a hundredth of the turns, and holds up nobody but for the
one batch that can't be interrupted: who is overdue by then goes first, so that several slow ones don't go one
after the other. What a batch usually takes is charged when it begins, so that processors that are free at the
same moment don't all go to the same queue.

Invariants: a queue never has more turns at a time than its limit; a queue that is at its limit is passed
over, and loses nothing by it; who had no work saves up nothing: it comes in where the others are. What was
found empty is looked at again, with all others that were, before the next batch of another queue, unless that
was a moment ago.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from math import inf
from typing import Final

__all__ = ["Fairness", "Turn"]

PROBE_SECONDS: Final = 0.01
"""Empty queues are looked at no more often, while others have work."""
PROBE_PART: Final = 20
"""Nor for more than one part in so many of the time."""
LAG_SECONDS: Final = 10.0
"""So much a queue may be behind the others that was kept back by its limit: it claims no more later."""
PATIENCE: Final = 2.0
"""A queue is overdue that waits so many times longer than it would if all had equal turns like its own."""
_SMOOTHING: Final = 0.3


class Turn:
    """A batch of a queue, from the look for it to its end."""

    __slots__ = ("began", "queue")

    def __init__(self, queue: str, began: float) -> None:
        self.queue = queue
        self.began = began


class _Share:
    """One queue."""

    __slots__ = ("held", "is_quiet", "limit", "resting", "seconds", "since", "turns", "used")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.held = 0
        """Places that those hold who wait for its tasks."""
        self.turns: set[Turn] = set()
        self.used = 0.0
        """Seconds of processors; those that have ended."""
        self.seconds = 0.0
        """What a batch usually takes."""
        self.since = 0.0
        """Since when it waits for a turn."""
        self.is_quiet = False
        """Whether it was empty when it was last looked at."""
        self.resting = 0.0
        """Until when it is left alone."""

    def has_room(self, now: float) -> bool:
        return len(self.turns) + self.held < self.limit and self.resting <= now

    def overdue(self, now: float, queues: int) -> float:
        """How many times longer it waits than a batch takes, if that is too long; otherwise 0."""
        waits = now - self.since
        return waits / self.seconds if waits > PATIENCE * queues * self.seconds > 0 else 0.0

    def charged(self, now: float) -> float:
        """Time used, and what those at work will have used at least."""
        return self.used + sum(max(self.seconds, now - turn.began) for turn in self.turns)


class Fairness:
    """See the module. `limits` are how many processors each queue may have."""

    def __init__(self, limits: Mapping[str, int]) -> None:
        self._shares = {queue: _Share(limit) for queue, limit in limits.items()}
        self._virtual = 0.0
        """How much the queue had used that was last picked: where who had no work comes in."""
        self._probe_at = 0.0

    def limit(self, queue: str, limit: int) -> None:
        """Let a queue have so many processors from now on; those at work finish."""
        self._shares[queue].limit = limit

    def limit_of(self, queue: str) -> int:
        """How many processors a queue may have."""
        return self._shares[queue].limit

    def turns_of(self, queue: str) -> int:
        """How many processors a queue has."""
        return len(self._shares[queue].turns)

    def pick(self, now: float) -> Turn | None:
        """The turn of the queue that goes next, of those that may have work; None if there is none."""
        working = [(queue, share) for queue, share in self._shares.items() if not share.is_quiet]
        open_ones = []
        for queue, share in working:
            if share.has_room(now):
                open_ones.append((share.overdue(now, len(working)), share.charged(now), queue))
            else:
                share.used = max(share.used, self._virtual - LAG_SECONDS)
        if not open_ones:
            return None
        _, charged, best = min(open_ones, key=lambda one: (-one[0], one[1]))
        self._virtual = max(self._virtual, charged)
        # Of those that have used the same, the one goes next that was picked the longest ago.
        self._shares[best] = self._shares.pop(best)
        return self._turn(best, now)

    def _turn(self, queue: str, now: float) -> Turn:
        turn, share = Turn(queue, now), self._shares[queue]
        share.turns.add(turn)
        share.since = now
        return turn

    def begin(self, queue: str, now: float) -> Turn:
        """The turn of a queue whose task came while it was waited for, or probed."""
        self.found(queue, now)
        return self._turn(queue, now)

    def end(self, turn: Turn, now: float, seconds_max: float = inf) -> None:
        """A batch has ended; it counts as one of so many seconds at most."""
        share, seconds = self._shares[turn.queue], min(max(0.0, now - turn.began), seconds_max)
        if len(share.turns) + share.held >= share.limit:
            share.since = now  # until now it was kept back by its own limit
        share.turns.discard(turn)
        share.used += seconds
        share.seconds += _SMOOTHING * (seconds - share.seconds) if share.seconds else seconds

    def empty(self, turn: Turn) -> None:
        """There was nothing for a turn: it costs nothing."""
        share = self._shares[turn.queue]
        share.turns.discard(turn)
        share.is_quiet = True

    def drop(self, turn: Turn) -> None:
        """Nothing is known of a turn: the store couldn't be asked."""
        self._shares[turn.queue].turns.discard(turn)

    def found(self, queue: str, now: float) -> None:
        """A queue may have work."""
        share = self._shares[queue]
        if share.is_quiet:
            share.is_quiet = False
            share.used = max(share.used, self._virtual)
            share.since = now

    def rest(self, queue: str, until: float) -> None:
        """Leave a queue alone for a while."""
        self._shares[queue].resting = until

    # Those that had no work

    def probe(self, now: float) -> list[str]:
        """Queues to be looked at, all at once, before the next pick: those that were empty, if it is time.

        None if there is nothing to pick: then they are all waited for.
        """
        if now < self._probe_at:
            return []
        open_shares = [(queue, share) for queue, share in self._shares.items() if share.has_room(now)]
        quiet = [queue for queue, share in open_shares if share.is_quiet]
        if len(quiet) == len(open_shares):
            return []
        self._probe_at = now + PROBE_SECONDS  # nobody else looks meanwhile
        return quiet

    def probed(self, began: float, now: float) -> None:
        """They were looked at, which took a while."""
        self._probe_at = now + max(PROBE_SECONDS, PROBE_PART * (now - began))

    def room(self, now: float) -> list[str]:
        """Queues that may be waited for."""
        return [queue for queue, share in self._shares.items() if share.has_room(now)]

    def rested(self, now: float) -> float | None:
        """How long until the first that is left alone is no more; None if there is none."""
        left = [share.resting - now for share in self._shares.values() if share.resting > now]
        return min(left, default=None)

    def hold(self, queues: Collection[str]) -> None:
        """Somebody waits for tasks of these queues, and may come to serve one of them."""
        for queue in queues:
            self._shares[queue].held += 1

    def let_go(self, queues: Iterable[str]) -> None:
        """He doesn't any more."""
        for queue in queues:
            self._shares[queue].held -= 1
