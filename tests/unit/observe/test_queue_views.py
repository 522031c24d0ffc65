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
    omitted_groups,
    queue_views,
    running_tasks,
)
from forebay.store.store import LogStore
from forebay.store.values import Running

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


async def test_beyond_the_cap_rows_are_those_of_groups_and_what_has_none_is_told() -> None:
    async with LogStore(MemoryLog()) as store:
        for number in range(5):
            await store.create_queue(f"q{number}")
            await store.put_task(f"q{number}", *[Message(b"x", headers=FLOW)] * (number + 1))
        await store.get_task("q0", 1)
        families = queue_families(await store.ledger(), await store.flow_stats(), series_max=3)
        document = Document(taken_at=NOW, families=families)
        history = History()
        history.add(document)
        views = queue_views(document, {}, history)
        assert [(view.queue, view.ready, view.leased) for view in views] == [("q4", 5, 0), ("q3", 4, 0)]
        assert {view.queue: view.warm + view.cold for view in views} == {"q4": 5, "q3": 4}
        assert omitted_groups(document) == 3
        assert {key[0] for key in history.plots()} == {"q3", "q4"}
        assert sorted(action_plugins(document, {})) == ["q3", "q4"]
        found = detailed_queues(document, now=NOW, stale=False, oldest={})
        assert sorted(row.action_class for row in (*found.warm_queues, *found.cold_queues)) == ["q3", "q4"]
        assert {each.part: each.reason for each in found.problems} == {
            "other queues": "3 groups in which least waits are counted together",
            "other flows": "3 flows in which least waits are counted together",
        }
        assert ledger_view(document).accepted == 1 + 2 + 3 + 4 + 5


async def test_a_group_whose_flows_are_counted_together_has_all_that_waits() -> None:
    async with LogStore(MemoryLog()) as store:
        await store.create_queue("orders")
        for number in range(5):
            await store.put_task("orders", Message(b"x", headers={"flow": f"f{number}"}))
        await store.get_task("orders", 1)
        families = queue_families(await store.ledger(), await store.flow_stats(), series_max=3)
        (view,) = queue_views(Document(taken_at=NOW, families=families), {}, History())
        assert len(view.flows) == 2
        assert (view.ready, view.warm + view.cold) == (4, 4)


async def test_a_running_task_has_the_ids_of_all_its_messages() -> None:
    async with LogStore(MemoryLog()) as store:
        await store.create_queue("orders")
        await store.put_task("orders", *[b"x"] * 4)
        first, *others = await store.get_task("orders", 4)
        await store.settle(done=others[:1])
        (task,) = running_tasks(await store.running(), now=NOW, heartbeat_seconds=30).tasks
        assert task.did == str(first.id)
        assert list(task.dids) == [str(each.id) for each in (first, *others[1:])]
        assert task.count == 3


def test_ids_of_running_tasks_are_bounded() -> None:
    piece = Running(
        queue="q", group="g", flow=Flow(), first=1, count=5_000, attempts=0, worker="w", since=0, deadline=0,
        ids=range(1, 5_001),
    )  # fmt: skip
    tasks = running_tasks([piece] * 12, now=NOW, heartbeat_seconds=30).tasks
    assert [len(task.dids) for task in tasks] == [1_000] * 10 + [0, 0]
    assert tasks[0].dids[-1] == "1000"
