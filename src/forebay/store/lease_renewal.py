"""Leases of a take that isn't answered yet: kept while the log is slow, and looked at before the answer.

Invariants: nothing is renewed once the block is left; no lease is answered that is known to be over.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Final

from forebay.store.tiers import SECOND
from forebay.store.values import Task

RENEWAL_PART: Final = 1 / 3
"""After this part of their time leases are renewed."""
AGE_PART: Final = 0.1
"""Leases that are older than this part of their time are renewed before they are answered."""


class Renewal:
    """Calls `renew` again and again while the block takes long. Costs a timer."""

    __slots__ = ("_renew", "_seconds", "_timer")

    def __init__(self, renew: Callable[[], None], seconds: float) -> None:
        self._renew = renew
        self._seconds = seconds * RENEWAL_PART
        self._timer: asyncio.TimerHandle | None = None

    def __enter__(self) -> None:
        self._later()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._timer is not None
        self._timer.cancel()

    def _later(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(self._seconds, self._on_time)

    def _on_time(self) -> None:
        self._later()
        self._renew()


def is_in_doubt(tasks: Sequence[Task], seconds: float, age: float, now: int) -> bool:
    """Whether some of the leases of a take may be over, or last for much less than they should.

    `age` is how many seconds it took. Leases of two epochs mean that one of them is over.
    """
    first, last = tasks[0], tasks[-1]
    young = (1 - AGE_PART) * seconds
    return (
        age > AGE_PART * seconds
        or first.deadline - now < young * SECOND
        or first.lease.epoch != last.lease.epoch
    )
