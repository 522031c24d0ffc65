"""A warning that may come thousands of times a second, written once in a while with how often it came."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from time import monotonic
from typing import Final

__all__ = ["SparseLog"]

_SECONDS: Final = 10.0


class SparseLog:
    """Warnings of one kind. The first is written at once, then one in ten seconds at most."""

    def __init__(self, logger: logging.Logger, *, elapsed: Callable[[], float] = monotonic) -> None:
        self._logger = logger
        self._elapsed = elapsed
        self._written_at = -math.inf
        self._unwritten = 0

    def warning(self, text: str, *arguments: object) -> None:
        """Write a warning, unless one was written a moment ago: then it is counted for the next."""
        now = self._elapsed()
        if now - self._written_at < _SECONDS:
            self._unwritten += 1
            return
        if self._unwritten:
            text, arguments = f"{text} (and %d times more before)", (*arguments, self._unwritten)
        self._logger.warning(text, *arguments)
        self._written_at, self._unwritten = now, 0
