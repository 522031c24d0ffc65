"""When a flow that failed is started again: a state machine, pure, with the time passed in.

Invariants: pauses double from 1 second to 5 minutes and are spread, so that flows that fail together don't
come back together; whoever ran well for a minute begins with the shortest pause again; one that ended by
itself, or was given up, is not started again.
"""

from __future__ import annotations

from typing import Final, Literal

import msgspec

State = Literal["waiting", "running", "done", "given up"]

FIRST_SECONDS: Final = 1.0
LONGEST_SECONDS: Final = 300.0
GOOD_SECONDS: Final = 60.0
SPREAD: Final = 0.2
"""A pause is up to so much longer or shorter than its rule says."""
_DOUBLINGS_MAX: Final = 20


class Supervised(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of one flow; times are those of a clock that only goes forward."""

    state: State = "waiting"
    since: float = 0.0
    """When this state began."""
    due_at: float = 0.0
    """While it waits: when it is started."""
    failures: int = 0
    """How often it failed since it last ran well."""
    error: str | None = None
    """Why it failed last; None once it runs well."""

    @property
    def is_over(self) -> bool:
        """Whether it is never started again."""
        return self.state in ("done", "given up")

    def is_due(self, now: float) -> bool:
        """Whether it is to be started."""
        return self.state == "waiting" and now >= self.due_at

    def started(self, now: float) -> Supervised:
        """It runs; what it failed with is shown until it has run well."""
        return msgspec.structs.replace(self, state="running", since=now)

    def well(self, now: float) -> Supervised:
        """It has finished some work, or nothing was wrong for a while."""
        if self.state != "running" or (self.error is None and not self.failures):
            return self
        if now - self.since < GOOD_SECONDS:
            return self
        return msgspec.structs.replace(self, failures=0, error=None)

    def failed(self, now: float, error: str, spread: float) -> Supervised:
        """It ended with an error; `spread` is a random number from -1 to 1."""
        ran_well = self.state == "running" and now - self.since >= GOOD_SECONDS
        failures = 1 if ran_well else self.failures + 1
        return Supervised(
            since=now,
            due_at=now + pause(failures, spread),
            failures=failures,
            error=error or "no reason given",
        )

    def given_up(self, now: float) -> Supervised:
        """It failed as often as it may; why it did stays."""
        return msgspec.structs.replace(self, state="given up", since=now)

    def ended(self, now: float) -> Supervised:
        """It ended by itself: it had nothing more to do."""
        return Supervised(state="done", since=now)


def pause(failures: int, spread: float = 0.0) -> float:
    """Seconds to wait after so many failures in a row."""
    doublings = min(max(failures, 1) - 1, _DOUBLINGS_MAX)
    return float(min(FIRST_SECONDS * 2**doublings, LONGEST_SECONDS)) * (1 + SPREAD * spread)
