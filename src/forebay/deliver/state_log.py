"""Faults of a queue's disk, said when they begin, change and end, however often they are met."""

from __future__ import annotations

import logging

__all__ = ["StateLog"]


class StateLog:
    """Remembers the last fault of each part."""

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger
        self._faults: dict[str, str] = {}

    def say(self, part: str, fault: str | None) -> None:
        """Write a line if the fault of a part isn't what it was; None where it has none."""
        if fault == self._faults.get(part):
            return
        if fault is None:
            del self._faults[part]
            self._logger.info("the queue's disk works again (%s)", part)
        else:
            self._faults[part] = fault
            self._logger.error("the queue's disk failed (%s): %s", part, fault)
