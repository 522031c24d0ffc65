"""Counters of the deliveries to one destination. Counting adds to a number; `metrics` has the names."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from typing import Final

from forebay.deliver.failure import counts_for_breaker
from forebay.deliver.values import Outcome

__all__ = ["LATENCY_BOUNDS", "DeliveryCounts"]

LATENCY_BOUNDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_SMOOTHING: Final = 0.2


class DeliveryCounts:
    """Numbers that only grow, but for the latency on average."""

    def __init__(self) -> None:
        self.attempts = self.delivered = 0
        self.messages = 0
        """Messages of a queue that were delivered; several may share a request."""
        self.retries = self.retries_delivered = 0
        self.retries_failed: Counter[str] = Counter()
        """Of the attempts after a first one those that failed, by error class."""
        self.failures: Counter[str] = Counter()
        """Attempts that failed, by error class."""
        self.buried: Counter[str] = Counter()
        """Dead letters, by error class."""
        self.troubled = 0
        """Attempts that failed for a reason that lies with the destination."""
        self.splits = 0
        self.latency_buckets = [0] * (len(LATENCY_BOUNDS) + 1)
        self.latency_sum = 0.0
        self.latency_ewma: float | None = None
        self.backoff_seconds = 0.0
        """The last pause before a retry; 0 after a delivery."""

    def attempt(self, outcome: Outcome, seconds: float, *, attempts_before: int) -> None:
        """Count how an attempt ended."""
        self.attempts += 1
        self.latency_buckets[bisect_left(LATENCY_BOUNDS, seconds)] += 1
        self.latency_sum += seconds
        known = self.latency_ewma
        self.latency_ewma = seconds if known is None else known + _SMOOTHING * (seconds - known)
        is_retry = attempts_before > 0
        self.retries += is_retry
        if outcome.error_class is None:
            self.delivered += 1
            self.retries_delivered += is_retry
            self.backoff_seconds = 0.0
        else:
            self.failures[outcome.error_class.value] += 1
            if is_retry:
                self.retries_failed[outcome.error_class.value] += 1
            self.troubled += counts_for_breaker(outcome)
