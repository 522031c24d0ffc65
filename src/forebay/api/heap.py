"""Memory that was freed goes back to the system.

glibc keeps what was freed for later, and after a surge of large answers that is gigabytes. It is told to
give them back now and then, in a thread, since it looks through the whole heap.
"""

from __future__ import annotations

import asyncio
import ctypes
from collections.abc import Callable
from typing import Final

_TRIM_BYTES: Final = 32 << 20
"""After so many bytes were freed the heap is looked through."""
_TRIM_SECONDS: Final = 1.0
"""How long it is waited for more to be freed, so that it is done once for many."""


def _find_trim() -> Callable[[int], int] | None:
    """The function of glibc; other libraries have none, and need none."""
    try:
        found: Callable[[int], int] = ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError, TypeError):
        return None
    return found


_MALLOC_TRIM: Final = _find_trim()


class HeapTrim:
    """Notes what is freed, and has the system get it."""

    def __init__(
        self, trim: Callable[[int], int] | None = _MALLOC_TRIM, *, seconds: float = _TRIM_SECONDS
    ) -> None:
        self._trim = trim
        self._seconds = seconds
        self._freed_bytes = 0
        self._timer: asyncio.TimerHandle | None = None

    def freed(self, size: int) -> None:
        """Note that so many bytes are about to be freed."""
        self._freed_bytes += size
        if self._trim is None or self._timer is not None or self._freed_bytes < _TRIM_BYTES:
            return
        self._timer = asyncio.get_running_loop().call_later(self._seconds, self._run)

    def _run(self) -> None:
        assert self._trim is not None
        self._timer, self._freed_bytes = None, 0
        asyncio.get_running_loop().run_in_executor(None, self._trim, 0)
