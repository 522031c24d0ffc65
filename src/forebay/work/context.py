"""Context: what a handler is told beside its tasks.

Invariants: `lost` only grows; `stopping` is set once, and stays set; whatever runs in a thread is waited for,
also when the handler was cancelled, since nothing can interrupt it; unless that has not begun.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from time import monotonic
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from forebay.model import Rejected

if TYPE_CHECKING:
    from forebay.work.threads import Threads

__all__ = ["Context"]

P = ParamSpec("P")
R = TypeVar("R")


class Context:
    """One call of a handler."""

    def __init__(
        self,
        queue: str,
        worker: str,
        *,
        stopping: asyncio.Event,
        deadline: float,
        threads: Threads | None = None,
        attempts: int = 0,
    ) -> None:
        self.queue = queue
        self.worker = worker
        self.stopping = stopping
        """Set when the worker is to stop: a handler that takes long may end early. What it has not settled
        then goes back, and counts no attempt."""
        self.attempts = attempts
        """How often the task of this batch came back that came back most often."""
        self.is_cancelled = False
        """Whether the worker can't wait any longer; for threads, which can't be cancelled."""
        self.is_overdue = False
        """Whether that is as it took longer than `handle_seconds_max`: what it has not settled has failed."""
        self.deadline = deadline
        """Until when the leases hold, on the monotonic clock; moves as they are extended."""
        self._lost: set[int] = set()
        self._threads = threads
        self._in_threads = 0
        self._is_left = False

    @property
    def lost(self) -> Collection[int]:
        """Ids of tasks that are with another worker by now: whatever is said of them changes nothing."""
        return self._lost

    def lose(self, ids: Collection[int]) -> None:
        """Note tasks whose lease was lost."""
        self._lost.update(ids)

    def remaining(self) -> float:
        """Seconds for which the leases hold, unless they are extended, as they are while the handler runs.

        Near 0, or below, where the store couldn't be reached for that.
        """
        return self.deadline - monotonic()

    async def in_thread(self, work: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Run something that blocks in one of the worker's threads."""
        assert self._threads is not None, "a context without a worker"
        if self._is_left:
            raise Rejected("the handler took too long, and nobody waits for it", hint="let it end")
        self._in_threads += 1
        try:
            return await self._threads.run(work, *args, **kwargs)
        finally:
            self._in_threads -= 1
            self._replace_threads(-1)

    def leave(self) -> None:
        """Nobody waits for the handler any more: the threads that it is in are replaced until it is out."""
        self._is_left = True
        self._replace_threads(self._in_threads)

    def _replace_threads(self, count: int) -> None:
        if self._is_left and self._threads is not None:
            self._threads.spare(count)
