"""When a message is handed out at the earliest: delayed processing, and windows in which messages gather.

A window of a partition opens with its first message, and closes `window_buffer` seconds later: all that came
meanwhile is handed out then, together. Each server has windows of its own.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from forebay.api.queen.options import Options
from forebay.model import Clock

_OPEN_MAX: Final = 100_000
_SECOND: Final = 1_000_000


class Windows:
    """Windows that are open; beyond a bound the oldest are closed to newcomers, who open another."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._ends: OrderedDict[tuple[str, str], int] = OrderedDict()

    def begin(self, queue: str, partition: str, options: Options) -> int | None:
        """When a message that is pushed now may be handed out; None for at once."""
        if not (options.delayed_processing or options.window_buffer):
            return None
        now = self._clock.now()
        begins = now + options.delayed_processing * _SECOND
        if options.window_buffer:
            begins = max(begins, self._end(queue, partition, now, options.window_buffer))
        return begins

    def _end(self, queue: str, partition: str, now: int, seconds: int) -> int:
        key = (queue, partition)
        end = self._ends.get(key, 0)
        if end <= now or end > now + seconds * _SECOND:
            end = self._ends[key] = now + seconds * _SECOND
            self._ends.move_to_end(key)
            self._prune(now)
        return end

    def _prune(self, now: int) -> None:
        while self._ends and (len(self._ends) > _OPEN_MAX or next(iter(self._ends.values())) <= now):
            self._ends.popitem(last=False)
