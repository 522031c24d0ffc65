"""Workers in tests: run beside the test, and ended with it; waiting for what they do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from time import monotonic
from typing import Any

from forebay.log.values import GroupStats
from forebay.store.seam import Store
from forebay.store.values import Task
from forebay.work import Binding, BindingSettings, Context, HandlerStats, Storage, Worker

DEADLINE_SECONDS = 30.0

Handle = Callable[[Context, Storage, Sequence[Task]], Awaitable[HandlerStats]]


def binding(queue: str, handle: Handle, **options: Any) -> Binding[Task]:
    """A handler that gets the tasks as they are."""
    settings = BindingSettings(**options)
    return Binding(
        queue=queue, decode=lambda task: task, handle=handle, task_id=lambda task: task.id, settings=settings
    )


@asynccontextmanager
async def running(store: Store | str, *bindings: Binding[Any], **options: Any) -> AsyncIterator[Worker]:
    """A worker that runs meanwhile, and is stopped at the end."""
    worker = Worker(store, bindings, **options)
    await worker.init()
    run = asyncio.create_task(worker.run())
    try:
        yield worker
    finally:
        await worker.graceful_stop()
        await run


async def until(condition: Callable[[], bool], what: str, seconds: float = DEADLINE_SECONDS) -> None:
    """Wait until it is so, turn by turn of the loop."""
    end = monotonic() + seconds
    while not condition():
        assert monotonic() < end, f"waited in vain: {what}"
        await asyncio.sleep(0)


async def counts(store: Store, queue: str) -> GroupStats:
    """The books of the workers of a queue."""
    ledger = await store.ledger()
    (found,) = [one for one in ledger.queues if one.queue.name == queue]
    return found.groups[0]


async def until_counts(store: Store, queue: str, condition: Callable[[GroupStats], bool]) -> GroupStats:
    """Wait until the books say so."""
    end = monotonic() + DEADLINE_SECONDS
    while not condition(found := await counts(store, queue)):
        assert monotonic() < end, f"waited in vain, and the books say {found}"
        await asyncio.sleep(0)
    return found
