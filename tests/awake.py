"""A clock for bounds, which stands still while the machine does: what it measures was waited for.

A machine that others use may do nothing for seconds. All clocks go on meanwhile, and whoever is to be done
within a second is late without being slow. Here a thread looks at the time again and again, and of what has
passed between two looks no more counts than is usual on a machine that is busy.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from time import monotonic
from types import TracebackType
from typing import Final, Self

__all__ = ["GAP_SECONDS_MAX", "Awake"]

GAP_SECONDS_MAX: Final = 0.2
_LOOK_SECONDS: Final = 0.02


class Awake:
    """Use as `with`; a call gives seconds."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._seen = clock()
        self._passed = 0.0
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._looking = threading.Thread(target=self._look, name="awake", daemon=True)

    def __call__(self) -> float:
        """How much time has passed in which something could be done."""
        with self._lock:
            now = self._clock()
            self._passed += min(now - self._seen, GAP_SECONDS_MAX)
            self._seen = now
            return self._passed

    def __enter__(self) -> Self:
        self._looking.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._looking.join()

    def _look(self) -> None:
        while not self._over.wait(_LOOK_SECONDS):
            self()
