"""OutcomeWriter: what became of tasks, gathered while one write is under way and settled by the next.

Invariants: each task is settled once; a store that is away is told again until it listens or its leases are
lost. What a destination has taken and the store never hears of is sent again: delivery is at least once.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from forebay.model import ForebayError, LeaseLost, Unavailable, cancel
from forebay.store.seam import Store
from forebay.store.values import Retry, Task

__all__ = ["REASON_MAX", "OutcomeWriter"]

logger: Final = logging.getLogger("forebay.deliver")

REASON_MAX: Final = 1_000
"""Characters of a reason that are kept: every store takes as many, whatever they are."""
_AGAIN_SECONDS: Final = 0.1
_AGAIN_SECONDS_MAX: Final = 5.0


class OutcomeWriter:
    """Gathers and writes; `settled` is called with the ids of tasks that are no longer in hand."""

    def __init__(self, store: Store, settled: Callable[[Iterable[int]], None]) -> None:
        self._store = store
        self._settled = settled
        self._done: dict[int, list[Task]] = {}
        self._retries: dict[int, list[Retry]] = {}
        self._buried: dict[tuple[int, str], list[Task]] = {}
        self._released: list[Task] = []
        self._writing: asyncio.Task[None] | None = None
        self.lost = 0
        """Tasks whose lease was lost before their outcome was written."""

    def done(self, tasks: Iterable[Task], status: int) -> None:
        """Tasks are delivered; the destination answered with a status."""
        self._done.setdefault(status, []).extend(tasks)
        self._begin()

    def retry(self, tasks: Iterable[Task], seconds: float, reason: str, status: int) -> None:
        """Tasks are tried again after a while."""
        said = _storable(reason)
        self._retries.setdefault(status, []).extend(
            [Retry(task, reason=said, delay_seconds=seconds) for task in tasks]
        )
        self._begin()

    def put_off(self, task: Task, seconds: float) -> None:
        """A task that was handed out too early comes again after a while; that is no attempt."""
        self._retries.setdefault(0, []).append(Retry(task, counts=False, delay_seconds=seconds))
        self._begin()

    def bury(self, task: Task, reason: str, status: int) -> None:
        """A task is a dead letter."""
        self._buried.setdefault((status, _storable(reason)), []).append(task)
        self._begin()

    def release(self, tasks: Iterable[Task]) -> None:
        """Tasks go back without having been tried."""
        self._released += tasks
        self._begin()

    async def close(self, seconds: float) -> None:
        """Wait until everything is written, up to so many seconds; leases of the rest end by themselves."""
        if self._writing is not None:
            await asyncio.wait([self._writing], timeout=seconds)
            await cancel(self._writing)

    def _begin(self) -> None:
        if self._writing is None:
            self._writing = asyncio.create_task(self._write_all(), name="forebay-outcomes")

    async def _write_all(self) -> None:
        try:
            # What is said in the same turn of the loop is written together.
            await asyncio.sleep(0)
            while self._done or self._retries or self._buried or self._released:
                done, self._done = self._done, {}
                retries, self._retries = self._retries, {}
                buried, self._buried = self._buried, {}
                released, self._released = self._released, []
                # A write has one reason for what is buried, and one status. In an ordered queue nothing may
                # be buried or released past a message that has come back, so both come first.
                for (status, reason), tasks in buried.items():
                    await self._write(bury=tasks, reason=reason, code=status)
                for status in dict.fromkeys((*done, *retries)) or [0]:
                    told, back = done.get(status, ()), retries.get(status, ())
                    await self._write(done=told, retry=back, release=released, code=status)
                    released = []
        finally:
            self._writing = None

    async def _write(
        self,
        *,
        done: Sequence[Task] = (),
        retry: Sequence[Retry] = (),
        bury: Sequence[Task] = (),
        release: Sequence[Task] = (),
        reason: str = "",
        code: int,
    ) -> None:
        ids = [task.id for task in (*done, *bury, *release)] + [one.task.id for one in retry]
        if not ids:
            return
        pause = _AGAIN_SECONDS
        while True:
            try:
                await self._store.settle(
                    done=done, retry=retry, bury=bury, release=release, reason=reason, code=code
                )
            except LeaseLost as error:
                self.lost += len(error.ids)
            except Unavailable as error:
                logger.warning("outcomes of %d messages can't be written yet: %s", len(ids), error)
                await asyncio.sleep(pause)
                pause = min(2 * pause, _AGAIN_SECONDS_MAX)
                continue
            except ForebayError:
                logger.exception("outcomes of %d messages are refused; they come back", len(ids))
            break
        self._settled(ids)


def _storable(reason: str) -> str:
    text = reason.replace("\0", "").encode(errors="replace").decode()
    return text if len(text) <= REASON_MAX else f"{text[:REASON_MAX]}…"
