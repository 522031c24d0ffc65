"""Adaptive workers: how many of them send, from what was seen since the last look. A pure function.

One look a second or so. In this order:

1. The destination fails (the breaker isn't closed, or half of the requests failed): half as many.
2. Nothing waits, and fewer than half of the workers are busy: a quarter fewer.
3. Something waits, and every worker is busy:
   - the latency is within `latency_tolerance` times the usual: half as many more;
   - it is over: the destination queues what more workers send, so an eighth fewer.
4. Otherwise: as many as before.

Steps are at least one worker. The usual latency is the lowest that was seen. With `min_workers` at work it is
the one that is seen then: a destination that has become slower for good brings the count down to there, and
from there it grows again by the new measure.

Invariants: the count stays within its bounds; with nothing to do it comes down to `min_workers`; with
work for all it goes up to `max_workers` unless latency or failures speak against it.
"""

from __future__ import annotations

import os
from typing import Final

import msgspec

__all__ = ["Load", "Scale", "ScaleRule", "next_scale"]

_FAILING: Final = 0.5


class ScaleRule(msgspec.Struct, frozen=True, kw_only=True):
    """The bounds of the count, and when more workers stop helping."""

    min_workers: int = 1
    max_workers: int = 0
    """0: four for each CPU."""
    latency_tolerance: float = 2.0

    @property
    def most(self) -> int:
        """The upper bound, also where none is set; never under the lower one."""
        return max(self.min_workers, self.max_workers or 4 * (os.cpu_count() or 1))


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """One look at the workers: the time since the last one."""

    waiting: int
    """Entries that could be sent now."""
    busy: int
    """Workers that are sending."""
    sent: int
    """Attempts that ended."""
    failed: int
    """Of those, failures that count for the breaker."""
    latency_seconds: float | None
    """Of an attempt, on average; None when none ended."""
    is_open: bool = False
    """The breaker isn't closed."""


class Scale(msgspec.Struct, frozen=True):
    """How many workers there are, and what is remembered for the next look."""

    workers: int
    usual_seconds: float | None = None
    """The latency of the destination when it isn't crowded."""


def next_scale(scale: Scale, load: Load, rule: ScaleRule) -> Scale:
    """The number of workers for the time to the next look."""
    usual = _usual(scale.usual_seconds, load.latency_seconds, is_least=scale.workers <= rule.min_workers)
    workers = max(rule.min_workers, min(rule.most, scale.workers + _step(scale.workers, load, rule, usual)))
    return Scale(workers, usual)


def _step(workers: int, load: Load, rule: ScaleRule, usual: float | None) -> int:
    if load.is_open or (load.failed and load.failed >= _FAILING * load.sent):
        return -max(1, workers // 2)
    if not load.waiting:
        return -max(1, workers // 4) if 2 * load.busy < workers else 0
    if load.busy < workers:
        return 0
    if (
        usual is None
        or load.latency_seconds is None
        or load.latency_seconds <= rule.latency_tolerance * usual
    ):
        return max(1, workers // 2)
    return -max(1, workers // 8)


def _usual(usual: float | None, seen: float | None, *, is_least: bool) -> float | None:
    if seen is None:
        return usual
    return seen if usual is None or is_least else min(seen, usual)
