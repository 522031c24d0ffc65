"""Workers on every kind of store: tasks are handled, come back, are buried, parked, kept and given back."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

import forebay
from forebay.contract import UnknownFormat
from forebay.model import Message, Misconfigured, Rejected
from forebay.store.seam import Store
from forebay.store.values import Task
from forebay.work import Backoff, Context, HandlerStats, RetryInfo, Storage, WorkerSettings
from tests.integration.work.steps import binding, counts, running, until, until_counts

SOON = Backoff(initial=0.0)
HOUR = 3_600_000_000


async def test_every_task_is_handled_once_and_done(store: Store, queue: str) -> None:
    seen: Counter[bytes] = Counter()

    async def handle(ctx: Context, storage: Storage, tasks: Sequence[Task]) -> HandlerStats:
        assert (ctx.queue, ctx.worker, ctx.attempts) == (queue, "worker", 0)
        assert 0 < ctx.remaining() <= 60
        seen.update(task.data for task in tasks)
        await storage.done_task(task.id for task in tasks)
        return HandlerStats(processed=len(tasks))

    async with running(store, binding(queue, handle, batch_size=7, max_processors=3)) as worker:
        await store.put_task(queue, *[b"%d" % i for i in range(100)])
        await until_counts(store, queue, lambda found: found.done == 100)
        await until(lambda: worker.report().queues[queue].processed == 100, "the report")
    assert set(seen.values()) == {1}
    assert len(seen) == 100


async def test_a_task_that_comes_to_an_idle_worker_is_handled_at_once(store: Store, queue: str) -> None:
    came = asyncio.Event()

    async def handle(_: Context, storage: Storage, tasks: Sequence[Task]) -> HandlerStats:
        await storage.done_task(task.id for task in tasks)
        came.set()
        return HandlerStats(processed=1)

    other = f"{queue}b"
    async with running(store, binding(queue, handle), binding(other, handle)):
        for name in (queue, other, queue):
            came.clear()
            await store.put_task(name, b"x")
            async with asyncio.timeout(10):
                await came.wait()


async def test_a_raising_handler_sends_back_what_it_has_not_settled(store: Store, queue: str) -> None:
    calls: list[list[tuple[bytes, int]]] = []

    async def handle(_: Context, storage: Storage, tasks: Sequence[Task]) -> HandlerStats:
        calls.append([(task.data, task.attempts) for task in tasks])
        await storage.done_task([tasks[0].id])
        if len(calls) == 1:
            raise ValueError("no")
        await storage.done_task([task.id for task in tasks[1:]])
        return HandlerStats(processed=len(tasks))

    await store.create_queue(queue)
    await store.put_task(queue, b"a", b"b", b"c")
    async with running(store, binding(queue, handle, backoff=SOON)) as worker:
        await until_counts(store, queue, lambda found: found.done == 3)
        found = worker.report().queues[queue]
    assert calls[0] == [(b"a", 0), (b"b", 0), (b"c", 0)]
    assert sorted(one for call in calls[1:] for one in call) == [(b"b", 1), (b"c", 1)]
    assert (found.errors, found.retried) == (2, 2)


class UnsayableError(Exception):
    """One that fails when it is asked what it says."""

    def __str__(self) -> str:
        """Fail."""
        raise ValueError("no text")


@pytest.mark.parametrize(
    "error",
    [
        SystemExit(3),
        KeyboardInterrupt(),
        asyncio.CancelledError(),
        RuntimeError(),
        GeneratorExit(),
        UnsayableError(),
    ],
)
async def test_nothing_that_a_handler_raises_ends_its_processor(
    memory: Store, queue: str, error: BaseException
) -> None:
    calls = 0

    async def handle(_: Context, storage: Storage, tasks: Sequence[Task]) -> HandlerStats:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise error
        await storage.done_task(task.id for task in tasks)
        return HandlerStats(processed=len(tasks))

    await memory.create_queue(queue)
    await memory.put_task(queue, b"a")
    async with running(memory, binding(queue, handle, backoff=SOON)):
        await until_counts(memory, queue, lambda found: found.done == 1)
    assert calls == 2


@pytest.mark.parametrize("said", [3, HandlerStats(processed=-1), HandlerStats(errors=None)])  # type: ignore[arg-type]
async def test_a_handler_that_returns_nonsense_has_failed(memory: Store, queue: str, said: Any) -> None:
    calls = 0

    async def handle(_: Context, storage: Storage, tasks: Sequence[Task]) -> HandlerStats:
        nonlocal calls
        calls += 1
        if calls == 1:
            return said  # type: ignore[no-any-return]
        await storage.done_task(task.id for task in tasks)
        return HandlerStats(processed=len(tasks))

    await memory.create_queue(queue)
    await memory.put_task(queue, b"a")
    async with running(memory, binding(queue, handle, backoff=SOON)) as worker:
        await until_counts(memory, queue, lambda found: found.done == 1)
    assert worker._served[queue].own.handler_errors == 1


async def test_what_a_handler_forgets_comes_back(memory: Store, queue: str) -> None:
    attempts: list[int] = []

    async def handle(_: Context, storage: Storage, tasks: Sequence[Task]) -> HandlerStats:
        attempts.append(tasks[0].attempts)
        if len(attempts) > 2:
            await storage.done_task(task.id for task in tasks)
        return HandlerStats()

    await memory.create_queue(queue)
    await memory.put_task(queue, b"a")
    async with running(memory, binding(queue, handle, backoff=SOON)):
        await until_counts(memory, queue, lambda found: found.done == 1)
    assert attempts == [0, 1, 2]


async def test_retries_and_burials_are_what_the_handler_says(store: Store, queue: str) -> None:
    async def handle(_: Context, storage: Storage, tasks: Sequence[Task]) -> HandlerStats:
        first, second, third = tasks
        await storage.retry_task([RetryInfo(first.id, first.start_time + HOUR)])
        await storage.bury_task([second.id], "no such address")
        await storage.put_task(queue, b"new", delay=3600, headers={"flow": "f"})
        assert (await storage.get_stat()).queue_stats
        await storage.done_task([third.id])
        return HandlerStats(processed=1, retried=1, errors=1)

    await store.create_queue(queue)
    ids = await store.put_task(queue, b"a", b"b", b"c")
    async with running(store, binding(queue, handle)):
        await until_counts(store, queue, lambda found: found.done == 1)
        (letter,) = await store.dead_letters(queue)
        assert (letter.message_id, letter.reason) == (ids[1], "no such address")
        found = await counts(store, queue)
        assert (found.dead, found.accepted, found.difference) == (1, 4, 0)


async def test_what_a_handler_puts_has_its_partition_and_is_put_once(store: Store, queue: str) -> None:
    other, ids = f"{queue}b", list[int]()

    async def handle(_: Context, storage: Storage, tasks: Sequence[Task]) -> HandlerStats:
        for _i in range(2):
            ids.append(
                await storage.put_task(
                    other, b"new", partition="p", headers={"flow": "f"}, transaction_id="t-1"
                )
            )
        await storage.put_task(other, b"more", partition="q")
        await storage.done_task(task.id for task in tasks)
        return HandlerStats(processed=len(tasks))

    await store.create_queue(queue)
    await store.create_queue(other, {"ordered": True})
    await store.put_task(queue, b"a")
    async with running(store, binding(queue, handle)):
        await until_counts(store, queue, lambda found: found.done == 1)
        found = sorted(await store.get_task(other, 10), key=lambda task: task.partition)
    assert ids == [found[0].id] * 2
    assert [(task.data, task.partition) for task in found] == [(b"new", "p"), (b"more", "q")]
    assert found[0].headers == {"flow": "f"}


async def come_back(store: Store, queue: str, times: int) -> None:
    """As it is with tasks whose worker died so often."""
    for _ in range(times):
        await store.retry_task(await store.get_task(queue, 10, wait_seconds=10))


async def test_a_task_of_which_its_workers_died_is_given_up_before_another_does(
    store: Store, queue: str
) -> None:
    seen: list[tuple[bytes, int]] = []

    async def handle(_: Context, storage: Storage, tasks: Sequence[Task]) -> HandlerStats:
        seen.extend((task.data, task.attempts) for task in tasks)
        await storage.done_task(task.id for task in tasks)
        return HandlerStats(processed=len(tasks))

    await store.create_queue(queue)
    (id,) = await store.put_task(queue, b"deadly")
    await come_back(store, queue, 1)
    await store.put_task(queue, b"tried")
    await come_back(store, queue, 2)
    await store.put_task(queue, b"new")
    async with running(store, binding(queue, handle, retries_max=2)) as worker:
        await until_counts(store, queue, lambda found: found.done == 2 and found.dead == 1)
        (letter,) = await store.dead_letters(queue)
        await until(lambda: worker._served[queue].own.buried == 1, "it is counted")
    assert (letter.message_id, letter.reason) == (id, "came back 3 times, and may 2 times")
    assert sorted(seen) == [(b"new", 0), (b"tried", 2)]


async def test_a_task_that_cannot_be_read_yet_is_parked_however_often_it_came_back(
    memory: Store, queue: str
) -> None:
    async def handle(*_: object) -> HandlerStats:
        raise AssertionError

    def decode(_: Task) -> Task:
        raise UnknownFormat("it isn't known here")

    await memory.create_queue(queue)
    await memory.put_task(queue, b"new")
    await come_back(memory, queue, 2)
    async with running(memory, replace(binding(queue, handle, retries_max=1), decode=decode)) as worker:
        await until(lambda: worker._served[queue].own.parked == 1, "it is parked")
        found = await until_counts(memory, queue, lambda found: found.deferred == 1)
    assert found.dead == 0


async def test_what_a_handler_sends_back_too_often_is_a_dead_letter(store: Store, queue: str) -> None:
    attempts: list[int] = []

    async def handle(_: Context, storage: Storage, tasks: Sequence[Task]) -> HandlerStats:
        attempts.append(tasks[0].attempts)
        await storage.retry_task([RetryInfo(tasks[0].id, 0)])
        return HandlerStats(retried=1)

    await store.create_queue(queue)
    await store.put_task(queue, b"a")
    async with running(store, binding(queue, handle, retries_max=2)) as worker:
        await until_counts(store, queue, lambda found: found.dead == 1)
        (letter,) = await store.dead_letters(queue)
        await until(lambda: worker._served[queue].own.buried == 1, "it is counted")
        assert worker.report().queues[queue].retried == 2
    assert attempts == [0, 1, 2]
    assert letter.reason == "failed 3 times"


@pytest.mark.parametrize("error", [RuntimeError("no"), None])
async def test_what_is_given_up_is_not_counted_as_sent_back(
    memory: Store, queue: str, error: Exception | None
) -> None:
    async def handle(*_: object) -> HandlerStats:
        if error is not None:
            raise error
        return HandlerStats()

    await memory.create_queue(queue)
    await memory.put_task(queue, b"a", b"b")
    async with running(memory, binding(queue, handle, retries_max=0)) as worker:
        await until_counts(memory, queue, lambda found: found.dead == 2)
        own = worker._served[queue].own
        await until(lambda: own.buried == 2, "they are counted")
        assert own.retried == 0


async def test_what_cannot_even_be_said_is_no_reason_to_leave_a_batch(memory: Store, queue: str) -> None:
    def decode(task: Task) -> Task:
        if task.data == b"odd":
            raise UnsayableError
        return task

    async def handle(_: Context, storage: Storage, tasks: Sequence[Task]) -> HandlerStats:
        await storage.done_task(task.id for task in tasks)
        return HandlerStats(processed=len(tasks), errors=1, last_error=UnsayableError())

    await memory.create_queue(queue)
    await memory.put_task(queue, b"a", b"odd", b"b")
    bound = replace(binding(queue, handle), decode=decode)
    async with running(memory, bound) as worker:
        found = worker._served[queue].own
        await until(lambda: (found.processed, found.errors, found.buried) == (2, 1, 1), "all are counted")
        (letter,) = await memory.dead_letters(queue)
    assert letter.reason == "can't be decoded: UnsayableError"


async def test_what_cannot_be_said_of_a_task_changes_nothing(memory: Store, queue: str) -> None:
    said: list[str] = []

    async def handle(_: Context, storage: Storage, tasks: Sequence[Task]) -> HandlerStats:
        id = tasks[0].id
        for ids in ([id + 1], [id, id], [id, id + 1]):
            with pytest.raises(Rejected) as caught:
                await storage.done_task(ids)
            said.append(caught.value.message)
        with pytest.raises(Rejected, match=r"by its id, and this is Task; give ids, such as task\.id"):
            await storage.done_task(tasks)  # type: ignore[arg-type]
        await storage.done_task([id])
        with pytest.raises(Rejected) as caught:
            await storage.done_task([id])
        said.append(caught.value.message)
        return HandlerStats(processed=1)

    await memory.create_queue(queue)
    (id,) = await memory.put_task(queue, b"a")
    async with running(memory, binding(queue, handle)):
        await until_counts(memory, queue, lambda found: found.done == 1)
    stray = f"task {id + 1} is none of this batch, or is settled already"
    settled = f"task {id} is none of this batch, or is settled already"
    assert said == [stray, "a task is settled twice", stray, settled]


async def test_a_task_that_cannot_be_decoded_is_buried_alone(store: Store, queue: str) -> None:
    seen: list[bytes] = []

    def decode(task: Task) -> Task:
        if task.data == b"bad":
            raise Rejected("field 'to' is missing")
        return task

    async def handle(_: Context, storage: Storage, tasks: Sequence[Task]) -> HandlerStats:
        seen.extend(task.data for task in tasks)
        await storage.done_task(task.id for task in tasks)
        return HandlerStats(processed=len(tasks))

    await store.create_queue(queue)
    await store.put_task(queue, b"a", b"bad", b"c")
    bound = binding(queue, handle)
    async with running(store, replace(bound, decode=decode)):
        await until_counts(store, queue, lambda found: found.done == 2 and found.dead == 1)
        (letter,) = await store.dead_letters(queue)
    assert seen == [b"a", b"c"]
    assert letter.reason == "can't be decoded: field 'to' is missing"


async def test_a_task_of_an_unknown_version_is_parked_and_counts_no_attempt(store: Store, queue: str) -> None:
    done = asyncio.Event()

    async def handle(_: Context, storage: Storage, tasks: Sequence[Task]) -> HandlerStats:
        assert [task.data for task in tasks] == [b"known", b"plain"]
        await storage.done_task(task.id for task in tasks)
        done.set()
        return HandlerStats(processed=len(tasks))

    await store.create_queue(queue, {"retries_max": 0})
    messages = [
        Message(b"new", headers={"contract": "9"}),
        Message(b"known", headers={"contract": "1", "codec": "msgpack"}),
        Message(b"odd", headers={"codec": "xml"}),
        Message(b"plain"),
    ]
    ids = await store.put_task(queue, *messages)

    def decode(task: Task) -> Task:
        if task.headers and (task.headers.get("contract"), task.headers.get("codec")) != ("1", "msgpack"):
            raise UnknownFormat("it isn't known here")
        return task

    bound = replace(binding(queue, handle), decode=decode)
    async with running(store, bound) as worker:
        await until_counts(store, queue, lambda found: found.done == 2 and found.deferred == 2)
        assert worker._served[queue].shared.parked == 2
    for id in (ids[0], ids[2]):
        (place,) = (await store.where(id)).groups
        assert place.state == "delayed"
        assert place.attempts == 0


async def test_leases_are_extended_while_a_handler_runs(memory: Store, queue: str) -> None:
    """The handler goes on for longer than its lease was for."""
    calls = 0

    async def handle(ctx: Context, storage: Storage, tasks: Sequence[Task]) -> HandlerStats:
        nonlocal calls
        calls += 1
        first = ctx.deadline
        await until(lambda: ctx.deadline > first + 4.5, "the lease holds for much longer")
        assert ctx.lost == set()
        await storage.done_task(task.id for task in tasks)
        return HandlerStats(processed=len(tasks))

    await memory.create_queue(queue)
    await memory.put_task(queue, b"a")
    async with running(memory, binding(queue, handle, visibility_seconds=4.0)):
        await until_counts(memory, queue, lambda found: found.done == 1)
    assert calls == 1


async def test_a_lost_lease_is_noticed_and_a_late_done_is_no_crash(store: Store, queue: str) -> None:
    calls: list[int] = []

    async def handle(ctx: Context, storage: Storage, tasks: Sequence[Task]) -> HandlerStats:
        (task,) = tasks
        calls.append(task.attempts)
        if len(calls) == 1:
            await store.retry_task([task])  # as if it had expired: it is somebody else's now
            await storage.done_task([task.id])
            assert ctx.lost == {task.id}
        else:
            await storage.done_task([task.id])
        return HandlerStats(processed=1)

    await store.create_queue(queue)
    await store.put_task(queue, b"a")
    async with running(store, binding(queue, handle)) as worker:
        await until_counts(store, queue, lambda found: found.done == 1)
        await until(lambda: len(calls) == 2, "the second call")
        await until(lambda: worker.report().queues[queue].in_progress == 0, "the end of it")
        assert worker._served[queue].shared.lost == 1
        assert worker.report().queues[queue].processed == 1
    assert calls == [0, 1]


async def test_a_lease_that_is_lost_while_the_handler_runs_is_told_to_it(memory: Store, queue: str) -> None:
    noticed = asyncio.Event()

    async def handle(ctx: Context, storage: Storage, tasks: Sequence[Task]) -> HandlerStats:
        (task,) = tasks
        if task.attempts:
            await storage.done_task([task.id])
            return HandlerStats(processed=1)
        await memory.retry_task([task], delay=0.5)
        await until(lambda: task.id in ctx.lost, "the context says so")
        noticed.set()
        return HandlerStats()

    await memory.create_queue(queue)
    await memory.put_task(queue, b"a")
    async with running(memory, binding(queue, handle, visibility_seconds=3.0)):
        await until_counts(memory, queue, lambda found: found.done == 1)
    assert noticed.is_set()


async def test_queues_without_a_binding_are_left_alone(memory: Store, queue: str) -> None:
    async def handle(_: Context, storage: Storage, tasks: Sequence[Task]) -> HandlerStats:
        await storage.done_task(task.id for task in tasks)
        return HandlerStats(processed=len(tasks))

    await memory.create_queue("other")
    await memory.put_task("other", b"x")
    async with running(memory, binding(queue, handle)):
        await memory.put_task(queue, b"a")
        await until_counts(memory, queue, lambda found: found.done == 1)
        found = await counts(memory, "other")
        assert (found.ready, found.handed) == (1, 0)


async def test_a_queue_is_made_with_the_number_of_its_contract(memory: Store, queue: str) -> None:
    async def handle(*_: object) -> HandlerStats:
        raise AssertionError

    bound = binding(queue, handle, visibility_seconds=7.0, retries_max=4)
    numbered = replace(bound, number=42)
    async with running(memory, numbered):
        found = await memory.queue(queue)
        assert (found.number, found.settings.visibility_seconds, found.settings.retries_max) == (42, 7.0, 4)
    with pytest.raises(Misconfigured, match="is number 42 in the store, and 43 here"):
        async with running(memory, replace(bound, number=43)):
            pass
    with pytest.raises(Misconfigured, match="is to be ordered"):
        async with running(memory, binding(queue, handle, ordered=True)):
            pass


async def test_a_queue_that_gives_up_sooner_than_its_handler_is_told(
    memory: Store, queue: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def handle(*_: object) -> HandlerStats:
        raise AssertionError

    await memory.create_queue(queue, {"retries_max": 3})
    for most, said in ((3, 0), (None, 0), (2, 0), (10, 1)):
        caplog.clear()
        async with running(memory, binding(queue, handle, retries_max=most)):
            assert caplog.text.count(f"tasks of {queue} come back 3 times") == said


async def test_ordered_queues_are_handled_in_order(store: Store, queue: str) -> None:
    seen: dict[str, list[int]] = {}
    failed: set[int] = set()

    async def handle(_: Context, storage: Storage, tasks: Sequence[Task]) -> HandlerStats:
        for task in tasks:
            number = int(task.data)
            if number % 7 == 3 and number not in failed:
                failed.add(number)
                raise ValueError("once")
            seen.setdefault(task.partition, []).append(number)
            await storage.done_task([task.id])
        return HandlerStats(processed=len(tasks))

    options: dict[str, Any] = {"ordered": True, "max_processors": 4, "batch_size": 3, "backoff": SOON}
    async with running(store, binding(queue, handle, **options)):
        for i in range(45):
            await store.put_task(queue, b"%d" % i, partition=f"p{i % 3}")
        await until_counts(store, queue, lambda found: found.done == 45)
    assert seen == {f"p{p}": list(range(p, 45, 3)) for p in range(3)}


async def test_what_comes_after_a_task_that_is_sent_back_is_lost_to_its_handler(
    store: Store, queue: str
) -> None:
    lost: list[set[bytes]] = []
    seen: list[tuple[bytes, int]] = []

    async def handle(ctx: Context, storage: Storage, tasks: Sequence[Task]) -> HandlerStats:
        if not lost:
            await storage.done_task([tasks[0].id])
            await storage.retry_task([RetryInfo(tasks[1].id, 0)])
            lost.append({task.data for task in tasks if task.id in ctx.lost})
            await storage.done_task([tasks[2].id])  # which is in vain
            await storage.bury_task([tasks[3].id], "bad")
            return HandlerStats()
        seen.extend((task.data, task.attempts) for task in tasks)
        await storage.done_task(task.id for task in tasks)
        return HandlerStats(processed=len(tasks))

    await store.create_queue(queue, {"ordered": True})
    await store.put_task(queue, b"1", b"2", b"3", b"4", b"5")
    async with running(store, binding(queue, handle)) as worker:
        await until_counts(store, queue, lambda found: found.done == 5)
        numbers = worker._served[queue].shared
    assert lost == [{b"3", b"4", b"5"}]
    assert seen == [(b"2", 1), (b"3", 0), (b"4", 0), (b"5", 0)]
    assert (numbers.lost, numbers.buried) == (2, 0)


async def test_an_address_is_opened_and_closed(queue: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    done = asyncio.Event()

    async def handle(_: Context, storage: Storage, tasks: Sequence[Task]) -> HandlerStats:
        await storage.done_task(task.id for task in tasks)
        if tasks[0].data == b"more":
            done.set()
        else:
            await storage.put_task(queue, b"more")
        return HandlerStats(processed=len(tasks))

    url = f"sqlite:///{tmp_path_factory.mktemp('tasks')}/tasks.db"
    async with forebay.open(url) as store:
        await store.create_queue(queue)
        await store.put_task(queue, b"first")
    async with running(url, binding(queue, handle), settings=WorkerSettings(shutdown_seconds=5)):
        async with asyncio.timeout(20):
            await done.wait()
    async with forebay.open(url) as store:
        assert (await counts(store, queue)).done == 2
