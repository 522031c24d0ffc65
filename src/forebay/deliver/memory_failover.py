"""Failover to memory: what becomes of an entry that the disk doesn't take.

It is in the window like any other, so that workers send it, and in a `MemoryQueue`, which bounds how much of
that there is. Every few seconds, and whenever the disk has taken a push, some are tried on the disk again.

Invariants: with durability `always` a pusher is told of success only when its entry is on disk or delivered.
Every other end of an entry is counted, and told to its pusher, if that one still waits.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Final

from forebay.deliver.disk_round import Push
from forebay.deliver.entry import Entry, EntryState
from forebay.deliver.memory_queue import DRAIN_COUNT, DRAIN_SECONDS, MemoryQueue
from forebay.deliver.queue_settings import SendQueueSettings
from forebay.deliver.window import Window
from forebay.model import ForebayError, Full

__all__ = ["MemoryFailover"]

_VOLATILE: Final = 1 << 62
"""Sequence numbers of entries that are only in memory begin here: after all others."""
_AGAIN_SECONDS: Final = 1.0


class MemoryFailover:
    """The entries of one queue that are only in memory. Used by one event loop.

    `submit` brings entries to the disk, `drop` gives up the place and the room of one, `wake` tells that one
    is ready.
    """

    def __init__(
        self,
        settings: SendQueueSettings,
        window: Window,
        *,
        submit: Callable[[list[Push]], None],
        drop: Callable[[Entry], None],
        wake: Callable[[], None],
    ) -> None:
        self._settings = settings
        self._window = window
        self._submit = submit
        self._drop = drop
        self._wake = wake
        self._loop = asyncio.get_running_loop()
        self._memory = MemoryQueue()
        self._next = _VOLATILE
        self._timer: asyncio.TimerHandle | None = None
        self._is_closed = False
        self.dropped: Counter[str] = Counter()
        self.lost = 0
        """Of those that were dropped, the acknowledged ones."""

    def __len__(self) -> int:
        return len(self._memory)

    def add(self, push: Push, now_us: int, *, is_ordered: bool) -> None:
        """Take in an entry that the disk refused."""
        error, done = push.error, push.done
        assert error is not None
        entry = Entry(self._next, now_us, push.data, is_volatile=True, is_ordered=is_ordered)
        self._next += 1
        if self._settings.durability != "always":
            done(None)
            done = _told_already
        else:
            self._loop.call_later(self._settings.block_timeout, self._expire, entry, error)
        self._window.add(entry)
        for evicted in self._memory.add(entry, done):
            self._withdraw(evicted, error)
        self._wake()
        self._drain_in(DRAIN_SECONDS)

    def settle(self, entry: Entry) -> None:
        """An entry was delivered or buried: that is as good as kept."""
        self._memory.remove(entry)

    def drain(self) -> None:
        """Try the disk again with a few entries."""
        self._stop_timer()
        found = self._memory.idle(DRAIN_COUNT)
        for entry in found:
            entry.state = EntryState.WRITING
        if found:
            self._submit([Push(entry.data, _told_already, entry) for entry in found])

    def drain_soon(self) -> None:
        """The disk has taken a push: it may take the others."""
        if self._timer is not None:
            self._stop_timer()
            self._drain_in(0.0)

    def drained(self, entry: Entry, error: ForebayError | None) -> None:
        """The disk was tried with an entry; its place on disk is behind those that came meanwhile."""
        if error is None:
            self._window.remove(entry)
            self._memory.remove(entry)
        else:
            self._window.put_back(entry)
        self._wake()  # for itself, or for the one behind it
        self._drain_in(DRAIN_SECONDS if error is not None else 0.0)

    def stop(self) -> None:
        """Nothing is tried again by itself."""
        self._is_closed = True
        self._stop_timer()

    def refuse_all(self, error: ForebayError) -> None:
        """Give up what is left."""
        for entry in self._memory:
            self._give_up(entry, error, "shutdown")

    def _expire(self, entry: Entry, error: ForebayError) -> None:
        """The pusher has waited long enough."""
        if entry.state in (EntryState.READY, EntryState.DELAYED):
            self._withdraw(entry, error)
        elif entry.state is not EntryState.GONE:  # it is being sent or written: the answer comes soon
            self._loop.call_later(_AGAIN_SECONDS, self._expire, entry, error)

    def _withdraw(self, entry: Entry, error: ForebayError) -> None:
        self._give_up(entry, error, "disk_full" if isinstance(error, Full) else "disk_failed")

    def _give_up(self, entry: Entry, error: ForebayError, reason: str) -> None:
        self.dropped[reason] += 1
        self.lost += self._settings.durability != "always"
        self._drop(entry)
        self._memory.remove(entry, error)

    def _drain_in(self, seconds: float) -> None:
        if not self._is_closed and self._timer is None and len(self._memory):
            self._timer = self._loop.call_later(seconds, self.drain)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _told_already(_: ForebayError | None) -> None:
    """The pusher has its answer, or gets it by other means."""
