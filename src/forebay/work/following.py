"""Follower: a worker's end of the board. It says how the worker is, and has it do what a Manager says.

Invariants: whatever happens to the board, the worker goes on as it was. When a Manager has said nothing for
long, what it said last still holds, but for queues that it had the worker leave alone: their turn would never
come.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from os import getpid
from secrets import token_hex
from socket import gethostname
from typing import Final, Protocol

import msgspec

from forebay.model import ForebayError, cancel
from forebay.store.seam import Store
from forebay.work.board import NAME_MAX, Board, Instructions, board_of
from forebay.work.settings import WorkerSettings
from forebay.work.values import WorkerReport

__all__ = ["Follower", "followed"]

logger: Final = logging.getLogger("forebay.work")
_LEAVE_SECONDS: Final = 1.0


class Instructed(Protocol):
    """The worker."""

    name: str
    settings: WorkerSettings

    def report(self) -> WorkerReport:
        """What it has done."""
        ...

    def instruct(self, processors: Mapping[str, int]) -> None:
        """Give each of these queues so many processors."""
        ...


@asynccontextmanager
async def followed(worker: Instructed, store: Store) -> AsyncIterator[None]:
    """Have a worker do what a Manager says meanwhile, if its store has a place for that."""
    board, seconds = board_of(store), worker.settings.report_seconds
    if board is None or not seconds:
        yield
        return
    follower = Follower(worker, board, seconds)
    following = asyncio.create_task(follower.run())
    try:
        yield
    finally:
        await cancel(following)
        await follower.leave()


class Follower:
    """See the module. Workers that have the same name are told apart on the board, by host and process."""

    def __init__(self, worker: Instructed, board: Board, seconds: float) -> None:
        self._worker = worker
        self._board = board
        self._seconds = seconds
        self.name = f"{worker.name}@{gethostname()}:{getpid()}-{token_hex(2)}"[-NAME_MAX:]
        self._told: Instructions | None = None
        self._has_failed = False

    async def run(self) -> None:
        """Report, and follow, until cancelled."""
        while True:
            await self._once()
            await asyncio.sleep(self._seconds)

    async def _once(self) -> None:
        try:
            await self.follow()
        except Exception as error:
            if not self._has_failed:
                trace = None if isinstance(error, ForebayError) else error
                logger.warning("no Manager hears of this worker, which goes on: %s", error, exc_info=trace)
            self._has_failed = True
        else:
            self._has_failed = False

    async def follow(self) -> None:
        """Say how the worker is, and have it do what it is told."""
        report = msgspec.structs.replace(self._worker.report(), worker=self.name)
        told = await self._board.report_work(report)
        if told is not None:
            known = {queue: count for queue, count in told.processors.items() if queue in report.queues}
            if self._told is None or self._told.processors != told.processors:
                self._worker.instruct(known)
        elif self._told is not None:
            logger.warning("no Manager has said anything for a while", extra={"worker": self.name})
            given = self._told.processors
            alone = {queue: 1 for queue, count in given.items() if not count and queue in report.queues}
            self._worker.instruct(alone)
        self._told = told

    async def leave(self) -> None:
        """Have no processors any more, so that nobody counts on them; else the report ends by itself."""
        gone = WorkerReport(worker=self.name, processors=0, queues={})
        with suppress(Exception):  # a worker ends, whatever the board does
            async with asyncio.timeout(_LEAVE_SECONDS):
                await self._board.report_work(gone)
