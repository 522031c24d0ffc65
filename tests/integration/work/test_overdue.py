"""Handlers that hang: after `handle_seconds_max` they keep neither tasks, nor a processor, nor a thread.

The clock of the loop jumps, so that a day is over at once.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from forebay.store.seam import Store
from forebay.store.values import Task
from forebay.work import (
    Backoff,
    BindingSettings,
    Context,
    HandlerStats,
    Storage,
    Worker,
    WorkerSettings,
    handler,
)
from forebay.work.watching import SettingsFile
from tests.integration.work.steps import binding, running, until, until_counts

DAY = 86_400.0
SOON = Backoff(initial=0.0)
Later = Callable[[float], None]


@pytest.fixture
async def later(monkeypatch: pytest.MonkeyPatch) -> Later:
    """Give what lets the clock of the loop jump ahead by so many seconds."""
    loop = asyncio.get_running_loop()
    ahead, time = 0.0, loop.time

    def jump(seconds: float) -> None:
        nonlocal ahead
        ahead += seconds

    monkeypatch.setattr(loop, "time", lambda: time() + ahead)
    return jump


class Hanging:
    """A function for threads that hangs for payloads that begin with `hang`, the first times."""

    def __init__(self, times: int = 1) -> None:
        self.times = times
        self.hung: list[bytes] = []
        self.done: list[bytes] = []
        self.end = threading.Semaphore(0)

    def __call__(self, task: Task) -> None:
        """Handle a task."""
        if task.data.startswith(b"hang") and len(self.hung) < self.times:
            self.hung.append(task.data)
            assert self.end.acquire(timeout=60)
        self.done.append(task.data)


def in_thread(queue: str, work: Callable[[Task], None], **options: Any) -> Any:
    @handler(queue, **options)
    def bound(task: Task) -> None:
        work(task)

    return bound


async def put(store: Store, queue: str, *tasks: bytes) -> None:
    await store.create_queue(queue)
    for task in tasks:
        await store.put_task(queue, task)


async def give_up(later: Later, worker: Worker, queue: str, stragglers: int) -> None:
    """Let the time of a handler be over, and that for its end, too."""
    overdue = worker._served[queue].own.overdue
    later(DAY + 1)
    await until(lambda: worker._served[queue].own.overdue > overdue, "it is overdue")
    later(3)
    await until(lambda: worker._served[queue].own.stragglers == stragglers, "it is left behind")


async def test_a_handler_that_hangs_has_failed_after_a_day(
    store: Store, queue: str, later: Later, caplog: pytest.LogCaptureFixture
) -> None:
    began, cancelled = asyncio.Event(), asyncio.Event()
    seen: list[tuple[bytes, int]] = []

    async def handle(ctx: Context, storage: Storage, tasks: Sequence[Task]) -> HandlerStats:
        seen.extend((task.data, task.attempts) for task in tasks)
        if not began.is_set():
            await storage.done_task([tasks[0].id])
            began.set()
            try:
                await asyncio.Event().wait()
            finally:
                assert ctx.is_overdue
                cancelled.set()
        await storage.done_task(task.id for task in tasks)
        return HandlerStats(processed=len(tasks))

    await store.create_queue(queue)
    await store.put_task(queue, b"a", b"b", b"c")
    async with running(store, binding(queue, handle, backoff=SOON)) as worker:
        await began.wait()
        later(DAY - 60)
        for _ in range(100):
            await asyncio.sleep(0)
        assert not cancelled.is_set()
        later(61)
        await cancelled.wait()
        await until_counts(store, queue, lambda found: found.done == 3)
        own = worker._served[queue].own
        await until(lambda: own.processed == 3, "what is counted")
        assert (own.overdue, own.handler_errors, own.errors, own.retried, own.stragglers) == (1, 1, 2, 2, 0)
        text = generate_latest(worker.registry).decode()
        assert f'forebay_worker_handlers_overdue_total{{queue="{queue}"}} 1.0' in text
    assert sorted(seen) == [(b"a", 0), (b"b", 0), (b"b", 1), (b"c", 0), (b"c", 1)]
    (said,) = [record.message for record in caplog.records if "handle_seconds_max" in record.message]
    assert said.startswith(f"the handler of {queue} took longer than 86400 s, its handle_seconds_max")
    assert "2 tasks that it has not settled have failed; find out what it waits for, or raise" in said
    assert not worker.is_stuck


async def test_what_is_overdue_for_the_last_time_is_a_dead_letter(
    memory: Store, queue: str, later: Later
) -> None:
    began = asyncio.Event()

    @handler(queue, retries_max=0)
    async def bound(_: bytes) -> None:
        began.set()
        await asyncio.Event().wait()

    await put(memory, queue, b"a")
    async with running(memory, bound):
        await began.wait()
        later(DAY + 1)
        await until_counts(memory, queue, lambda found: found.dead == 1)
        (letter,) = await memory.dead_letters(queue)
    assert letter.reason == "failed once: HandlerOverdueError: it took longer than 86400 s"


async def test_leases_are_extended_until_then_and_no_more(
    memory: Store, queue: str, later: Later, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also of a handler that can't be cancelled, whose tasks go to another when their leases end."""
    extended, extend = 0, memory.extend
    work = Hanging()

    async def counted(*arguments: Any) -> None:
        nonlocal extended
        await extend(*arguments)
        extended += 1

    monkeypatch.setattr(memory, "extend", counted)
    await put(memory, queue, b"hang")
    settings = WorkerSettings(hurry_seconds=10_000)
    bound = in_thread(queue, work, visibility_seconds=600.0)
    async with running(memory, bound, settings=settings) as worker:
        await until(lambda: bool(work.hung), "the handler")
        for times in range(1, 4):
            later(201)
            await until(lambda times=times: extended == times, "an extension")  # type: ignore[misc]
        later(DAY)
        await until(lambda: worker._served[queue].own.overdue == 1, "it is overdue")
        before = extended
        for _ in range(100):  # also while it may still end
            later(201)
            for _ in range(10):
                await asyncio.sleep(0)
        await until(lambda: worker._served[queue].own.stragglers == 1, "it is left behind")
        assert extended == before
        assert await memory.get_task(queue) == []  # it wasn't given back
        work.end.release()
        await until(lambda: worker._served[queue].own.stragglers == 0, "its end")


async def test_a_handler_that_has_settled_all_and_hangs_gives_its_processor_back(
    memory: Store, queue: str, later: Later
) -> None:
    began = asyncio.Event()

    async def handle(_: Context, storage: Storage, tasks: Sequence[Task]) -> HandlerStats:
        await storage.done_task(task.id for task in tasks)
        if not began.is_set():
            began.set()
            await asyncio.Event().wait()
        return HandlerStats(processed=len(tasks))

    await put(memory, queue, b"a", b"b")
    async with running(memory, binding(queue, handle, batch_size=1, visibility_seconds=3.0)):
        await began.wait()
        later(2)  # there is nothing to extend
        await until_counts(memory, queue, lambda found: found.done == 1)
        later(DAY + 1)
        await until_counts(memory, queue, lambda found: found.done == 2)


async def test_a_thread_that_hangs_keeps_neither_its_task_nor_its_processor(
    memory: Store, queue: str, later: Later, caplog: pytest.LogCaptureFixture
) -> None:
    work, seen = Hanging(), list[int]()

    def noted(task: Task) -> None:
        seen.append(task.attempts)
        work(task)

    await put(memory, queue, b"hang")
    async with running(memory, in_thread(queue, noted, visibility_seconds=0.3)) as worker:
        await until(lambda: bool(work.hung), "the handler")
        await give_up(later, worker, queue, 1)
        found = await until_counts(memory, queue, lambda found: found.done == 1)
        assert seen == [0, 1]
        work.end.release()
        await until(lambda: worker._served[queue].own.stragglers == 0, "its end")
        found = await until_counts(memory, queue, lambda found: found.handed == 0)
        assert (found.done, found.difference) == (1, 0)
        text = "has ended after"
        await until(lambda: text in caplog.text, "what is said of it")
    assert "the handler of these tasks has ended" in caplog.text
    assert not worker.is_stuck


async def test_what_a_thread_was_done_with_before_it_hung_is_done(
    memory: Store, queue: str, later: Later
) -> None:
    work = Hanging()
    await memory.create_queue(queue)
    await memory.put_task(queue, b"a", b"hang")
    async with running(memory, in_thread(queue, work)) as worker:
        await until(lambda: bool(work.hung), "the handler")
        await give_up(later, worker, queue, 1)
        await until_counts(memory, queue, lambda found: found.done == 1)
        work.end.release()
        await until(lambda: worker._served[queue].own.stragglers == 0, "its end")
    assert work.done == [b"a", b"hang"]


async def test_a_handler_that_swallows_its_cancellation_is_left_behind(
    memory: Store, queue: str, later: Later
) -> None:
    end = asyncio.Event()
    seen: list[bytes] = []

    async def handle(_: Context, storage: Storage, tasks: Sequence[Task]) -> HandlerStats:
        (task,) = tasks
        seen.append(task.data)
        while task.data == b"hang" and not end.is_set():
            try:
                await end.wait()
            except asyncio.CancelledError:
                continue
        await storage.done_task([task.id])
        return HandlerStats(processed=1)

    await put(memory, queue, b"hang", b"b")
    async with running(memory, binding(queue, handle, batch_size=1)) as worker:
        await until(lambda: seen == [b"hang"], "the handler")
        await give_up(later, worker, queue, 1)
        await until_counts(memory, queue, lambda found: found.done == 1)
        end.set()
        await until(lambda: worker._served[queue].own.stragglers == 0, "its end")
    assert seen == [b"hang", b"b"]


async def test_no_other_task_of_a_batch_is_begun_after_one_that_swallowed_its_cancellation(
    memory: Store, queue: str, later: Later
) -> None:
    seen: list[tuple[bytes, int]] = []
    began = asyncio.Event()

    @handler(queue, backoff=SOON)
    async def bound(task: Task) -> None:
        seen.append((task.data, task.attempts))
        if not began.is_set():
            began.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                return

    await memory.create_queue(queue)
    await memory.put_task(queue, b"a", b"b")
    async with running(memory, bound):
        await began.wait()
        later(DAY + 1)
        await until_counts(memory, queue, lambda found: found.done == 2)
    assert seen == [(b"a", 0), (b"b", 1)]


async def test_stragglers_are_bounded_by_the_processors_and_hold_up_their_queue_alone(
    memory: Store, queue: str, later: Later
) -> None:
    work, other = Hanging(times=2), f"{queue}b"
    seen: list[bytes] = []

    async def handle(_: Context, storage: Storage, tasks: Sequence[Task]) -> HandlerStats:
        seen.extend(task.data for task in tasks)
        await storage.done_task(task.id for task in tasks)
        return HandlerStats(processed=len(tasks))

    await put(memory, queue, b"hang1", b"hang2", b"c")
    bound = in_thread(queue, work, batch_size=1, visibility_seconds=600.0)
    async with running(memory, bound, binding(other, handle), processors=1) as worker:
        await until(lambda: work.hung == [b"hang1"], "the first")
        await give_up(later, worker, queue, 1)
        await until(lambda: work.hung == [b"hang1", b"hang2"], "the second: there may be one more")
        await until(lambda: worker.trouble is None, "no trouble")
        await give_up(later, worker, queue, 2)
        await memory.put_task(other, b"x")
        await until_counts(memory, other, lambda found: found.done == 1)
        assert seen == [b"x"]
        assert work.done == []  # nobody works on the queue
        assert worker.trouble == f"no tasks of {queue} are taken: 2 of its handlers don't end"
        text = generate_latest(worker.registry).decode()
        assert f'forebay_worker_stragglers{{queue="{queue}"}} 2.0' in text
        work.end.release()
        await until(lambda: b"c" in work.done, "it is worked on again")
        await until(lambda: worker.trouble is None, "the trouble is over")
        work.end.release()
        await until(lambda: worker._served[queue].own.stragglers == 0, "the end of both")


async def test_a_thread_that_hangs_is_replaced_for_as_long_as_it_does(
    memory: Store, queue: str, later: Later
) -> None:
    work = Hanging()
    await put(memory, queue, b"hang", b"b")
    bound = in_thread(queue, work, batch_size=1, visibility_seconds=600.0)
    async with running(memory, bound, settings=WorkerSettings(threads=1), name=queue) as worker:
        await until(lambda: bool(work.hung), "the handler")
        await give_up(later, worker, queue, 1)
        await until_counts(memory, queue, lambda found: found.done == 1)
        work.end.release()
        await until(lambda: worker._served[queue].own.stragglers == 0, "its end")
        mine = f"{queue}-handler-"
        await until(
            lambda: sum(thread.name.startswith(mine) for thread in threading.enumerate()) == 1, "one is left"
        )
        await memory.put_task(queue, b"c")
        await until(lambda: b"c" in work.done, "it still works")


async def test_what_waited_for_a_thread_when_its_time_was_over_is_never_begun(
    memory: Store, queue: str, later: Later
) -> None:
    work, other, calls = Hanging(), f"{queue}b", list[list[int]]()

    @handler(other, batch=True, handle_seconds_max=3600.0, retries_max=0)
    def waiting(tasks: Sequence[Task]) -> None:
        calls.append([task.attempts for task in tasks])

    await put(memory, queue, b"hang")
    settings = WorkerSettings(threads=1)
    async with running(memory, in_thread(queue, work), waiting, settings=settings) as worker:
        await until(lambda: bool(work.hung), "the handler")
        await memory.put_task(other, b"x")
        await until(lambda: worker.report().queues[other].in_progress == 1, "it waits")
        later(3601)
        await until_counts(memory, other, lambda found: found.dead == 1)
        work.end.release()
        await until_counts(memory, queue, lambda found: found.done == 1)
    assert calls == []


async def test_a_worker_that_stops_does_not_wait_for_stragglers(
    memory: Store, queue: str, later: Later
) -> None:
    work = Hanging()
    await put(memory, queue, b"hang")
    async with running(memory, in_thread(queue, work)) as worker:
        await until(lambda: bool(work.hung), "the handler")
        await give_up(later, worker, queue, 1)
        await worker.graceful_stop()
    assert worker.is_stuck
    work.end.release()


async def test_a_changed_limit_holds_from_the_next_batch_on(
    memory: Store, queue: str, later: Later, tmp_path: Path
) -> None:
    calls = 0

    async def handle(*_: object) -> HandlerStats:
        nonlocal calls
        calls += 1
        await asyncio.Event().wait()
        raise AssertionError

    path = tmp_path / "settings.yaml"
    path.write_text(f"shop/worker/queue/{queue}/handle_seconds_max: 7200\n")
    await put(memory, queue, b"a")
    async with running(memory, binding(queue, handle, backoff=SOON, retries_max=1)) as worker:
        await until(lambda: calls == 1, "the first batch")
        SettingsFile(path, "shop", worker).load()
        later(7201)
        for _ in range(100):
            await asyncio.sleep(0)
        assert calls == 1
        later(DAY - 7200)
        await until(lambda: calls == 2, "the second")
        later(7201)
        await until_counts(memory, queue, lambda found: found.dead == 1)


def test_a_handler_may_take_a_day_unless_it_is_told_otherwise() -> None:
    @handler("emails", handle_seconds_max=60.0)
    async def bound(_: bytes) -> None:
        return None

    assert BindingSettings().handle_seconds_max == DAY
    assert bound.settings == BindingSettings(handle_seconds_max=60.0)


async def test_numbers_of_what_hung_are_there_from_the_start(memory: Store, queue: str) -> None:
    registry = CollectorRegistry()
    async with running(memory, in_thread(queue, Hanging()), registry=registry):
        text, label = generate_latest(registry).decode(), f'{{queue="{queue}"}}'
    assert f"forebay_worker_handlers_overdue_total{label} 0.0" in text
    assert f"forebay_worker_stragglers{label} 0.0" in text
