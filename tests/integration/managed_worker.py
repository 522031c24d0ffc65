"""A worker for tests of the Manager: four processors, a queue of quick tasks and one of slow ones."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress

from forebay.store.values import Task
from forebay.work import Context, HandlerStats, Storage, Worker, WorkerSettings
from forebay.work.binding import Binding, BindingSettings

QUICK_SECONDS, SLOW_SECONDS = 0.02, 0.1


def binding(queue: str, seconds: float) -> Binding[Task]:
    """A queue whose tasks take so long, each."""

    async def handle(ctx: Context, storage: Storage, tasks: Sequence[Task]) -> HandlerStats:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds * len(tasks)):
                await ctx.stopping.wait()
        await storage.done_task([task.id for task in tasks])
        return HandlerStats(processed=len(tasks))

    settings = BindingSettings(batch_size=2, max_processors=4)
    return Binding(
        queue=queue,
        decode=lambda task: task,
        handle=handle,
        task_id=lambda task: task.id,
        settings=settings,
    )


worker = Worker(
    None,
    [binding("quick", QUICK_SECONDS), binding("slow", SLOW_SECONDS)],
    processors=4,
    settings=WorkerSettings(report_seconds=0.2),
)
