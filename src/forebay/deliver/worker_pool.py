"""A pool of tasks that all run the same loop, as many as are wanted at the moment."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

__all__ = ["Worker", "WorkerPool"]

logger: Final = logging.getLogger("forebay.deliver")


class Worker:
    """One task of a pool; its loop ends when `is_leaving`."""

    __slots__ = ("is_busy", "is_leaving", "task")

    def __init__(self) -> None:
        self.is_busy = False
        """It has an entry: to cancel it might send the entry twice."""
        self.is_leaving = False
        self.task: asyncio.Task[None] | None = None


class WorkerPool:
    """Runs `work` in tasks; `resize` says in how many."""

    def __init__(self, work: Callable[[Worker], Awaitable[None]], name: str) -> None:
        self._work = work
        self._name = name
        self._workers: set[Worker] = set()
        self._wanted = 0

    @property
    def busy(self) -> int:
        """Workers that have an entry."""
        return sum(worker.is_busy for worker in self._workers)

    @property
    def wanted(self) -> int:
        """Workers that there are to be."""
        return self._wanted

    def resize(self, count: int) -> None:
        """Have as many workers; those that are too many end after what they do, idle ones at once."""
        self._wanted = count
        staying = [worker for worker in self._workers if not worker.is_leaving]
        for worker in sorted(staying, key=lambda one: one.is_busy)[: max(0, len(staying) - count)]:
            self._dismiss(worker)
        for _ in range(count - len(staying)):
            self._hire()

    async def stop(self, deadline: float) -> None:
        """End all workers: idle ones now, busy ones after what they do, or at the deadline."""
        self.resize(0)
        tasks = [worker.task for worker in self._workers if worker.task is not None]
        if tasks:
            left = max(0.0, deadline - asyncio.get_running_loop().time())
            _, late = await asyncio.wait(tasks, timeout=left)
            for task in late:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _hire(self) -> None:
        worker = Worker()
        self._workers.add(worker)
        worker.task = asyncio.create_task(self._run(worker), name=self._name)

    @staticmethod
    def _dismiss(worker: Worker) -> None:
        worker.is_leaving = True
        if not worker.is_busy and worker.task is not None:
            worker.task.cancel()

    async def _run(self, worker: Worker) -> None:
        try:
            await self._work(worker)
        except Exception:
            logger.exception("a worker failed; another one takes its place")
            if not worker.is_leaving:
                asyncio.get_running_loop().call_later(1.0, self._replace)
        finally:
            self._workers.discard(worker)

    def _replace(self) -> None:
        if sum(not worker.is_leaving for worker in self._workers) < self._wanted:
            self._hire()
