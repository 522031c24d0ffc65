"""Served: one queue as a worker serves it, with its settings as they are now, and its numbers."""

from __future__ import annotations

from typing import Any

from forebay.work.binding import Binding
from forebay.work.numbers import QueueNumbers
from forebay.work.settings import BindingSettings
from forebay.work.values import QueueReport

__all__ = ["Served"]


class Served:
    """See the module. `shared` are the numbers of all workers of a registry, `own` those of this one."""

    def __init__(self, binding: Binding[Any], number: int, shared: QueueNumbers) -> None:
        self.binding = binding
        self.number = number
        self.settings: BindingSettings = binding.settings
        self.instructed: int | None = None
        """How many processors a Manager has given it."""
        self.shared = shared
        self.own = QueueNumbers()

    @property
    def limit(self) -> int:
        """How many processors it may have."""
        most = self.settings.max_processors
        return most if self.instructed is None else min(most, self.instructed)

    def add(self, **counts: int) -> None:
        """Count."""
        for numbers in (self.own, self.shared):
            for name, count in counts.items():
                setattr(numbers, name, getattr(numbers, name) + count)

    def cycle(self, seconds: float, tasks: int) -> None:
        """Count a batch."""
        self.own.cycle(seconds, tasks)
        self.shared.cycle(seconds, tasks)

    def report(self, processors: int) -> QueueReport:
        """What a Manager is told of it."""
        own = self.own
        return QueueReport(
            processed=own.processed,
            errors=own.errors,
            retried=own.retried,
            seconds_per_task=own.seconds_per_task,
            in_progress=own.in_progress,
            processors=processors,
            processors_max=self.settings.max_processors,
        )
