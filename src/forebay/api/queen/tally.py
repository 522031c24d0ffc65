"""What went through this server in Queen's format, by queue: counts of the minute that is under way.

Invariants: counting is adding to a number; as many queues are counted as there is room for, and what is
beyond that is left out whole. Whoever collects the counts takes them away: see `samples`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from typing import Final

from forebay.store.values import Task

QUEUES_MAX: Final = 1_000
"""Queues that are counted in one minute."""


@dataclass(slots=True)
class Activity:
    """What happened to one queue; lags in microseconds, from push to pop."""

    pushes: int = 0
    pushed: int = 0
    popped: int = 0
    empty: int = 0
    """Pops that brought nothing."""
    acks: int = 0
    done: int = 0
    failed: int = 0
    buried: int = 0
    """Of those that failed: what became a dead letter."""
    evicted: int = 0
    """What nobody took in time, and became a dead letter."""
    lag_sum: int = 0
    lag_max: int = 0
    parked: int = 0
    """Pops that waited, added up over the samples of them."""

    def add(self, other: Activity) -> None:
        """Put another one's counts to these."""
        for field in fields(self):
            name = field.name
            both = (getattr(self, name), getattr(other, name))
            setattr(self, name, max(both) if name == "lag_max" else sum(both))

    @property
    def lag_ms(self) -> float:
        """How long messages waited on average until they were popped."""
        return round(self.lag_sum / self.popped / 1000, 3) if self.popped else 0.0


class Tally:
    """See the module; queues by number."""

    def __init__(self) -> None:
        self._now: dict[int, Activity] = {}
        self._parked: Counter[int] = Counter()

    def _of(self, queue: int) -> Activity:
        found = self._now.get(queue)
        if found is None:
            found = Activity()
            if len(self._now) < QUEUES_MAX:
                self._now[queue] = found
        return found

    def pushed(self, queue: int, count: int) -> None:
        """Messages came."""
        found = self._of(queue)
        found.pushes += 1
        found.pushed += count

    def popped(self, tasks: Sequence[Task], now: int) -> None:
        """Messages were handed out."""
        for queue in {task.queue_num for task in tasks}:
            created = [task.created_at for task in tasks if task.queue_num == queue]
            found = self._of(queue)
            found.popped += len(created)
            found.lag_sum += max(0, now * len(created) - sum(created))
            found.lag_max = max(found.lag_max, now - min(created))

    def empty(self, queues: Iterable[int]) -> None:
        """A pop brought nothing."""
        for queue in queues:
            self._of(queue).empty += 1

    def settled(self, outcomes: Sequence[tuple[int, str]]) -> None:
        """Messages of queues were acknowledged in one request: `done`, `buried`, or they come back."""
        for queue in {queue for queue, _ in outcomes}:
            self._of(queue).acks += 1
        for (queue, outcome), count in Counter(outcomes).items():
            found = self._of(queue)
            if outcome == "done":
                found.done += count
            else:
                found.failed += count
            if outcome == "buried":
                found.buried += count

    def evicted(self, queues: Iterable[int]) -> None:
        """Nobody took messages of these queues in time."""
        for queue in queues:
            self._of(queue).evicted += 1

    @contextmanager
    def parked(self, queues: Sequence[int]) -> Iterator[None]:
        """Somebody waits for messages of these queues."""
        self._parked.update(queues)
        try:
            yield
        finally:
            self._parked.subtract(queues)
            for queue in queues:
                if not self._parked[queue]:
                    del self._parked[queue]

    def sample(self) -> None:
        """Look how many wait now."""
        for queue, count in self._parked.items():
            self._of(queue).parked += count

    def collect(self) -> dict[int, Activity]:
        """Take away what was counted so far."""
        found, self._now = self._now, {}
        return found
