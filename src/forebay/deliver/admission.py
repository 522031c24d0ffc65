"""Admission: whether a destination gets a request now, from its breaker, pace and pauses.

One for each destination. It holds the state that the pure functions of `breaker`, `slow_start` and
`forebay.model.bucket` work on; the clock is passed in, so nothing here waits. A sender asks for a permit, and
reports the outcome or gives the permit back, whatever happens in between:

    permit = admission.ask(now)
    if isinstance(permit, float): wait that many seconds, or until `changed` is called
    outcome = await destination.send(prepared)
    admission.report(permit, outcome, now)

Invariants: never more permits are out than `in_flight_max`; a destination that asks for a pause gets no
request until it is over.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from typing import Final

import msgspec

from forebay.deliver import breaker as breakers
from forebay.deliver.breaker import Breaker, BreakerRule, BreakerState, Permit
from forebay.deliver.slow_start import RampRule, in_flight_max
from forebay.deliver.values import Outcome
from forebay.model.bucket import spend

__all__ = ["Admission", "RateRule"]

logger: Final = logging.getLogger("forebay.deliver")
_WAIT_SECONDS_MAX: Final = 60.0
"""The longest wait that is answered where only a report makes room."""
_RAMP_LOOK_SECONDS: Final = 0.1
"""How soon to ask again while the limit grows by itself."""


class RateRule(msgspec.Struct, frozen=True, kw_only=True):
    """How many requests a destination gets."""

    per_second: float
    burst: float = 1.0
    """Requests that may follow each other at once."""


class Admission:
    """The gate of one destination. Used by one event loop."""

    def __init__(
        self,
        *,
        in_flight_max: int,
        breaker: BreakerRule | None = None,
        ramp: RampRule | None = None,
        rate: RateRule | None = None,
        pause_seconds_max: float = 3_600.0,
        changed: Callable[[], None] = lambda: None,
        name: str = "the destination",
    ) -> None:
        self._name = name
        self._breaker_rule = breaker or BreakerRule()
        self._ramp = ramp or RampRule()
        self._rate = rate
        self._full_at = -math.inf
        self._pause_seconds_max = pause_seconds_max
        self._paused_until = -math.inf
        self._recovered_at: float | None = None
        self._changed = changed
        self.in_flight_max = in_flight_max
        """In ordinary times; may be changed at any time."""
        self.breaker = Breaker()
        self.in_flight = 0
        self.refused = 0
        """How often the breaker said no."""
        self.failing_since: float | None = None
        """When the failures began that no success has ended yet; None when there are none."""

    def ask(self, now: float) -> Permit | float:
        """Get a permit, or the seconds after which to ask again (sooner when `changed` is called)."""
        if now < self._paused_until:
            return self._paused_until - now
        if self.in_flight >= self.limit(now):
            return self._until_more(now)
        full_at, wait = self._spend(now)
        if wait is not None:
            return wait
        self.breaker, permit = breakers.ask(self.breaker, self._breaker_rule, now)
        if permit is None:
            self.refused += 1
            return breakers.wait_seconds(self.breaker, self._breaker_rule, now)
        self._full_at = full_at
        self.in_flight += 1
        return permit

    def wait_seconds(self, now: float) -> float:
        """Seconds after which it makes sense to ask; 0 when a permit can be had now. Changes nothing."""
        if now < self._paused_until:
            return self._paused_until - now
        if self.in_flight >= self.limit(now):
            return self._until_more(now)
        return self._spend(now)[1] or breakers.wait_seconds(self.breaker, self._breaker_rule, now)

    def forget(self) -> None:
        """Begin anew, as with a destination that never failed; permits that are out stay out."""
        era = self.breaker.era + 1
        self.breaker = Breaker(era=era, opened=self.breaker.opened)
        self._paused_until, self._recovered_at, self.failing_since = -math.inf, None, None
        self._changed()

    def report(self, permit: Permit, outcome: Outcome, now: float) -> None:
        """Take in how a request ended, and its permit back."""
        self.in_flight -= 1
        before, failing_since = self.breaker.state, self.failing_since
        verdict = breakers.verdict_of(outcome)
        self.breaker = breakers.report(self.breaker, self._breaker_rule, permit, verdict, now)
        if before is not BreakerState.CLOSED and self.breaker.state is BreakerState.CLOSED:
            self._recovered_at = now
        if verdict == "success":
            self.failing_since = None
        elif verdict == "failure" and self.failing_since is None:
            self.failing_since = now
        if outcome.retry_after_seconds is not None and outcome.is_retried:
            pause = min(outcome.retry_after_seconds, self._pause_seconds_max)
            self._paused_until = max(self._paused_until, now + pause)
        self._tell(before, failing_since, outcome, now)
        self._changed()

    def _tell(self, before: BreakerState, failing_since: float | None, outcome: Outcome, now: float) -> None:
        """Log that a destination begins or ceases to fail; what comes in between is in the metrics."""
        extra = {"destination": self._name}
        if failing_since is None and self.failing_since is not None:
            logger.warning("%s fails: %s", self._name, outcome.reason, extra=extra)
        elif failing_since is not None and self.failing_since is None:
            text = "%s takes requests again, after %.0f seconds"
            logger.info(text, self._name, now - failing_since, extra=extra)
        if before is BreakerState.CLOSED and self.breaker.state is BreakerState.OPEN:
            text = "the circuit breaker of %s is open: the next try is in %g seconds"
            logger.warning(text, self._name, self._breaker_rule.reset_seconds, extra=extra)

    def give_back(self, permit: Permit) -> None:
        """Take back a permit whose request wasn't sent, or was cancelled."""
        self.in_flight -= 1
        self.breaker = breakers.give_back(self.breaker, permit)
        self._changed()

    def limit(self, now: float) -> int:
        """Requests that may be in flight now."""
        return in_flight_max(self._ramp, self.in_flight_max, self._recovered_at, now)

    def _spend(self, now: float) -> tuple[float, float | None]:
        if self._rate is None:
            return self._full_at, None
        return spend(self._full_at, now, rate=self._rate.per_second, burst=self._rate.burst)

    def _until_more(self, now: float) -> float:
        """While a destination recovers its limit grows by itself; otherwise only a report makes room."""
        return _RAMP_LOOK_SECONDS if self.limit(now) < self.in_flight_max else _WAIT_SECONDS_MAX
