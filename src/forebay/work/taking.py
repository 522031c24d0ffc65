"""Taker: the next batch for a free job processor, by what is fair; waiting for it costs nothing.

Invariants: a queue has no more processors at work, or waiting for its tasks, than its limit; who waits is
woken by the store when something comes, by others when there is room, and by `nudge`; tasks that were taken
reach a processor, whatever else happens.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf
from time import monotonic
from typing import Final

from forebay.model import ForebayError, Unavailable, cancel
from forebay.store.seam import Store
from forebay.store.values import Task
from forebay.work.fairness import LAG_SECONDS, Fairness, Turn
from forebay.work.served import Served
from forebay.work.settings import WorkerSettings

__all__ = ["Taken", "Taker"]

logger: Final = logging.getLogger("forebay.work")
REST_SECONDS: Final = 5.0
"""How long a queue is left alone that the store refuses."""


@dataclass(frozen=True, slots=True)
class Taken:
    """Tasks of one queue, for one turn."""

    served: Served
    turn: Turn
    tasks: list[Task]
    seconds: float
    """For how long they were taken at least."""
    began: float
    """When the store was asked for them, on the monotonic clock; where that was waiting, when they came."""


class Taker:
    """See the module. All processors of a worker share it."""

    def __init__(
        self,
        store: Store,
        served: Mapping[str, Served],
        fairness: Fairness,
        settings: WorkerSettings,
        name: str,
    ) -> None:
        self._store = store
        self._served = served
        self._by_number = {one.number: one for one in served.values()}
        self.fairness = fairness
        self._settings = settings
        self._name = name
        self._waiting: set[asyncio.Task[list[Task]]] = set()
        self._idle: set[asyncio.Future[None]] = set()

    async def take(self) -> Taken | None:
        """The next batch; None when there was none this time. Raises what the store raises."""
        now = monotonic()
        if quiet := self.fairness.probe(now):
            taken = await self._probe(quiet, now)
            if taken is not None:
                return taken
        turn = self.fairness.pick(monotonic())
        if turn is not None:
            return await self._look(turn)
        return await self._wait()

    def end(self, turn: Turn, *, is_overdue: bool = False) -> None:
        """A batch has ended: there is room. One that hung isn't held against its queue for so long."""
        self.fairness.end(turn, monotonic(), LAG_SECONDS if is_overdue else inf)
        self._wake_idle()

    def nudge(self) -> None:
        """Have everybody who waits look again: limits have changed, or the worker stops."""
        for waiting in list(self._waiting):
            waiting.cancel()
        self._wake_idle()

    async def pause(self, seconds: float | None) -> None:
        """Wait for so long, unless something changes; without a time, until it does."""
        changed = asyncio.get_running_loop().create_future()
        self._idle.add(changed)
        try:
            async with asyncio.timeout(seconds):
                await changed
        except TimeoutError:
            pass
        finally:
            self._idle.discard(changed)

    def _wake_idle(self) -> None:
        for changed in self._idle:
            if not changed.done():
                changed.set_result(None)

    # The three ways to a batch

    async def _look(self, turn: Turn) -> Taken | None:
        """Look in a queue that may have work."""
        served, began = self._served[turn.queue], monotonic()
        try:
            tasks = await self._get([served.binding.queue], served.settings.batch_size, 0.0)
        except Unavailable:
            self.fairness.drop(turn)
            raise
        except ForebayError as error:
            self.fairness.drop(turn)
            self.fairness.rest(turn.queue, monotonic() + REST_SECONDS)
            logger.error("queue %s can't be worked: %s", turn.queue, error)  # noqa: TRY400 - it says enough
            return None
        except BaseException:
            self.fairness.drop(turn)
            raise
        if not tasks:
            self.fairness.empty(turn)
            return None
        return Taken(served, turn, tasks, served.settings.visibility_seconds, began)

    async def _probe(self, quiet: Sequence[str], began: float) -> Taken | None:
        """Look whether there is something by now where there was nothing."""
        self.fairness.hold(quiet)
        try:
            tasks = await self._get(quiet, 1, 0.0)
        except Unavailable:
            raise
        except ForebayError:
            self._suspect(quiet)
            return None
        finally:
            self.fairness.let_go(quiet)
            self._wake_idle()
        self.fairness.probed(began, monotonic())
        return await self._begin(tasks, quiet, began)

    async def _wait(self) -> Taken | None:
        """Wait for whatever comes first."""
        now = monotonic()
        rested = self.fairness.rested(now)
        room = self.fairness.room(now)
        if not room:
            await self.pause(rested)
            return None
        seconds = self._settings.wait_seconds if rested is None else min(rested, self._settings.wait_seconds)
        count = self._served[room[0]].settings.batch_size if len(room) == 1 else 1
        try:
            tasks = await self._wait_for(room, count, seconds)
        except Unavailable:
            raise
        except ForebayError:
            self._suspect(room)
            return None
        return await self._begin(tasks, room, monotonic())

    async def _wait_for(self, room: Sequence[str], count: int, seconds: float) -> list[Task]:
        waiting = asyncio.get_running_loop().create_task(self._get(room, count, seconds))
        self._waiting.add(waiting)
        self.fairness.hold(room)
        try:
            await asyncio.wait([waiting])
        finally:
            self._waiting.discard(waiting)
            self.fairness.let_go(room)
            self._wake_idle()
            if not waiting.done():  # the processor itself was cancelled
                await cancel(waiting)
        return [] if waiting.cancelled() else waiting.result()

    async def _begin(self, tasks: list[Task], asked: Sequence[str], began: float) -> Taken | None:
        """A turn for tasks that came from one of several queues, and for what else that has for a batch."""
        if not tasks:
            return None
        served = self._by_number[tasks[0].queue_num]
        turn = self.fairness.begin(served.binding.queue, monotonic())
        seconds = self._seconds(asked)
        missing = served.settings.batch_size - len(tasks)
        if len(asked) > 1 and missing > 0:
            try:
                tasks += await self._get([served.binding.queue], missing, 0.0)
            except ForebayError as error:
                logger.warning("a batch of %s is small: %s", turn.queue, error)
        return Taken(served, turn, tasks, seconds, began)

    def _suspect(self, queues: Sequence[str]) -> None:
        """Asked together, they were refused: each is looked at alone, to find out which it is."""
        for queue in queues:
            self.fairness.found(queue, monotonic())

    def _seconds(self, queues: Sequence[str]) -> float:
        """How long tasks of these queues are taken for: a call has one time for all."""
        return min(self._served[queue].settings.visibility_seconds for queue in queues)

    async def _get(self, queues: Sequence[str], count: int, wait_seconds: float) -> list[Task]:
        return await self._store.get_task(
            queues[0] if len(queues) == 1 else queues,
            count,
            group=self._settings.group,
            worker=self._name,
            wait_seconds=wait_seconds,
            visibility_seconds=self._seconds(queues),
        )
