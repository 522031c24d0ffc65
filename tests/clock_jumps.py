"""A clock of the machine that is set, for tests of what goes by it."""

from __future__ import annotations

import pytest

from forebay.model import ManualClock, SystemClock, identity


class Jumping:
    """What every clock of this process says, from now on; but for ids, which would never go back."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.jump = 0
        """Microseconds that the clock was set ahead."""
        before = SystemClock.now
        patch.setattr(SystemClock, "now", lambda clock: before(clock) + self.jump)
        patch.setattr(identity._mint, "_clock", ManualClock(before(SystemClock())))
