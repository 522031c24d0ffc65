"""What handlers say of their tasks, and what a worker says of its queues."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import TypeAlias

import msgspec

__all__ = [
    "Bury",
    "Done",
    "HandlerStats",
    "Outcome",
    "QueueReport",
    "RetryAfter",
    "RetryInfo",
    "WorkerReport",
]


class HandlerStats(msgspec.Struct, kw_only=True):
    """What a handler says of one batch."""

    processed: int = 0
    """Tasks that it is done with."""
    errors: int = 0
    """Tasks on which it failed."""
    retried: int = 0
    """Tasks that it sent back."""
    duration: float = 0.0
    """Seconds."""
    last_error: BaseException | None = None
    """For the logs."""


class RetryInfo(msgspec.Struct, frozen=True):
    """A task that comes back at a time: µs, or aware."""

    task_id: int
    next_start_time: int | datetime
    reason: str = ""
    """Why, for whoever looks at the task later."""


class Done(msgspec.Struct, frozen=True):
    """The task is done."""


class RetryAfter(msgspec.Struct, frozen=True):
    """The task comes back after so many seconds, and that counts as an attempt."""

    after: float = 0.0
    """From 0 to a hundred years; anything else is a failure of the handler."""
    reason: str = ""
    """Why, for whoever looks at the task later."""


class Bury(msgspec.Struct, frozen=True):
    """The task becomes a dead letter."""

    reason: str


Outcome: TypeAlias = Done | RetryAfter | Bury
"""What a handler of the short way returns for a task; nothing at all means done."""


class QueueReport(msgspec.Struct, frozen=True, kw_only=True):
    """One queue of a worker, since it began. What a newer worker adds is passed over."""

    processed: int
    errors: int
    retried: int
    seconds_per_task: float | None
    """As it was lately; none before the first batch."""
    in_progress: int
    """Tasks that are in the hands of handlers now."""
    processors: int
    """Job processors that work on it now."""
    processors_max: int
    """Job processors that may work on it by its settings, whatever a Manager says."""


class WorkerReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker tells a Manager. What a newer one adds is passed over."""

    worker: str
    processors: int
    """Job processors in all."""
    queues: Mapping[str, QueueReport]
    group: str = "workers"
    """The consumer group that it works for."""
