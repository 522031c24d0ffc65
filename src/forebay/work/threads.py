"""Threads for handlers that block: so many at most, and none that keeps the process alive.

Invariants: what was cancelled before it began is never run; a thread in which a handler was left behind is
replaced by another one for as long as that lasts, so that it is in nobody's way.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from queue import SimpleQueue
from typing import Any, ParamSpec, TypeVar

__all__ = ["Threads"]

P = ParamSpec("P")
R = TypeVar("R")
_Job = Callable[[], None]


class Threads:
    """A pool of daemons: one of the standard library's would be waited for when the process ends."""

    def __init__(self, count: int, name: str) -> None:
        self._count = count
        self._name = name
        self._started = 0
        self._busy = 0
        self._spare = 0
        """Threads that there may be on top of the count: as many are lost to handlers that were left."""
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()

    async def run(self, work: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Run something in a thread, in the caller's context.

        Who is cancelled waits for its end, if it has begun; otherwise it never will.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[R] = loop.create_future()
        call = partial(contextvars.copy_context().run, work, *args, **kwargs)
        claim = threading.Lock()  # of whoever comes first: the thread that begins, or who calls it off
        self._busy += 1
        self._jobs.put(partial(_do, claim, call, loop, future))
        self._start_wanted()
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            if not future.done() and not claim.acquire(blocking=False):
                await asyncio.wait([future])
            raise
        finally:
            self._busy -= 1

    def spare(self, count: int) -> None:
        """Have so many threads more, or, where it is negative, less."""
        self._spare += count
        if count > 0:
            self._start_wanted()
        while self._started > self._count + self._spare:
            self._jobs.put(None)
            self._started -= 1

    def close(self) -> None:
        """End the threads, each after what it does now."""
        for _ in range(self._started):
            self._jobs.put(None)
        self._started = 0

    def _start_wanted(self) -> None:
        while self._busy > self._started < self._count + self._spare:
            self._start()

    def _start(self) -> None:
        self._started += 1
        name = f"{self._name}-{self._started}"
        threading.Thread(target=_work, args=(self._jobs,), name=name, daemon=True).start()


def _work(jobs: SimpleQueue[_Job | None]) -> None:
    while (job := jobs.get()) is not None:
        job()


def _do(
    claim: threading.Lock,
    call: Callable[[], Any],
    loop: asyncio.AbstractEventLoop,
    future: asyncio.Future[Any],
) -> None:
    if not claim.acquire(blocking=False):
        return
    try:
        value, error = call(), None
    except BaseException as raised:  # noqa: BLE001 - whoever waits for it gets it
        value, error = None, raised
    with suppress(RuntimeError):  # the loop is closed: nobody waits any more
        loop.call_soon_threadsafe(_tell, future, value, error)


def _tell(future: asyncio.Future[Any], value: Any, error: BaseException | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(value)
    elif isinstance(error, StopIteration):  # a future takes any but this one
        future.set_exception(RuntimeError(f"{error!r}"))
    else:
        future.set_exception(error)
        future.exception()  # whoever has left needn't be told
