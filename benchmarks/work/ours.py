"""Our worker, under the rule of its rivals, and a stricter one: a task has run when the log has it as done.

An embedded log in SQLite that syncs every commit. The producer and the worker share one process and loop.
"""

import asyncio
from collections.abc import Sequence
from typing import Any, Final

import uvloop

import forebay
from benchmarks.work.rivals.race import Race
from forebay.store.seam import Store
from forebay.store.values import Task
from forebay.work import Binding, BindingSettings, Context, HandlerStats, Storage, Worker, handler

QUEUE: Final = "noop"
BATCH: Final = 100
PROCESSORS: Final = 16
"""Batches in the hands of handlers at a time: what they say is settled by shared commits."""
PUTS: Final = 16
"""Calls that put tasks at a time."""
SETTINGS: Final = BindingSettings(batch_size=BATCH, max_processors=PROCESSORS)


def batches(race: Race) -> Binding[Task]:
    """A handler that gets a batch, says that it is done, and does nothing else."""

    async def handle(_: Context, storage: Storage, tasks: Sequence[Task]) -> HandlerStats:
        await storage.done_task([task.id for task in tasks])
        for _task in tasks:
            race.ran()
        return HandlerStats(processed=len(tasks))

    return Binding(
        queue=QUEUE, decode=lambda task: task, handle=handle, task_id=lambda task: task.id, settings=SETTINGS
    )


def singly(race: Race) -> Binding[Any]:
    """A function that is called for each task."""

    @handler(QUEUE, settings=SETTINGS)
    async def noop(_: bytes) -> None:
        race.ran()

    return noop


async def put(store: Store, numbers: range) -> None:
    """Put all tasks, in batches, several calls at a time."""
    starts = iter(numbers[::BATCH])

    async def producer() -> None:
        for begin in starts:
            await store.put_task(QUEUE, *(b'{"number":%d}' % n for n in numbers[begin : begin + BATCH]))

    await asyncio.gather(*(producer() for _ in range(PUTS)))


async def main() -> None:
    """Run the race."""
    race, over = Race(), asyncio.Event()
    race.when_over(over.set)
    binding = singly(race) if race.kind == "singly" else batches(race)
    async with forebay.open(f"sqlite:///{race.broker}") as store:
        worker = Worker(store, [binding])
        await worker.init()
        with race.enqueueing() as numbers:
            await put(store, numbers)
        race.ready()
        running = asyncio.create_task(worker.run())
        await over.wait()
        await worker.graceful_stop()
        await running
        (books,) = (await store.ledger()).queues
        done = sum(group.done for group in books.groups)
        assert done == race.tasks, f"{race.tasks} put, {done} done"
    what = "called for each task" if race.kind == "singly" else "called for each batch"
    race.finish(f"handler {what}, batches of {BATCH}, {PROCESSORS} processors")


if __name__ == "__main__":
    uvloop.run(main())
