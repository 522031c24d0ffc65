"""The short way: functions that take a task or a batch, in the loop or in threads."""

from __future__ import annotations

import asyncio
import importlib
import math
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from forebay.app.cli import main
from forebay.model import Misconfigured
from forebay.store.seam import Store
from forebay.store.values import Task
from forebay.work import (
    Backoff,
    BindingSettings,
    Bury,
    Context,
    Done,
    Outcome,
    RetryAfter,
    Worker,
    WorkerSettings,
    handler,
)
from tests.integration.work.steps import counts, running, until, until_counts

SOON = Backoff(initial=0.0)


class Order(msgspec.Struct):
    """What tasks of these tests hold."""

    number: int


def say(order: Order, attempts: dict[int, int]) -> Outcome | None:
    """Everything that a handler can say."""
    attempts[order.number] = attempts.get(order.number, -1) + 1
    if order.number == 1 and not attempts[1]:
        raise ValueError("not yet")
    if order.number == 2 and not attempts[2]:
        return RetryAfter(0)
    if order.number == 3:
        return Bury("three is too many")
    return Done() if order.number == 4 else None


async def put(store: Store, queue: str, count: int) -> None:
    await store.create_queue(queue)
    await store.put_task(queue, *[msgspec.json.encode(Order(i)) for i in range(count)])


@pytest.mark.parametrize("kind", ["async", "thread"])
async def test_a_function_says_of_each_task_what_became_of_it(store: Store, queue: str, kind: str) -> None:
    attempts: dict[int, int] = {}
    threads: set[str] = set()

    if kind == "async":

        @handler(queue, backoff=SOON)
        async def bound(order: Order) -> Outcome | None:
            return say(order, attempts)
    else:

        @handler(queue, backoff=SOON)
        def bound(order: Order) -> Outcome | None:
            threads.add(threading.current_thread().name)
            return say(order, attempts)

    await put(store, queue, 6)
    async with running(store, bound) as worker:
        await until_counts(store, queue, lambda found: found.done == 5 and found.dead == 1)
        (letter,) = await store.dead_letters(queue)
    assert letter.reason == "three is too many"
    assert attempts == {0: 0, 1: 1, 2: 1, 3: 0, 4: 0, 5: 0}
    assert all(name.startswith("worker-handler-") for name in threads)
    assert worker.report().queues[queue].errors == 1


@pytest.mark.parametrize("kind", ["async", "thread"])
async def test_a_task_that_fails_holds_up_its_partition_within_a_batch(
    store: Store, queue: str, kind: str
) -> None:
    calls: list[str] = []
    attempts: dict[str, int] = {}

    def say(task: Task) -> None:
        name = task.data.decode()
        calls.append(name)
        attempts[name] = task.attempts
        if name == "p2" and calls.count("p2") <= 2:
            raise ValueError("not yet")

    if kind == "async":

        @handler(queue, backoff=SOON)
        async def bound(task: Task) -> None:
            say(task)
    else:

        @handler(queue, backoff=SOON)
        def bound(task: Task) -> None:
            say(task)

    await store.create_queue(queue, {"ordered": True})
    for partition in "pq":
        await store.put_task(queue, *[f"{partition}{n}".encode() for n in range(1, 6)], partition=partition)
    async with running(store, bound) as worker:
        await until_counts(store, queue, lambda found: found.done == 10)
        numbers = worker._served[queue].shared
    assert [name for name in calls if name[0] == "p"] == ["p1", "p2", "p2", "p2", "p3", "p4", "p5"]
    assert [name for name in calls if name[0] == "q"] == ["q1", "q2", "q3", "q4", "q5"]
    assert attempts == {**dict.fromkeys(calls, 0), "p2": 2}
    assert (numbers.lost, numbers.errors) == (0, 2)


async def test_a_batch_answers_past_what_it_sends_back_in_vain(memory: Store, queue: str) -> None:
    calls: list[list[int]] = []

    @handler(queue, batch=True, batch_size=4, backoff=SOON)
    async def bound(orders: Sequence[Order]) -> list[Outcome] | None:
        calls.append([order.number for order in orders])
        return [Done(), RetryAfter(0), Done(), Bury("bad")] if len(calls) == 1 else None

    await memory.create_queue(queue, {"ordered": True})
    await memory.put_task(queue, *[msgspec.json.encode(Order(i)) for i in range(4)])
    async with running(memory, bound) as worker:
        await until_counts(memory, queue, lambda found: found.done == 4)
        numbers = worker._served[queue].shared
    assert calls == [[0, 1, 2, 3], [1, 2, 3]]
    assert (numbers.lost, numbers.retried, numbers.buried) == (2, 1, 0)


async def test_of_a_batch_that_fails_the_first_of_each_partition_counts(memory: Store, queue: str) -> None:
    attempts: list[dict[str, int]] = []

    @handler(queue, batch=True, backoff=SOON)
    async def bound(tasks: Sequence[Task]) -> None:
        attempts.append({task.data.decode(): task.attempts for task in tasks})
        if len(attempts) == 1:
            raise ValueError("not yet")

    await memory.create_queue(queue, {"ordered": True})
    for partition in "pq":
        await memory.put_task(queue, *[f"{partition}{n}".encode() for n in range(1, 4)], partition=partition)
    async with running(memory, bound):
        await until_counts(memory, queue, lambda found: found.done == 6)
    seen = {name: count for batch in attempts[1:] for name, count in batch.items()}
    assert seen == {"p1": 1, "p2": 0, "p3": 0, "q1": 1, "q2": 0, "q3": 0}


async def test_a_batch_is_called_once_and_answers_for_each(memory: Store, queue: str) -> None:
    calls: list[int] = []

    @handler(queue, batch=True, batch_size=4, backoff=SOON)
    async def bound(ctx: Context, orders: Sequence[Order]) -> list[Outcome] | None:
        assert ctx.queue == queue
        calls.append(len(orders))
        if len(calls) == 1:
            return [Bury("first"), *[Done()] * (len(orders) - 1)]
        if len(calls) == 2:
            return [Done()]  # one for four: a mistake, so that all of them come back
        return None

    await put(memory, queue, 8)
    async with running(memory, bound):
        await until_counts(memory, queue, lambda found: found.done == 7 and found.dead == 1)
    assert calls[:2] == [4, 4]


class Unsayable:
    """Something that has no text."""

    def __str__(self) -> str:
        """Fail."""
        raise ValueError("no text")


@pytest.mark.parametrize("kind", ["async", "thread"])
@pytest.mark.parametrize(
    "bad",
    [
        RetryAfter(math.inf),
        RetryAfter("30"),  # type: ignore[arg-type]
        RetryAfter(-1.0),
        Bury(Unsayable()),  # type: ignore[arg-type]
        42,
        SystemExit(1),
        KeyboardInterrupt(),
        asyncio.CancelledError(),  # of something that it waited for
        BaseExceptionGroup("two", [KeyboardInterrupt()]),
    ],
)
async def test_one_bad_outcome_is_the_failure_of_its_task_alone(
    memory: Store, queue: str, kind: str, bad: Any
) -> None:
    calls: list[int] = []

    def say(order: Order) -> Any:
        calls.append(order.number)
        if order.number == 1 and isinstance(bad, BaseException):
            raise bad
        return bad if order.number == 1 else None

    if kind == "async":

        @handler(queue, retries_max=0)
        async def bound(order: Order) -> Any:
            return say(order)
    else:

        @handler(queue, retries_max=0)
        def bound(order: Order) -> Any:
            return say(order)

    await put(memory, queue, 3)
    async with running(memory, bound) as worker:
        await until_counts(memory, queue, lambda found: found.done + found.dead == 3)
        found = worker._served[queue].own
        await until(lambda: found.buried == 1, "the report")
        assert (found.processed, found.errors, found.handler_errors) == (2, 1, 0)
        (letter,) = await memory.dead_letters(queue)
    assert letter.reason.startswith("failed once: ")
    assert calls == [0, 1, 2]


async def test_what_a_batch_did_before_it_broke_stands(memory: Store, queue: str) -> None:
    calls: list[int] = []

    @handler(queue, retries_max=5, backoff=SOON)
    async def bound(order: Order) -> None:
        calls.append(order.number)
        if order.number == 1 and calls.count(1) == 1:
            raise GeneratorExit

    await put(memory, queue, 3)
    async with running(memory, bound):
        await until_counts(memory, queue, lambda found: found.done == 3)
    assert calls.count(0) == 1


async def test_a_bad_outcome_is_logged_with_what_to_do(
    memory: Store, queue: str, caplog: pytest.LogCaptureFixture
) -> None:
    @handler(queue, retries_max=0)
    async def bound(_: bytes) -> Any:
        return 42

    await put(memory, queue, 1)
    async with running(memory, bound):
        await until(lambda: "returned int; return Done, RetryAfter, Bury or None" in caplog.text, "the hint")


async def test_a_function_that_returns_nonsense_has_failed(memory: Store, queue: str) -> None:
    @handler(queue, retries_max=0)
    async def bound(_: bytes) -> Any:
        return 42

    await put(memory, queue, 1)
    async with running(memory, bound):
        await until_counts(memory, queue, lambda found: found.dead == 1)
        (letter,) = await memory.dead_letters(queue)
    assert letter.reason.startswith("failed once: Rejected: a handler returned int; return Done")


async def test_tasks_are_read_by_the_annotation(memory: Store, queue: str) -> None:
    seen: dict[str, Any] = {}

    @handler(f"{queue}1")
    async def plain(task) -> None:  # type: ignore[no-untyped-def]  # noqa: ANN001
        seen["plain"] = task

    @handler(f"{queue}2")
    async def text(task: str) -> None:
        seen["text"] = task

    @handler(f"{queue}3")
    async def fields(task: dict[str, int]) -> None:
        seen["fields"] = task

    @handler(f"{queue}4")
    async def whole(task: Task) -> None:
        seen["whole"] = task.data

    functions = [plain, text, fields, whole]
    for bound in functions:
        await put(memory, bound.queue, 1)
    async with running(memory, *functions):
        for bound in functions:
            await until_counts(memory, bound.queue, lambda found: found.done == 1)
    raw = b'{"number":0}'
    assert seen == {"plain": raw, "text": raw.decode(), "fields": {"number": 0}, "whole": raw}


async def test_what_does_not_fit_the_annotation_is_buried_alone(memory: Store, queue: str) -> None:
    @handler(queue)
    async def bound(_: Order) -> None:
        return None

    await put(memory, queue, 2)
    await memory.put_task(queue, b'{"number": "x"}')
    async with running(memory, bound):
        found = await until_counts(memory, queue, lambda found: found.done == 2 and found.dead == 1)
        (letter,) = await memory.dead_letters(queue)
    assert found.difference == 0
    assert letter.reason.startswith("can't be decoded: Expected `int`")


async def test_threads_are_bounded(memory: Store, queue: str) -> None:
    lock, running_now, most = threading.Lock(), 0, 0
    both = threading.Barrier(2)

    @handler(queue, batch_size=1, max_processors=8)
    def bound(_: bytes) -> None:
        nonlocal running_now, most
        with lock:
            running_now += 1
            most = max(most, running_now)
        both.wait(20)
        with lock:
            running_now -= 1

    await put(memory, queue, 20)
    async with running(memory, bound, settings=WorkerSettings(threads=2)):
        await until_counts(memory, queue, lambda found: found.done == 20)
    assert most == 2


async def test_what_is_known_is_told_while_other_tasks_take_long(memory: Store, queue: str) -> None:
    """The second task goes on until the first is done in the store."""

    @handler(queue)
    async def bound(order: Order) -> None:
        if order.number == 1:
            loop = asyncio.get_running_loop()
            began = loop.time()
            while loop.time() < began + 0.6:  # noqa: ASYNC110 - longer than what is known is kept
                await asyncio.sleep(0)
        if order.number == 2:
            assert (await counts(memory, queue)).done == 2

    await put(memory, queue, 3)
    async with running(memory, bound) as worker:
        await until_counts(memory, queue, lambda found: found.done == 3)
    assert worker.report().queues[queue].errors == 0


CONTRACT = """
queues:
  - {id: 71, name: short_emails, fields: [{name: to, type: string}],
     settings: {batch_size: 3, retries_max: 4}}
  - {id: 72, name: letters, fields: [{name: to, type: string}]}
"""


async def test_a_task_of_a_generated_package_is_read_as_its_contract_says(
    memory: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tasks.yaml").write_text(CONTRACT)
    assert (
        main(["contract", "generate", str(tmp_path / "tasks.yaml"), "--out", str(tmp_path / "handmail")]) == 0
    )
    monkeypatch.syspath_prepend(tmp_path)
    package = importlib.import_module("handmail")
    seen: list[Any] = []

    async def send(task: Any) -> None:
        seen.append(task)

    send.__annotations__["task"] = package.ShortEmailsTask
    bound = handler("short_emails")(send)
    assert (bound.number, bound.settings) == (71, BindingSettings(batch_size=3, retries_max=4))
    more = handler("short_emails", max_processors=8, retries_max=5)(send)
    assert more.settings == BindingSettings(batch_size=3, retries_max=5, max_processors=8)
    other = handler("short_emails", settings=BindingSettings(max_processors=8))(send)
    assert other.settings == BindingSettings(max_processors=8)
    async with running(memory, bound):
        await package.TasksClient(memory).short_emails.put(to="a@b.c")
        await until_counts(memory, "short_emails", lambda found: found.done == 1)
    assert [(type(task), task.to, task.attempts) for task in seen] == [(package.ShortEmailsTask, "a@b.c", 0)]
    with pytest.raises(Misconfigured, match="ShortEmailsTask is no task of queue 'letters'"):
        handler("letters")(send)


def two(_: bytes, __: bytes) -> None:
    """No handler: it takes two tasks."""


def one(_: bytes) -> None:
    """A handler of one task."""


class Methods:
    """What has methods for handlers."""

    def one(self, _: bytes) -> None:
        """A handler of one task, if it is bound."""


class Foreign:
    """A class that msgspec knows nothing about, as those of other libraries are."""


class Node(msgspec.Struct):
    """A type that has itself in it."""

    next: Node | None = None
    rest: Any = None


def foreign(_: Foreign) -> None:
    """Would have each of its tasks buried."""


def nested(_: dict[str, list[Foreign]]) -> None:
    """So would this."""


def mixed(_: int | Foreign) -> None:
    """So would this."""


def node(_: Node) -> None:
    """Fits."""


def anything(_: object) -> None:
    """Fits, whatever it is."""


@pytest.mark.parametrize("function", [node, anything])
def test_what_can_be_read_may_have_itself_in_it_or_be_anything(function: Callable[..., None]) -> None:
    assert handler("q")(function).queue == "q"


def test_a_decorator_without_a_queue_is_refused() -> None:
    bare: Any = handler
    with pytest.raises(Misconfigured, match="names no queue; write @handler"):
        bare(node)


def test_a_bound_method_is_a_handler_and_what_is_bound_to_no_queue_is_none() -> None:
    bound = handler("q")(Methods().one)
    assert Worker("memory://", [bound]).bindings == {"q": bound}
    anything: Any = one
    with pytest.raises(Misconfigured, match="one is bound to no queue; put @handler"):
        Worker("memory://", [bound, anything])


@pytest.mark.parametrize(
    ("function", "options", "said"),
    [
        (two, {}, "takes 2 arguments; let it take one task"),
        (one, {"batch": True}, "takes no sequence"),
        (Methods.one, {}, "takes self, and nobody would give it one; decorate a function"),
        (one, {"speed": 3}, "speed"),
        (foreign, {}, "can't be read as Foreign; annotate it with bytes"),
        (nested, {}, r"can't be read as .*, which has Foreign in it; annotate"),
        (mixed, {}, "custom type"),
    ],
)
def test_what_cannot_be_a_handler_is_refused(
    function: Callable[..., None], options: dict[str, Any], said: str
) -> None:
    with pytest.raises(Misconfigured, match=said):
        handler("q", **options)(function)
