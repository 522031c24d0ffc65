"""Workers are told while they run: instructions, settings out of a file; and what they say of themselves."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from forebay.model import Misconfigured, Rejected, Unavailable
from forebay.store.seam import Store
from forebay.store.values import Task
from forebay.work import Context, HandlerStats, Storage, Worker, WorkerSettings, processor, taking
from forebay.work.managing import Manager, ManagerSettings
from forebay.work.watching import SettingsFile
from tests.integration.work.steps import binding, running, until, until_counts


class Hands:
    """A handler whose calls go on until they are let go; who is at work, by queue."""

    def __init__(self) -> None:
        self.at_work: Counter[str] = Counter()
        self.most: Counter[str] = Counter()
        self.go_on = asyncio.Event()

    async def handle(self, ctx: Context, storage: Storage, tasks: Sequence[Task]) -> HandlerStats:
        self.at_work[ctx.queue] += 1
        self.most[ctx.queue] = max(self.most[ctx.queue], self.at_work[ctx.queue])
        await self.go_on.wait()
        self.at_work[ctx.queue] -= 1
        await storage.done_task(task.id for task in tasks)
        return HandlerStats(processed=len(tasks))


class Asked:
    """How often a store was asked for tasks, and how many calls wait."""

    def __init__(self, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls = 0
        self.waiting = 0
        self._get = store.get_task
        monkeypatch.setattr(store, "get_task", self._get_task)

    async def _get_task(self, *arguments: Any, wait_seconds: float, **options: Any) -> list[Task]:
        self.calls += 1
        self.waiting += wait_seconds > 0
        try:
            return await self._get(*arguments, wait_seconds=wait_seconds, **options)
        finally:
            self.waiting -= wait_seconds > 0


async def fill(store: Store, *queues: str) -> None:
    for queue in queues:
        await store.create_queue(queue)
        for _ in range(20):
            await store.put_task(queue, b"x")


async def test_no_queue_has_more_processors_than_it_may(memory: Store) -> None:
    hands = Hands()
    bound = [binding("a", hands.handle, max_processors=1, batch_size=1)]
    bound += [binding("b", hands.handle, max_processors=3, batch_size=1)]
    await fill(memory, "a", "b")
    async with running(memory, *bound, processors=8) as worker:
        await until(lambda: hands.at_work == {"a": 1, "b": 3}, "as many as may be")
        report = worker.report()
        assert (report.processors, report.queues["b"].processors, report.queues["b"].in_progress) == (8, 3, 3)
        hands.go_on.set()
        for queue in ("a", "b"):
            await until_counts(memory, queue, lambda found: found.done == 20)
    assert hands.most == {"a": 1, "b": 3}


async def test_idle_processors_wait_for_tasks_within_the_limits(memory: Store) -> None:
    hands = Hands()
    bound = [binding(queue, hands.handle, max_processors=1, batch_size=1) for queue in ("a", "b", "c")]
    async with running(memory, *bound, processors=3):
        await fill(memory, "a", "b", "c")
        await until(lambda: hands.at_work == {"a": 1, "b": 1, "c": 1}, "one each")
        hands.go_on.set()
        for queue in ("a", "b", "c"):
            await until_counts(memory, queue, lambda found: found.done == 20)
    assert set(hands.most.values()) == {1}


async def test_instructions_move_processors_and_silence_changes_nothing(memory: Store) -> None:
    hands = Hands()
    bound = [binding(queue, hands.handle, max_processors=4, batch_size=1) for queue in ("a", "b")]
    async with running(memory, *bound, processors=4) as worker:
        worker.instruct({"a": 3, "b": 1})
        await fill(memory, "a", "b")
        await until(lambda: hands.at_work == {"a": 3, "b": 1}, "as instructed")
        worker.instruct({"a": 0, "b": 9})
        hands.go_on.set()
        await until_counts(memory, "b", lambda found: found.done == 20)
        await until(lambda: hands.at_work["a"] == 0, "what was at work ends")
        assert worker._served["a"].limit == 0
        assert worker._served["b"].limit == 4
        assert worker.report().queues["a"].processors_max == 4  # so that a Manager can give it back
        with pytest.raises(Rejected, match="no queue 'x'; it has a, b"):
            worker.instruct({"a": 1, "x": 1})
        with pytest.raises(Rejected, match="-1 processors for b"):
            worker.instruct({"a": 1, "b": -1})
        assert worker._served["a"].limit == 0
        worker.instruct({"a": 4})
        await until_counts(memory, "a", lambda found: found.done == 20)


async def test_a_worker_does_what_a_manager_says(store: Store, queue: str) -> None:
    """On every kind of store, so over HTTP, too: two queues with much work share two processors."""
    hands, queues = Hands(), [queue, f"{queue}b"]
    bound = [binding(name, hands.handle, max_processors=2, batch_size=1) for name in queues]
    settings = WorkerSettings(report_seconds=0.05)
    manager = Manager(store, settings=ManagerSettings(round_seconds=0.05))
    await fill(store, *queues)
    async with running(store, *bound, processors=2, settings=settings) as worker:
        managing = asyncio.create_task(manager.run())
        await until(
            lambda: [worker._served[name].instructed for name in queues] == [1, 1], "instructions", seconds=60
        )
        assert [worker._served[name].limit for name in queues] == [1, 1]
        manager.stop()
        await managing
        hands.go_on.set()
        for name in queues:
            await until_counts(store, name, lambda found: found.done == 20)


async def test_processors_by_the_workers_path_are_shared_by_its_queues(memory: Store, tmp_path: Path) -> None:
    hands, path = Hands(), tmp_path / "workers.yaml"
    bound = [binding(queue, hands.handle, batch_size=1) for queue in ("a", "b")]
    await fill(memory, "a", "b")
    async with running(memory, *bound, name="main") as worker:
        file = SettingsFile(path, "shop", worker)
        path.write_text("shop/worker/queue/main/max_processors: 5\n")
        file.load()
        await until(lambda: sum(hands.at_work.values()) == 5, "five in all")
        assert worker.report().processors == 5
        path.write_text("shop/worker/queue: {main/max_processors: 4, a/max_processors: 1}\n")
        assert file.look()
        hands.go_on.set()
        await until(lambda: worker.report().processors == 4, "four in all")
        assert [worker._served[queue].limit for queue in ("a", "b")] == [1, 4]
        path.write_text("{}")
        assert file.look()
        await until(lambda: worker.report().processors == 2, "as they are bound: one each")
        for queue in ("a", "b"):
            await until_counts(memory, queue, lambda found: found.done == 20)
        with pytest.raises(Rejected, match="1001 processors"):
            worker.configure({}, processors=1001)
    assert max(hands.most.values()) <= 5


async def test_settings_are_read_again_when_their_file_changes(
    memory: Store, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    hands = Hands()
    await fill(memory, "a")
    path = tmp_path / "settings.yaml"
    path.write_text("shop/worker/queue/a/max_processors: 2\n")
    async with running(memory, binding("a", hands.handle, batch_size=1)) as worker:
        file = SettingsFile(path, "shop", worker)
        file.load()
        await until(lambda: hands.at_work["a"] == 2, "two")
        assert not file.look()
        path.write_text("shop/worker/queue/a/max_processors: 5\n# more\n")
        assert file.look()
        await until(lambda: hands.at_work["a"] == 5, "five")
        with caplog.at_level(logging.ERROR):
            path.write_text("shop/worker/queue/a/max_processors: lots\n")
            file.look()
            assert not file.look()
        assert worker.report().queues["a"].processors_max == 5
        assert len(caplog.records) == 1
        assert "settings stay as they are" in caplog.text
        path.unlink()
        file.look()
        assert worker.report().queues["a"].processors_max == 5
        path.write_text("{}")
        file.look()
        assert worker.report().queues["a"].processors_max == 1
        hands.go_on.set()
        await until(lambda: worker.report().processors == 1, "one processor is left")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("forebay/worker/queue/a/max_processors: 2", "no path in it begins with shop/worker/queue/"),
        (
            "shop/worker/queue/b/max_processors: 2",
            "it is about b, and this worker and its queues are worker, a",
        ),
        ("shop/worker/queue/a/max_processors: 1", ""),
        ("{}", ""),
    ],
)
async def test_a_file_that_changes_nothing_is_said_once(
    memory: Store, tmp_path: Path, caplog: pytest.LogCaptureFixture, text: str, said: str
) -> None:
    path = tmp_path / "settings.yaml"
    path.write_text(text)
    async with running(memory, binding("a", Hands().handle)) as worker:
        file = SettingsFile(path, "shop", worker)
        with caplog.at_level(logging.WARNING):
            file.load()
            assert not file.look()
    assert [record.message for record in caplog.records] == (
        [f"{path} changes nothing here: {said}"] if said else []
    )


async def test_the_numbers_have_the_names_and_labels_of_the_original(memory: Store) -> None:
    registry = CollectorRegistry()
    hands = Hands()
    await fill(memory, "a")
    number = (await memory.queue("a")).number
    async with running(memory, binding("a", hands.handle, batch_size=5), registry=registry):
        await until(lambda: hands.at_work["a"] == 1, "at work")
        text = generate_latest(registry).decode()
        assert f'queue_tasks_in_progress{{queue="a",queue_num="{number}"}} 5.0' in text
        assert "queue_running_workers 1.0" in text
        assert "queue_running_job_processors 1.0" in text
        hands.go_on.set()
        await until_counts(memory, "a", lambda found: found.done == 20)
    text = generate_latest(registry).decode()
    name = "queue_job_processor_cycle_duration_seconds"
    assert f'{name}_count{{queue="a",queue_num="{number}"}} 4.0' in text
    assert f'{name}_bucket{{le="10.0",queue="a",queue_num="{number}"}} 4.0' in text
    assert 'forebay_worker_tasks_processed_total{queue="a"} 20.0' in text
    for other in ("tasks_failed", "handler_errors", "tasks_parked", "tasks_lost", "slow_cycles"):
        assert f'forebay_worker_{other}_total{{queue="a"}} 0.0' in text
    assert "queue_running_workers 0.0" in text
    assert "queue_running_job_processors 0.0" in text


async def test_a_cycle_is_taking_and_handling_and_no_waiting_for_tasks(
    memory: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Time passes only where the test lets it: 3 s for a call of the store, 4 s for a handler, 100 s idle."""
    now, asked = 1_000.0, Asked(memory, monkeypatch)
    get = memory.get_task

    async def slow(*arguments: Any, wait_seconds: float, **options: Any) -> list[Task]:
        nonlocal now
        now += 0 if wait_seconds else 3
        return await get(*arguments, wait_seconds=wait_seconds, **options)

    async def handle(_: Context, storage: Storage, tasks: Sequence[Task]) -> HandlerStats:
        nonlocal now
        now += 4
        await storage.done_task(task.id for task in tasks)
        return HandlerStats(processed=len(tasks))

    monkeypatch.setattr(memory, "get_task", slow)
    for module in (processor, taking):
        monkeypatch.setattr(module, "monotonic", lambda: now)
    await memory.create_queue("a")
    await memory.put_task("a", b"x")
    async with running(memory, binding("a", handle)) as worker:
        own = worker._served["a"].own
        await until(lambda: sum(own.cycles) == 1, "a task that was there")
        assert own.cycles_seconds == 7
        await until(lambda: asked.waiting == 1, "it waits")
        now += 100
        await memory.put_task("a", b"x")
        await until(lambda: sum(own.cycles) == 2, "a task that came")
        assert own.cycles_seconds in (11, 14)  # by waiting, or by a look at what was quiet


async def test_a_store_that_is_away_is_asked_again(memory: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    hands = Hands()
    hands.go_on.set()
    get, failures = memory.get_task, 0

    async def away(*arguments: object, **options: object) -> list[Task]:
        nonlocal failures
        if failures < 3:
            failures += 1
            raise Unavailable("gone fishing")
        return await get(*arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(memory, "get_task", away)
    await fill(memory, "a")
    async with running(memory, binding("a", hands.handle)) as worker:
        await until(lambda: worker.trouble == "gone fishing", "trouble is known")
        await until_counts(memory, "a", lambda found: found.done == 20)
        await until(lambda: worker.trouble is None, "trouble is over")


async def test_an_idle_worker_asks_nothing_until_something_comes(
    memory: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    hands = Hands()
    hands.go_on.set()
    bound = [binding(queue, hands.handle) for queue in ("a", "b")]
    asked = Asked(memory, monkeypatch)
    async with running(memory, *bound, processors=1):
        await until(lambda: asked.waiting == 1, "it waits for both")
        calls = asked.calls
        for _ in range(1_000):
            await asyncio.sleep(0)
        assert asked.calls == calls
        await fill(memory, "a")
        await until_counts(memory, "a", lambda found: found.done == 20)


async def test_a_queue_that_was_deleted_does_not_hold_up_the_others(
    memory: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    hands = Hands()
    hands.go_on.set()
    bound = [binding(queue, hands.handle) for queue in ("a", "b")]
    asked = Asked(memory, monkeypatch)
    async with running(memory, *bound, processors=1):
        await until(lambda: asked.waiting == 1, "it waits for both")
        await memory.delete_queue("b")
        await fill(memory, "a")
        await until_counts(memory, "a", lambda found: found.done == 20)


async def test_bindings_that_cannot_be_are_refused(memory: Store) -> None:
    hands = Hands()
    with pytest.raises(Misconfigured, match="0 bindings"):
        Worker(memory, [])
    with pytest.raises(Misconfigured, match="'a' has two handlers"):
        Worker(memory, [binding("a", hands.handle), binding("a", hands.handle)])
    with pytest.raises(Misconfigured, match="has no store"):
        await Worker(None, [binding("a", hands.handle)]).init()
    with pytest.raises(Rejected, match="hasn't begun"):
        Worker(memory, [binding("a", hands.handle)]).report()
