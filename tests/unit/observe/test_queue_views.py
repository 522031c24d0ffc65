"""What people see of queues, counted from a real store."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec
import pytest

from forebay.log.memory import MemoryLog
from forebay.model import Flow, ManualClock, Message
from forebay.observe.document import Document, family
from forebay.observe.history import History
from forebay.observe.queue_families import queue_families
from forebay.observe.queue_views import (
    action_plugins,
    detailed_queues,
    ledger_view,
    queue_views,
    running_tasks,
)
from forebay.store.store import LogStore

NOW = 1_800_000_000
FLOW = {"flow": "daily", "flow_type": "TRANSFORM", "action": "sum"}


async def document_of(store: LogStore) -> Document:
    return Document(taken_at=NOW, families=queue_families(await store.ledger(), await store.flow_stats()))


async def test_rows_are_as_users_of_the_original_know_them() -> None:
    clock = ManualClock(NOW * 1_000_000)
    async with LogStore(MemoryLog(clock=clock), clock=clock) as store:
        await store.create_queue("org.example.Sum", {"in_memory_queue_size": 4})
        await store.put_task("org.example.Sum", *[Message(b"%d" % n, headers=FLOW) for n in range(4)])
        clock.advance(seconds=5)
        await store.put_task("org.example.Sum", *[Message(b"%d" % n, headers=FLOW) for n in range(6)])
        (task,) = await store.get_task("org.example.Sum", 1, worker="core-worker-1")
        clock.advance(seconds=330)
        oldest = await store.oldest_warm()
        document = await document_of(store)
        found = detailed_queues(document, now=NOW + 400, stale=False, oldest=oldest)
        shown = msgspec.to_builtins(found)
        row = {
            "actionClass": "org.example.Sum", "flowName": "daily", "flowType": "TRANSFORM",
            "actionName": "sum", "group": "workers",
        }  # fmt: skip
        (warm,), (cold,) = shown["warmQueues"], shown["coldQueues"]
        assert warm == row | {
            "count": 3, "oldestQueuedAt": "2027-01-15T08:00:00Z", "oldestDid": str(task.id + 1),
        }  # fmt: skip
        assert cold == row | {"count": 6, "oldestQueuedAt": "2027-01-15T08:00:05Z"}
        assert shown["timestamp"] == "2027-01-15T08:06:40Z"
        assert shown["dataTimestamp"] == "2027-01-15T08:00:00Z"
        running = running_tasks(await store.running(), now=clock.now() / 1e6, heartbeat_seconds=30)
        (out,) = msgspec.to_builtins(running)["tasks"]
        assert (out["did"], out["runningForMs"], out["appName"]) == (str(task.id), 330_000, "core-worker-1")
        assert (out["actionClass"], out["actionName"]) == ("org.example.Sum", "sum")
        assert out["startTime"] == "2027-01-15T08:00:05Z"
        assert running.heartbeat_threshold_ms == 30_000


async def test_every_queue_has_its_plugin_or_is_unknown() -> None:
    async with LogStore(MemoryLog()) as store:
        await store.create_queue("known")
        await store.create_queue("strange")
        document = await document_of(store)
        assert action_plugins(document, {"known": "mine:1", "elsewhere": "other:2"}) == {
            "elsewhere": "other:2", "known": "mine:1", "strange": "unknown",
        }  # fmt: skip
        assert action_plugins(None, {}) == {}


@pytest.mark.parametrize(
    ("settings", "count", "mode"),
    [
        ({}, 0, "idle"),
        ({"paused": True}, 3, "paused"),
        ({"in_memory_queue_size": 2}, 9, "cold"),
        ({}, 3, "warm"),
    ],
)
async def test_a_queue_says_what_state_it_is_in(settings: dict[str, object], count: int, mode: str) -> None:
    async with LogStore(MemoryLog()) as store:
        await store.create_queue("orders", settings)
        await store.create_queue("quiet")
        if count:
            await store.put_task("orders", *[b"%d" % n for n in range(count)])
        await store.get_task("orders", 1)
        views = {view.queue: view for view in queue_views(await document_of(store), {}, History())}
        assert views["orders"].mode == mode
        assert views["quiet"].mode == "idle"
        assert views["orders"].ready == views["orders"].warm + views["orders"].cold


async def test_without_a_snapshot_the_answer_is_whole_and_empty() -> None:
    found = detailed_queues(None, now=NOW, stale=True, oldest={})
    assert (found.warm_queues, found.cold_queues, found.data_timestamp, found.stale) == ([], [], None, True)
    assert found.timestamp == datetime.fromtimestamp(NOW, UTC)


def test_the_ledger_names_the_worst_groups_first() -> None:
    off = [(("a", "workers"), -1.0), (("b", "workers"), 7.0), (("c", "workers"), 0.0)]
    families = [family("forebay_queue_difference", "gauge", "", ("queue", "group"), off)]
    found = ledger_view(Document(taken_at=NOW, families=families))
    assert found.difference == 8
    assert [(each.queue, each.difference) for each in found.differences] == [("b", 7), ("a", -1)]


async def test_the_oldest_is_told_by_flow_and_nothing_moves() -> None:
    async with LogStore(MemoryLog()) as store:
        await store.create_queue("orders")
        await store.put_task("orders", Message(b"1", headers=FLOW), b"2", Message(b"3", headers=FLOW))
        assert await store.oldest_warm() == {}
        (task,) = await store.get_task("orders", 1)
        await store.release([task])
        oldest = await store.oldest_warm()
        assert oldest == {
            ("orders", "workers", Flow("daily", "TRANSFORM", "sum")): task.id,
            ("orders", "workers", Flow()): task.id + 1,
        }
