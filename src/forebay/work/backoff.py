"""When a task comes back whose handler failed, and when it doesn't any more. Pure functions."""

from __future__ import annotations

from forebay.work.settings import Backoff, BindingSettings

__all__ = ["gives_up", "is_spent", "pause_seconds"]


def pause_seconds(backoff: Backoff, attempts: int, chance: float) -> float:
    """How long a task waits that came back so often before; `chance` is 0 to 1, and spreads them.

    The first time it is `initial`.
    """
    try:
        seconds = min(backoff.max, backoff.initial * backoff.factor**attempts)
    except OverflowError:
        seconds = backoff.max
    return seconds * (1 + backoff.jitter * (2 * chance - 1))


def gives_up(settings: BindingSettings, attempts: int) -> bool:
    """Whether a task that came back so often doesn't come back again."""
    return settings.retries_max is not None and attempts >= settings.retries_max


def is_spent(settings: BindingSettings, attempts: int) -> bool:
    """Whether a task came back more often than it may: its workers died of it, or nobody gave it up."""
    return settings.retries_max is not None and attempts > settings.retries_max
