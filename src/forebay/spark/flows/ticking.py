"""Flows that read no queue: a thread that does something at every tick, until it is stopped or fails.

Ticks are counted from the beginning of time, so that all processes agree on their numbers.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final

_STOP_SECONDS: Final = 10.0


class Ticking:
    """Calls `work` with the number of each tick; ticks that it was late for are left out."""

    def __init__(
        self,
        name: str,
        every: float,
        work: Callable[[int], None],
        *,
        once: bool = False,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._every = every
        self._work = work
        self._once = once
        self._clock = clock
        self._ending = threading.Event()
        self._failed: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name=f"flow-{name}", daemon=True)
        self._thread.start()

    def is_active(self) -> bool:
        """Whether it goes on."""
        return self._thread.is_alive()

    def error(self) -> BaseException | None:
        """Why it doesn't."""
        return None if self._ending.is_set() else self._failed

    def stop(self) -> None:
        """End it after what it is doing."""
        self._ending.set()
        self._thread.join(_STOP_SECONDS)

    def _run(self) -> None:
        try:
            while not self._ending.is_set():
                tick = int(self._clock() // self._every)
                self._work(tick)
                if self._once:
                    return
                # A clock that was put back must not make it wait for as long as that.
                self._ending.wait(max(0.0, min(self._every, (tick + 1) * self._every - self._clock())))
        except BaseException as error:  # noqa: BLE001 - whoever watches is told
            self._failed = error
