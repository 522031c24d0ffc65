"""Stopping: handlers finish, what they left goes back uncounted, a second call hurries."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence

import pytest

from forebay.store.seam import Store
from forebay.store.values import Task
from forebay.work import Context, HandlerStats, Storage, Worker, WorkerSettings, handler
from tests.integration.work.steps import binding, counts, until


async def test_a_worker_that_stops_lets_its_handlers_finish_and_takes_no_more(
    store: Store, queue: str
) -> None:
    began, go_on = asyncio.Event(), asyncio.Event()
    handled: list[bytes] = []

    async def handle(ctx: Context, storage: Storage, tasks: Sequence[Task]) -> HandlerStats:
        began.set()
        await go_on.wait()
        assert ctx.stopping.is_set()
        handled.extend(task.data for task in tasks)
        await storage.done_task(task.id for task in tasks)
        return HandlerStats(processed=len(tasks))

    await store.create_queue(queue)
    await store.put_task(queue, *[b"%d" % i for i in range(4)])
    worker = Worker(store, [binding(queue, handle, batch_size=2)])
    run = asyncio.create_task(worker.run())
    await began.wait()
    stopped = asyncio.create_task(worker.graceful_stop())
    await until(worker.told_to_stop.is_set, "told")
    assert not stopped.done()
    go_on.set()
    await asyncio.gather(stopped, run)
    assert handled == [b"0", b"1"]
    found = await counts(store, queue)
    assert (found.done, found.handed, found.difference) == (2, 0, 0)


async def test_what_is_left_goes_back_and_counts_no_attempt(store: Store, queue: str) -> None:
    """A function of the short way ends with the task at hand."""
    first = asyncio.Event()
    go_on = asyncio.Event()

    @handler(queue)
    async def bound(task: Task) -> None:
        first.set()
        await go_on.wait()
        assert task.data == b"0"

    await store.create_queue(queue)
    await store.put_task(queue, *[b"%d" % i for i in range(5)])
    worker = Worker(store, [bound])
    run = asyncio.create_task(worker.run())
    await first.wait()
    await worker.shutdown()
    go_on.set()
    await run
    back = await store.get_task(queue, 10)
    assert [(task.data, task.attempts) for task in back] == [(b"%d" % i, 0) for i in range(1, 5)]
    assert (await counts(store, queue)).done == 1


async def test_handlers_that_take_too_long_are_cancelled_and_their_tasks_go_back(
    store: Store, queue: str
) -> None:
    began, cancelled = asyncio.Event(), asyncio.Event()

    async def handle(_: Context, storage: Storage, tasks: Sequence[Task]) -> HandlerStats:
        await storage.done_task([tasks[0].id])
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()
        raise AssertionError

    await store.create_queue(queue)
    await store.put_task(queue, b"a", b"b", b"c")
    worker = Worker(store, [binding(queue, handle)], settings=WorkerSettings(shutdown_seconds=0.1))
    run = asyncio.create_task(worker.run())
    await began.wait()
    await worker.graceful_stop()
    await run
    assert cancelled.is_set()
    back = await store.get_task(queue, 10)
    assert [(task.data, task.attempts) for task in back] == [(b"b", 0), (b"c", 0)]


async def test_a_second_call_hurries(memory: Store, queue: str) -> None:
    began = asyncio.Event()

    async def handle(*_: object) -> HandlerStats:
        began.set()
        await asyncio.Event().wait()
        raise AssertionError

    await memory.create_queue(queue)
    await memory.put_task(queue, b"a")
    worker = Worker(memory, [binding(queue, handle)], settings=WorkerSettings(shutdown_seconds=1_000))
    run = asyncio.create_task(worker.run())
    await began.wait()
    worker.stop()
    await until(lambda: worker.trouble == "the worker stops", "stopping")
    worker.stop()
    async with asyncio.timeout(10):
        await run
    (task,) = await memory.get_task(queue)
    assert task.attempts == 0


async def test_a_worker_whose_run_is_cancelled_gives_back_what_it_has(memory: Store, queue: str) -> None:
    began = asyncio.Event()

    @handler(queue)
    async def bound(task: Task) -> None:
        if task.data == b"b":
            began.set()
            await asyncio.Event().wait()

    await memory.create_queue(queue)
    await memory.put_task(queue, b"a", b"b", b"c")
    run = asyncio.create_task(Worker(memory, [bound]).run())
    await began.wait()
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    back = await memory.get_task(queue, 10)
    assert [(task.data, task.attempts) for task in back] == [(b"b", 0), (b"c", 0)]
    assert (await counts(memory, queue)).done == 1


async def test_a_task_whose_handler_does_not_end_is_not_given_back(memory: Store, queue: str) -> None:
    began, end = threading.Event(), threading.Event()

    @handler(queue)
    def bound(_: bytes) -> None:
        began.set()
        assert end.wait(30)

    await memory.create_queue(queue)
    await memory.put_task(queue, b"a", b"b")
    settings = WorkerSettings(shutdown_seconds=0.1, hurry_seconds=0.1)
    worker = Worker(memory, [bound], settings=settings)
    run = asyncio.create_task(worker.run())
    await until(began.is_set, "the handler")
    await worker.graceful_stop()
    await run
    assert worker.is_stuck
    assert await memory.get_task(queue, 10) == []
    end.set()


async def test_a_worker_may_be_stopped_before_it_runs(memory: Store, queue: str) -> None:
    async def handle(*_: object) -> HandlerStats:
        raise AssertionError

    worker = Worker(memory, [binding(queue, handle)])
    await worker.graceful_stop()
    async with asyncio.timeout(10):
        await worker.run()
    await worker.graceful_stop()
