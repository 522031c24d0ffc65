"""What a worker can be told, and what can be told of each of its queues."""

from __future__ import annotations

from typing import Annotated

import msgspec

from forebay.model import Rejected

__all__ = ["BATCH_MAX", "PROCESSORS_MAX", "Backoff", "BindingSettings", "WorkerSettings"]

PROCESSORS_MAX = 1_000
"""Job processors of one worker."""
BATCH_MAX = 10_000
RETRIES_MAX = (1 << 31) - 2
"""As many as a queue takes."""
_VISIBILITY_MIN = 0.1
_VISIBILITY_MAX = 86_400.0
_HANDLE_MIN = 0.1
_YEAR = 365 * 86_400.0
_Seconds = Annotated[float, msgspec.Meta(ge=0)]


def _check(is_right: bool, what: str, hint: str) -> None:  # noqa: FBT001 - reads as a sentence
    if not is_right:
        raise Rejected(f"{what} can't be", hint=f"give {hint}")


class Backoff(msgspec.Struct, frozen=True, kw_only=True):
    """How long a task waits that comes back: `initial`, then `factor` times longer each time, up to `max`."""

    initial: float = 1.0
    """Seconds, up to the longest."""
    factor: float = 2.0
    """From 1 to 1,000."""
    max: float = 3600.0
    """Seconds, up to a year."""
    jitter: float = 0.1
    """Up to this part of it is added or taken away, so that what failed together comes back apart."""

    def __post_init__(self) -> None:
        """Refuse what would never end, or come sooner and sooner."""
        _check(0 <= self.initial <= self.max, f"a first pause of {self.initial} s", "0 up to the longest")
        _check(1 <= self.factor <= 1000, f"a factor of {self.factor}", "1 to 1000")  # noqa: PLR2004 - a bound
        _check(self.max <= _YEAR, f"a pause of {self.max} s", "up to a year")
        _check(0 <= self.jitter <= 1, f"a jitter of {self.jitter}", "0 to 1")


class BindingSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How the tasks of one queue are worked."""

    batch_size: int = 10
    """Tasks that a handler gets at once, at most."""
    max_processors: int = 1
    """Job processors of one worker that may be at it at a time."""
    visibility_seconds: float = 60.0
    """How long a worker that died keeps its tasks; while it lives, its leases are extended."""
    handle_seconds_max: float = 86_400.0
    """How long a handler may have a batch, from 0.1 s to a year: after that it is cancelled, what it has not
    settled has failed, and its leases are extended no more. A day, so that what takes long isn't done twice,
    while a handler that hangs doesn't keep its tasks and its processor for ever."""
    ordered: bool = False
    """The queue must be an ordered one."""
    retries_max: int | None = None
    """How often a task comes back, because its handler failed or its worker died, before it is a dead letter;
    none: for ever. A queue that the worker makes has this limit, too; of both, the lower one holds."""
    backoff: Backoff = Backoff()
    """How long a task waits after its handler has failed."""

    def __post_init__(self) -> None:
        """Refuse what can't work."""
        _check(1 <= self.batch_size <= BATCH_MAX, f"a batch of {self.batch_size}", f"1 to {BATCH_MAX}")
        what = f"{self.max_processors} processors"
        _check(0 <= self.max_processors <= PROCESSORS_MAX, what, f"0 to {PROCESSORS_MAX}")
        what = f"a visibility timeout of {self.visibility_seconds} s"
        _check(_VISIBILITY_MIN <= self.visibility_seconds <= _VISIBILITY_MAX, what, "0.1 s to a day")
        what = f"a handler that takes {self.handle_seconds_max} s"
        _check(_HANDLE_MIN <= self.handle_seconds_max <= _YEAR, what, "0.1 s to a year")
        if self.retries_max is not None:
            is_right = 0 <= self.retries_max <= RETRIES_MAX
            _check(is_right, f"{self.retries_max} retries", f"0 to {RETRIES_MAX}, or none for no limit")


class WorkerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How a worker goes about it."""

    shutdown_seconds: _Seconds = 30.0
    """How long handlers may go on after the worker was told to stop."""
    hurry_seconds: _Seconds = 2.0
    """How long they may go on after they were cancelled."""
    wait_seconds: _Seconds = 30.0
    """How long one call waits for tasks; it is made again."""
    threads: Annotated[int, msgspec.Meta(ge=1)] = 16
    """Threads for handlers that are no coroutines."""
    parked_seconds: _Seconds = 3600.0
    """When a task that this worker can't read comes back, for one that can."""
    report_seconds: Annotated[float, msgspec.Meta(ge=0, le=5)] = 2.0
    """How often a Manager hears of the worker, and the worker of it; 0: never."""
    group: str = "workers"
    """The consumer group."""
