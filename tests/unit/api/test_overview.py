"""What the page shows: put together once for all who look, and whole but for what can't be had."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from time import time
from typing import Any

import pytest

from forebay.api.context import Context
from forebay.api.overview import LISTENERS_MAX
from forebay.log.memory import MemoryLog
from forebay.model import Unavailable
from forebay.observe.document import SERIES_MAX, Document, encode_document
from forebay.observe.file_snapshots import FileSnapshots
from forebay.observe.follower import Follower
from forebay.observe.queue_families import queue_families
from forebay.observe.snapshot_store import SnapshotStore, meta_of
from forebay.store.store import LogStore
from forebay.store.values import Running


class Counting(LogStore):
    """Counts how often it is asked for running tasks, and may be away."""

    asked = 0
    away = False
    broken = False

    async def running(self, limit: int = 100) -> list[Running]:
        self.asked += 1
        if self.away:
            raise Unavailable("the warm tier is away", hint="wait")
        if self.broken:
            raise KeyError("shelf")
        return await super().running(limit)


async def counted(
    context: Context, store: LogStore, snapshots: SnapshotStore, series_max: int = SERIES_MAX
) -> None:
    """Count the queues, and have the context follow."""
    families = queue_families(await store.ledger(), await store.flow_stats(), series_max=series_max)
    data = encode_document(Document(taken_at=time(), families=families))
    term = await snapshots.begin_term("test", 60)
    assert term is not None
    meta = meta_of(term, data, source="test", generated_at=time(), seconds=0, rows=1)
    await snapshots.publish(term, data, meta)
    assert context.snapshot is not None
    await context.snapshot.look()


@pytest.fixture
async def context(tmp_path: Any) -> Any:
    """Give a context with a store that has one queue, which was counted."""
    async with Counting(MemoryLog()) as store:
        context = Context()
        await store.create_queue("orders")
        await store.put_task("orders", b"1", b"2")
        snapshots = FileSnapshots(tmp_path)
        context.snapshot = Follower(snapshots, max_staleness_seconds=3_600)
        await counted(context, store, snapshots)
        context.opened = store
        yield context


async def test_many_readers_cost_as_much_as_one(context: Context) -> None:
    found = await asyncio.gather(*[context.overview.overview() for _ in range(50)])
    assert all(each is found[0] for each in found)
    assert context.opened.asked == 1  # type: ignore[union-attr]
    assert [(queue.queue, queue.ready) for queue in found[0].queues or ()] == [("orders", 2)]
    assert found[0].problems == []


async def test_a_part_that_fails_is_named_and_the_rest_is_there(context: Context) -> None:
    context.opened.away = True  # type: ignore[union-attr]
    found = await context.overview.overview()
    (problem,) = found.problems
    assert problem.part == "running"
    assert "the warm tier is away" in problem.reason
    assert found.queues


async def test_without_a_store_what_was_counted_is_there(context: Context) -> None:
    context.opened = None
    found = await context.overview.overview()
    assert found.log == context.reason
    assert found.queues
    assert found.problems == []


async def test_queues_are_sent_again_only_when_they_were_counted_anew(context: Context) -> None:
    events = context.overview.events(lambda: False)
    first = await anext(events)
    second = await anext(events)
    assert b'"queues":[{' in first
    assert b'"queues":null' in second
    context.draining.set()
    assert [event async for event in events] == []
    assert context.overview.listeners == 0


async def test_listeners_are_bounded_also_when_all_come_at_once(context: Context) -> None:
    streams = [context.overview.events(lambda: False) for _ in range(LISTENERS_MAX + 5)]
    firsts: Sequence[Any] = await asyncio.gather(*[anext(stream, None) for stream in streams])
    assert firsts.count(None) == 5
    assert context.overview.listeners == LISTENERS_MAX
    with pytest.raises(Unavailable, match="listen already"):
        context.overview.check_room()
    for stream in streams:
        await stream.aclose()
    assert context.overview.listeners == 0


async def test_groups_beyond_the_cap_are_told_as_omitted(context: Context, tmp_path: Any) -> None:
    store = context.opened
    assert isinstance(store, LogStore)
    for number in range(3):
        await store.create_queue(f"q{number}")
    await counted(context, store, FileSnapshots(tmp_path), series_max=2)
    found = await context.overview.overview()
    assert [(queue.queue, queue.ready) for queue in found.queues or ()] == [("orders", 2)]
    assert found.queues_omitted == 3
    assert [problem.part for problem in found.problems] == ["other queues"]


async def test_tasks_that_only_other_servers_list_are_told(context: Context, tmp_path: Any) -> None:
    store = context.opened
    assert isinstance(store, LogStore)
    async with LogStore(store.log, name="other") as other:
        await other.get_task("orders", 2)
        await counted(context, other, FileSnapshots(tmp_path))
        found = await context.overview.overview()
    assert found.running == []
    (problem,) = found.problems
    assert problem.part == "other servers' tasks"
    assert "here 0 of the 2" in problem.reason


async def test_an_error_that_nobody_expected_takes_one_part_and_is_logged_once(
    context: Context, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    context.opened.broken = True  # type: ignore[union-attr]
    for _ in range(2):
        monkeypatch.setattr(context.overview, "_made", None)
        found = await context.overview.overview()
        (problem,) = found.problems
        assert problem.part == "running"
        assert problem.reason == "KeyError: 'shelf'"
        assert found.queues
    assert [record.getMessage() for record in caplog.records] == [
        "running can't be shown, which nobody expected"
    ]
