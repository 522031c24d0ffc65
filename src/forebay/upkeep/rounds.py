"""Rounds of upkeep: sweep the SQL inbox often, drop what is past retention now and then, see what is away.

Invariants: a round that fails is reported and tried again at its next time; several servers on one log may
all do it; nothing here is needed for messages to be handed out or settled.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final, Protocol, Self

from forebay.log.values import REJECTED_MAX, RejectedRow, Trimmed
from forebay.model import Unavailable, cancel

logger: Final = logging.getLogger("forebay.upkeep")

SWEEP_SECONDS: Final = 1.0
TRIM_SECONDS: Final = 60.0
LOOK_SECONDS: Final = 1.0


class Kept(Protocol):
    """What upkeep is done to."""

    @property
    def warm_problem(self) -> str | None:
        """Why the shared warm tier can't be reached; None while it can, and where there is none."""
        ...

    async def sweep(self) -> int:
        """Move what users left in the inbox into blocks; how many messages."""
        ...

    async def inbox_rejected(self, after: int = 0, limit: int = 100) -> list[RejectedRow]:
        """Rows of the inbox that no block can hold, in the order of their ids."""
        ...

    async def trim(self) -> Trimmed:
        """Drop what retention no longer holds."""
        ...


class Upkeep:
    """Does the rounds for as long as it is entered."""

    def __init__(
        self,
        store: Kept,
        *,
        sweep_seconds: float = SWEEP_SECONDS,
        trim_seconds: float = TRIM_SECONDS,
        look_seconds: float = LOOK_SECONDS,
    ) -> None:
        self._store = store
        self._is_warm_away = False
        self._is_counted = False
        self.rejected = 0
        """Rows of the inbox that are rejected, as far as they are counted."""
        self._periods: dict[str, tuple[float, Callable[[], Awaitable[object]]]] = {
            "sweep": (sweep_seconds, self._sweep),
            "trim": (trim_seconds, self._trim),
            "look": (look_seconds, self._look),
        }
        self._tasks: list[asyncio.Task[None]] = []
        self.rounds: dict[str, int] = dict.fromkeys(self._periods, 0)
        """How many rounds went well."""

    async def __aenter__(self) -> Self:
        await self._look()
        self._tasks = [
            asyncio.create_task(self._forever(name), name=f"forebay-{name}") for name in self._periods
        ]
        return self

    async def __aexit__(self, *_: object) -> None:
        await cancel(*self._tasks)

    async def _sweep(self) -> None:
        if await self._store.sweep() or not self._is_counted:
            await self._count_rejected()

    async def _trim(self) -> None:
        await self._store.trim()
        await self._count_rejected()  # other servers sweep, too, and people settle it

    async def _count_rejected(self) -> None:
        """Say that rows of the inbox were rejected, whenever there are more of them."""
        found = await self._store.inbox_rejected(0, REJECTED_MAX)
        if len(found) > self.rejected:
            last = found[-1]
            text = "rows of the SQL inbox are rejected, and reach no queue: see `forebay inbox`"
            logger.warning(
                "%d %s; the last, %d for %s: %s", len(found), text, last.id, last.queue, last.reason
            )
        self.rejected, self._is_counted = len(found), True

    async def _look(self) -> None:
        """Say once that the shared warm tier is away, and once that it is back."""
        problem = self._store.warm_problem
        if problem is not None and not self._is_warm_away:
            text = "the warm tier is away, and this server works from its own memory until it is back: %s"
            logger.warning(text, problem)
        elif problem is None and self._is_warm_away:
            logger.warning("the warm tier is back")
        self._is_warm_away = problem is not None

    async def _forever(self, name: str) -> None:
        seconds, work = self._periods[name]
        while True:
            await asyncio.sleep(seconds)
            try:
                await work()
            except Unavailable:
                continue  # whoever needs the log is told; this round isn't missed
            except Exception:
                logger.exception("a round of upkeep failed", extra={"round": name})
            else:
                self.rounds[name] += 1
