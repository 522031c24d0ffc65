"""Time limits of requests that cost next to nothing: looked at now and then, all together.

A timer for each request costs more than many a request. A limit may be passed by a twentieth of it.
"""

from __future__ import annotations

import asyncio
from typing import Final

_LOOK_SECONDS_MAX: Final = 1.0
_LOOKS: Final = 20
"""How often the limits are looked at within the time of a request."""


class Deadline:
    """Until when the task that made it may go on; then it is cancelled, and `passed` says so."""

    __slots__ = ("_task", "at", "passed")

    def __init__(self, at: float) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._task = task
        self.at = at
        self.passed = False

    def end(self) -> None:
        """Cancel the task."""
        self.passed = True
        self._task.cancel()

    def explains(self, _: asyncio.CancelledError) -> bool:
        """Whether a cancellation was ours alone: then it is over."""
        return self.passed and not self._task.uncancel()


class Deadlines:
    """All that are running. There is a timer only while there are any."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._every = min(_LOOK_SECONDS_MAX, seconds / _LOOKS)
        self._running: set[Deadline] = set()
        self._timer: asyncio.TimerHandle | None = None

    def begin(self) -> Deadline:
        """Begin the time of a request in this task; to be ended with `finish`."""
        loop = asyncio.get_running_loop()
        deadline = Deadline(loop.time() + self._seconds)
        self._running.add(deadline)
        if self._timer is None:
            self._timer = loop.call_later(self._every, self._look)
        return deadline

    def finish(self, deadline: Deadline) -> None:
        """The request is over."""
        self._running.discard(deadline)

    def _look(self) -> None:
        loop = asyncio.get_running_loop()
        now = loop.time()
        for deadline in [d for d in self._running if d.at <= now]:
            self._running.discard(deadline)
            deadline.end()
        self._timer = loop.call_later(self._every, self._look) if self._running else None
