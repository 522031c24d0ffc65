"""How often a key, or the subject of a JWT, may be used: a token bucket for each.

Invariants: there are never more than so many buckets, and if more are needed (keys are counted, subjects
aren't), those that are nearest to full are taken for full.
"""

import math
from heapq import nlargest
from operator import itemgetter
from typing import Final

from forebay.api.keys import ANYONE, Key
from forebay.api.settings import KeySettings
from forebay.model import TooMany
from forebay.model.bucket import spend

__all__ = ["RateLimits"]

_BUCKETS_MAX: Final = 100_000
"""Buckets that are remembered: ten times as many as there may be keys."""


class RateLimits:
    """The buckets of all keys; a key's own rate comes before that of the settings."""

    def __init__(self, settings: KeySettings | None = None) -> None:
        self._settings = settings or KeySettings()
        self._full_at: dict[str, float] = {}
        self.refused = 0
        """Requests that were over a rate."""

    def allow(self, key: Key, now: float, cost: float = 1.0) -> float | None:
        """Let a request of `key` through and return None, or return the seconds to wait."""
        if key is ANYONE:
            # Where there are no keys, everyone would share one bucket.
            return None
        rate = key.rate_per_second if key.rate_per_second is not None else self._settings.rate_per_second
        if rate is None:
            return None
        burst = key.burst if key.burst is not None else self._burst(key, rate)
        full_at = self._full_at.get(key.id, -math.inf)
        self._full_at[key.id], wait = spend(full_at, now, rate=rate, burst=burst, cost=cost)
        if len(self._full_at) > _BUCKETS_MAX:
            self._full_at = _emptiest(self._full_at, now)
        if wait is not None:
            self.refused += 1
        return wait

    def check(self, key: Key, now: float, cost: float = 1.0) -> None:
        """Raise TooMany when the request is over the rate of its key."""
        wait = self.allow(key, now, cost)
        if wait is not None:
            raise TooMany(
                f"{key.title} is used more often than it may be",
                hint=f"try again in {wait:.3g} s, and send more messages per request",
                retry_after_seconds=wait,
            )

    def _burst(self, key: Key, rate: float) -> float:
        """The burst of a key that names none: the setting's, unless the key has a rate of its own."""
        if self._settings.burst is not None and key.rate_per_second is None:
            return self._settings.burst
        return max(1.0, rate)


def _emptiest(full_at: dict[str, float], now: float) -> dict[str, float]:
    """The buckets without those that are full, which are as good as none; half of what there may be at most.

    So many are left out each time that this is seldom done.
    """
    kept = {id: at for id, at in full_at.items() if at > now}
    if len(kept) <= _BUCKETS_MAX // 2:
        return kept
    return dict(nlargest(_BUCKETS_MAX // 2, kept.items(), key=itemgetter(1)))
