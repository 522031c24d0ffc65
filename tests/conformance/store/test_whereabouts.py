"""Where one message is: every state it can be in, and its history, over every log and tier."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from forebay.log.values import Position
from forebay.model import Message, Rejected, UnknownQueue, mint, pack
from forebay.store.seam import Store
from forebay.store.values import GroupPlace, Retry
from forebay.store.whereabouts import look
from forebay.warm.values import Leased
from tests.conformance.store.rigs import StoreRig

SECOND = 1_000_000
DAY = 86_400


async def place(store: Store, message_id: int) -> GroupPlace:
    """Where a message is for the group that every queue has."""
    return (await store.where(message_id)).groups[0]


def said(place: GroupPlace) -> list[tuple[str, str, int]]:
    return [(one.outcome, one.worker, one.attempts) for one in place.history]


async def test_a_message_is_found_with_its_block_before_anybody_asks_for_it(rig: StoreRig) -> None:
    await rig.store.create_queue("orders")
    block_id, now = mint(), rig.clock.now()
    headers = {"flow": "f"}
    ids = await rig.store.put_task("orders", b"a", b"bc", headers=headers, id=block_id)
    found = await rig.store.where(ids[1])
    assert (found.id, found.queue, found.sequence) == (ids[1], "orders", 2)
    assert found.message == Message(b"bc", headers=headers)
    assert found.block is not None
    assert (found.block.id, found.block.first, found.block.count) == (block_id.hex(), ids[0], 2)
    assert (found.block.created_at, found.block.appended_at) == (now, now)
    assert found.block.bytes > 3
    assert found.groups == [GroupPlace(group="workers", state="cold", history=[])]


async def test_a_message_on_the_shelf_is_warm_and_one_with_a_worker_is_leased(rig: StoreRig) -> None:
    store = rig.store
    await store.create_queue("orders")
    ids = await store.put_task("orders", b"a", b"b")
    (task,) = await store.get_task("orders", worker="ann", visibility_seconds=30)
    leased, warm = await place(store, ids[0]), await place(store, ids[1])
    assert (leased.state, leased.worker, leased.since) == ("leased", "ann", rig.clock.now())
    assert leased.deadline == task.deadline
    assert leased.owner is not None
    assert (warm.state, warm.worker, warm.owner) == ("warm", None, leased.owner)


async def test_another_server_finds_who_has_a_task_of_a_shared_tier(shared_rig: StoreRig) -> None:
    await shared_rig.store.create_queue("orders")
    ids = await shared_rig.store.put_task("orders", b"a")
    await shared_rig.store.get_task("orders", worker="ann")
    found = await place(await shared_rig.open(), ids[0])
    assert (found.state, found.worker) == ("leased", "ann")


async def test_who_can_not_see_the_shelf_still_finds_that_a_task_is_out(rig: StoreRig) -> None:
    async def nothing(*_: object) -> Sequence[Leased]:
        return ()

    await rig.store.create_queue("orders")
    ids = await rig.store.put_task("orders", b"a")
    await rig.store.get_task("orders", worker="ann")
    (found,) = (await look(rig.embedded.log, nothing, ids[0])).groups
    assert (found.state, found.worker) == ("leased", None)


async def test_a_delayed_message_says_when_it_comes(rig: StoreRig) -> None:
    store, due_at = rig.store, rig.clock.now() + 60 * SECOND
    await store.create_queue("orders")
    ids = await store.put_task("orders", b"a", delay=60)
    for history in ([], [("delayed", "", 0)]):
        found = await place(store, ids[0])
        assert (found.state, found.due_at, found.attempts) == ("delayed", due_at, 0)
        assert said(found) == history
        await store.get_task("orders")  # brings it in view, and puts it off
    rig.clock.advance(seconds=61)
    assert (await place(store, ids[0])).state == "cold"


async def test_the_path_of_a_message_is_told_from_retry_to_done(rig: StoreRig) -> None:
    store = rig.store
    await store.create_queue("orders")
    ids = await store.put_task("orders", b"a", b"b")
    tasks = await store.get_task("orders", 2)
    await store.retry_task(tasks[:1], delay=5)
    waiting = await place(store, ids[0])
    due_at = rig.clock.now() + 5 * SECOND
    assert (waiting.state, waiting.attempts, waiting.due_at) == ("delayed", 1, due_at)
    rig.clock.advance(seconds=6)
    (again,) = await store.get_task("orders")
    assert again.id == ids[0]
    await store.done_task([again])
    done = await place(store, ids[0])
    assert (done.state, done.attempts, done.owner) == ("done", 1, None)
    worker = done.history[0].worker
    assert said(done) == [("retried", worker, 1), ("done", worker, 1)]
    assert done.history[0].due_at == due_at
    assert (await place(store, ids[1])).history == [], "nothing was said of its neighbour"


async def test_a_lease_that_expired_counts_in_the_history(rig: StoreRig) -> None:
    store = rig.store
    await store.create_queue("orders")
    ids = await store.put_task("orders", b"a")
    await store.get_task("orders", worker="ann", visibility_seconds=10)
    rig.clock.advance(seconds=11)
    await rig.embedded.tick()
    found = await place(store, ids[0])
    assert found.attempts == 1
    assert said(found) == [("retried", "ann", 1)]
    assert found.history[0].reason == "no answer"


async def test_the_path_says_why_a_message_came_back_and_by_which_code(rig: StoreRig) -> None:
    store = rig.store
    await store.create_queue("orders")
    ids = await store.put_task("orders", b"a", b"b", b"c")
    a, b, c = await store.get_task("orders", 3)
    at = rig.clock.now()
    await store.retry_task([Retry(a, at, reason="busy: näher"), b, c], reason="late")
    rig.clock.advance(seconds=1)
    a, b, c = await store.get_task("orders", 3)
    at = rig.clock.now()
    retries = [Retry(a, at, reason="gone"), Retry(b, at, counts=False, reason="paused")]
    await store.settle(done=[c], retry=retries, code=503)
    rig.clock.advance(seconds=1)
    a, b = await store.get_task("orders", 2)
    await store.settle(done=[a], code=200)
    await store.settle(bury=[b], reason="no good", code=404)
    found = [[(e.outcome, e.reason, e.code) for e in (await place(store, id)).history] for id in ids]
    assert found == [
        [("retried", "busy: näher", 0), ("retried", "gone", 503), ("done", None, 200)],
        [("retried", "late", 0), ("released", "paused", 503), ("dead", "no good", 404)],
        [("retried", "late", 0), ("done", None, 503)],
    ]


@pytest.mark.parametrize("said", [{"code": -1}, {"code": 1 << 31}, {"code": True}, {"reason": "a\0b"}])
async def test_a_code_or_reason_that_no_log_keeps_is_refused(store: Store, said: dict[str, Any]) -> None:
    await store.create_queue("orders")
    await store.put_task("orders", b"a")
    (task,) = await store.get_task("orders")
    retry = Retry(task, task.start_time, reason=said.get("reason", ""))
    with pytest.raises(Rejected):
        await store.settle(retry=[retry], code=said.get("code", 0))
    await store.done_task([task])


async def test_the_last_reason_is_the_dead_letters(rig: StoreRig) -> None:
    store = rig.store
    await store.create_queue("orders", {"retries_max": 0})
    await store.put_task("orders", b"a")
    await store.retry_task(await store.get_task("orders"), reason="busy")
    (letter,) = await store.dead_letters("orders")
    assert letter.reason == "failed once: busy"


async def test_the_path_of_a_dead_letter_is_told_to_the_end(rig: StoreRig) -> None:
    store = rig.store
    await store.create_queue("orders")
    ids = await store.put_task("orders", b"a", b"b")
    await store.retry_task(await store.get_task("orders", 2))
    rig.clock.advance(seconds=1)
    await store.bury(await store.get_task("orders", 2), "no good")
    dead = await place(store, ids[0])
    assert dead.state == "dead"
    assert [(one.outcome, one.reason) for one in dead.history] == [("retried", None), ("dead", "no good")]
    rig.clock.advance(seconds=1)
    await store.purge("orders", ids[1:])
    purged = await place(store, ids[1])
    assert (purged.state, [one.outcome for one in purged.history]) == (
        "purged",
        ["retried", "dead", "purged"],
    )
    await store.redrive("orders", ids[:1])
    redriven = await place(store, ids[0])
    assert (redriven.state, redriven.attempts) == ("cold", 0)
    assert [one.outcome for one in redriven.history] == ["retried", "dead", "redriven"]
    rig.clock.advance(seconds=1)
    await store.retry_task(await store.get_task("orders"))
    rig.clock.advance(seconds=1)
    await store.done_task(await store.get_task("orders"))
    done = await place(store, ids[0])
    assert done.state == "done"
    path = [("retried", 1), ("dead", 1), ("redriven", 0), ("retried", 1), ("done", 1)]
    assert [(outcome, attempts) for outcome, _, attempts in said(done)] == path


async def test_every_group_has_its_own_path_and_one_that_began_later_skips(rig: StoreRig) -> None:
    store = rig.store
    await store.create_queue("orders")
    ids = await store.put_task("orders", b"a")
    await store.create_group("orders", "audit")
    await store.create_group("orders", "late", "latest")
    await store.done_task(await store.get_task("orders", group="audit"))
    found = {one.group: one.state for one in (await store.where(ids[0])).groups}
    assert found == {"workers": "cold", "audit": "done", "late": "skipped"}


async def test_after_its_block_is_dropped_a_letter_still_tells_of_its_message(rig: StoreRig) -> None:
    store = rig.store
    await store.create_queue("orders", {"keep_seconds": 1})
    ids = await store.put_task("orders", b"a", b"b")
    tasks = await store.get_task("orders", 2)
    died_at = rig.clock.now()
    await store.settle(done=tasks[1:], bury=tasks[:1], reason="no good")
    rig.clock.advance(seconds=30 * DAY)
    await store.put_task("orders", b"c")  # so that there are pieces of now
    await rig.embedded.log.trim()
    found = await store.where(ids[0])
    assert found.block is None
    assert found.message == Message(b"a")
    (dead,) = found.groups
    assert dead.state == "dead"
    assert [(one.at, one.reason) for one in dead.history] == [(died_at, "no good")]
    gone = await store.where(ids[1])
    assert (gone.block, gone.message) == (None, None)
    assert gone.groups[0].state in ("dropped", "done")


async def test_what_expired_with_its_block_is_told(rig: StoreRig) -> None:
    store = rig.store
    await store.create_queue("orders", {"keep_seconds": 1, "expire_seconds": 10})
    ids = await store.put_task("orders", b"a")
    await store.retry_task(await store.get_task("orders"), delay=60 * DAY)
    rig.clock.advance(seconds=30 * DAY)
    await store.put_task("orders", b"c")
    await rig.embedded.log.trim()
    assert (await place(store, ids[0])).state == "expired"


async def test_a_message_that_can_not_be_read_is_corrupt(rig: StoreRig) -> None:
    queue = await rig.store.create_queue("orders")
    ids = await rig.store.put_task("orders", b"a")
    await rig.log_rig.flip_bit(queue, 1)
    assert await rig.store.get_task("orders") == []
    found = await rig.store.where(ids[0])
    assert found.message is None
    assert found.block is not None
    assert found.block.created_at is None
    assert found.groups[0].state == "corrupt"


async def test_an_ordered_message_is_found_by_its_partition(rig: StoreRig) -> None:
    store = rig.store
    await store.create_queue("orders", {"ordered": True})
    await store.create_group("orders", "slow")
    (one,) = await store.put_task("orders", b"a", partition="p")
    (two,) = await store.put_task("orders", b"b", partition="q")
    tasks = await store.get_task("orders", 2)
    await store.done_task([task for task in tasks if task.id == two])
    assert ((await place(store, one)).state, (await place(store, two)).state) == ("leased", "done")
    await store.done_task(await store.get_task("orders", group="slow"))
    states = [(await store.where(i)).groups[1].state for i in (one, two)]
    assert states == ["done", "warm"]
    (three,) = await store.put_task("orders", b"c", partition="q")
    await store.create_group("orders", "new")
    assert [(await store.where(i)).groups[2].state for i in (one, three)] == ["cold", "cold"]


async def test_ids_that_are_no_message_are_rejected_with_what_is_wrong(rig: StoreRig) -> None:
    queue = await rig.store.create_queue("orders")
    with pytest.raises(Rejected, match=r"no message 1 yet.*it is empty"):
        await rig.store.where(pack(queue.number, 1))
    (first,) = await rig.store.put_task("orders", b"a")
    with pytest.raises(Rejected, match=r"'orders' has given out no message 2 yet.*newest is 1"):
        await rig.store.where(first + 1)
    with pytest.raises(UnknownQueue, match=f"{pack(queue.number + 9, 1)} is of a queue that isn't there"):
        await rig.store.where(pack(queue.number + 9, 1))
    for bad in (0, -1, 1 << 63, 1 << 70):
        with pytest.raises(Rejected, match="out of range"):
            await rig.store.where(bad)


async def test_of_a_deleted_queue_nothing_is_told(rig: StoreRig) -> None:
    await rig.store.create_queue("orders")
    (first,) = await rig.store.put_task("orders", b"a")
    await rig.store.delete_queue("orders")
    with pytest.raises(UnknownQueue, match="isn't there"):
        await rig.store.where(first)


async def test_what_became_of_a_message_is_told_after_the_group_was_sent_elsewhere(rig: StoreRig) -> None:
    store = rig.store
    await store.create_queue("orders")
    done, dead, late, waiting, new = await store.put_task("orders", b"a", b"b", b"c", b"d", b"e")
    tasks = await store.get_task("orders", 3)
    await store.settle(done=tasks[:1], bury=tasks[1:2], reason="bad")
    await store.retry_task(tasks[2:], delay=60)
    await store.seek("orders", "workers", Position(5))
    states = [(await place(store, i)).state for i in (done, dead, late, waiting)]
    assert states == ["done", "dead", "skipped", "skipped"]
    assert (await place(store, new)).state in {"cold", "warm"}
    await store.redrive("orders")
    assert (await place(store, dead)).state in {"cold", "warm"}
    await store.seek("orders", "workers", "earliest")
    assert (await place(store, done)).state in {"cold", "warm"}
