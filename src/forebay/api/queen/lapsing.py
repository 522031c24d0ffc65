"""What a stream was given and hasn't acknowledged goes back just before its lease is over.

A stream that is full, or that limits a rate, takes a batch and doesn't say a word about it: it counts on
getting it again when the lease is over, as often as it takes. For others that is a sign of trouble, and is
counted, until the message is a dead letter. So what streams leave goes back unused in time, which counts as
nothing. Invariants: a message that a stream acknowledges in time is never given back; one timer waits for the
next lease, whatever their number.
"""

from __future__ import annotations

import asyncio
import heapq
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

from forebay.api.queen.hands import Hands, Place
from forebay.model import Clock, ForebayError
from forebay.store.values import Task, Ticket

PREFIX: Final = "streams."
"""What the group of a stream begins with, unless its user says otherwise."""
MARGIN_SECONDS: Final = 0.25
"""So long before its end a lease is given up; of a short one, a tenth."""
_SHARE: Final = 10
_SECOND: Final = 1_000_000
_GROUPS_MAX: Final = 10_000
_LEASES_SPARE: Final = 1_000
Release = Callable[[Sequence[Task | Ticket]], Awaitable[None]]


class Lapsing:
    """See the module."""

    def __init__(self, hands: Hands, release: Release, clock: Clock) -> None:
        self._hands = hands
        self._release = release
        self._clock = clock
        self._groups: OrderedDict[str, None] = OrderedDict()
        self._leases: list[tuple[int, str, int]] = []
        """When to look, at which lease, and when it is over."""
        self._timer: asyncio.TimerHandle | None = None
        self._jobs: set[asyncio.Task[None]] = set()

    def is_stream(self, group: str) -> bool:
        """Whether a group is that of a stream."""
        return group.startswith(PREFIX) or group in self._groups

    def note(self, group: str) -> None:
        """A group has had a cycle: it is a stream's."""
        if not group.startswith(PREFIX):
            self._groups[group] = None
            self._groups.move_to_end(group)
            if len(self._groups) > _GROUPS_MAX:
                self._groups.popitem(last=False)

    def given(self, lease: str, group: str) -> None:
        """Something was given out under a lease."""
        hand = self._hands.hand(lease)
        if hand is not None and self.is_stream(group):
            self._push(lease, hand.deadline)

    def _push(self, lease: str, deadline: int) -> None:
        now = self._clock.now()
        margin = min(round(MARGIN_SECONDS * _SECOND), max(0, deadline - now) // _SHARE)
        heapq.heappush(self._leases, (deadline - margin, lease, deadline))
        if len(self._leases) > 2 * len(self._hands.leases) + _LEASES_SPARE:
            self._leases = [entry for entry in self._leases if entry[1] in self._hands.leases]
            heapq.heapify(self._leases)
        self._wait()

    def _wait(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._leases:
            seconds = max(0.0, (self._leases[0][0] - self._clock.now()) / _SECOND)
            self._timer = asyncio.get_running_loop().call_later(seconds, self._look)

    def _look(self) -> None:
        """Give back what is due; a lease that was extended meanwhile has time."""
        self._timer = None
        now = self._clock.now()
        while self._leases and self._leases[0][0] <= now:
            _, lease, deadline = heapq.heappop(self._leases)
            hand = self._hands.hand(lease)
            if hand is not None and hand.deadline > deadline:
                self._push(lease, hand.deadline)
            elif hand is not None:
                self.give_back(hand.tasks)
        self._wait()

    def give_back(self, tasks: Mapping[Place, Task | Ticket]) -> None:
        """Give tasks back, unused."""
        left = dict(tasks)
        self._hands.settled(left)
        job = asyncio.get_running_loop().create_task(self._give(list(left.values())))
        self._jobs.add(job)
        job.add_done_callback(self._jobs.discard)

    async def _give(self, tasks: Sequence[Task | Ticket]) -> None:
        try:
            await self._release(tasks)
        except ForebayError:
            return  # its lease is over, or will be: that is how it comes back then
