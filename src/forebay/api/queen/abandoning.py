"""What is left of a batch of which a message failed: some clients go on with it, others leave it.

A client that has said of one message that it failed either goes on with the next ones of its partition, and
acknowledges them, or forgets them, and counts on getting them again after the one that failed. Nobody says
which. So they stay with the client for as long as it keeps on acknowledging, and go back, unused, when
nothing was heard of them for a moment: long before their lease would be over.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from forebay.api.queen.hands import Hands
from forebay.model import ForebayError
from forebay.store.values import Task

SILENCE_SECONDS: Final = 2.0
Release = Callable[[Sequence[Task]], Awaitable[None]]
_Rest = tuple[str, int, str]
"""A lease, and the partition of which something failed: its queue's number, its name."""


class Abandoned:
    """Watches what may have been left; `release` gives tasks back unused."""

    def __init__(self, hands: Hands, release: Release) -> None:
        self._hands = hands
        self._release = release
        self._timers: dict[_Rest, asyncio.TimerHandle] = {}
        self._jobs: set[asyncio.Task[None]] = set()

    def failed(self, lease: str, queue: int, partition: str) -> None:
        """A message of a partition failed: whoever has the rest may have left it."""
        hand = self._hands.hand(lease)
        if hand is not None and (queue, partition) in hand.by_partition:
            self._watch((lease, queue, partition))

    def heard(self, lease: str, queue: int, partition: str) -> None:
        """Something was acknowledged: its client goes on."""
        if (lease, queue, partition) in self._timers:
            self._watch((lease, queue, partition))

    def _watch(self, rest: _Rest) -> None:
        if (timer := self._timers.pop(rest, None)) is not None:
            timer.cancel()
        self._timers[rest] = asyncio.get_running_loop().call_later(SILENCE_SECONDS, self._give_up, rest)

    def _give_up(self, rest: _Rest) -> None:
        del self._timers[rest]
        job = asyncio.get_running_loop().create_task(self._give_back(*rest))
        self._jobs.add(job)
        job.add_done_callback(self._jobs.discard)

    async def _give_back(self, lease: str, queue: int, partition: str) -> None:
        hand = self._hands.hand(lease)
        if hand is None:
            return
        left = {
            place: task
            for place, task in hand.tasks.items()
            if (place.queue, place.partition) == (queue, partition)
        }
        self._hands.settled(left)
        try:
            await self._release(list(left.values()))
        except ForebayError:
            return  # its lease is over, or will be: that is how it comes back then
