"""What people do with single messages: whatever state one is in, it is given up, or comes; the rest stays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from forebay.model import LeaseLost, Message, Rejected, Unavailable
from forebay.store.store import LogStore
from forebay.store.values import Task
from tests.conformance.store.rigs import StoreRig

HOUR = 3600.0
ORDER = pytest.mark.parametrize("ordered", [False, True], ids=["unordered", "ordered"])


async def pushed(store: LogStore, *texts: str, ordered: bool = True, delay: float | None = None) -> list[int]:
    """The ids of messages of one partition, each in a block of its own."""
    await store.create_queue("q", {"ordered": ordered})
    ids: list[int] = []
    for text in texts:
        ids += await store.put_task("q", text.encode(), partition="p", delay=delay)
    return ids


async def block_of(store: LogStore, *texts: str, ordered: bool = True) -> list[int]:
    """The ids of messages of one partition that are in one block."""
    await store.create_queue("q", {"ordered": ordered})
    return await store.put_task("q", *(Message(text.encode(), "p") for text in texts))


async def opened(rig: StoreRig) -> LogStore:
    """Another server."""
    store = await rig.open()
    assert isinstance(store, LogStore)
    return store


async def drained(store: LogStore) -> list[str]:
    """All that is handed out now, done."""
    found: list[str] = []
    while tasks := await store.get_task("q", 100):
        found += texts(tasks)
        await store.done_task(tasks)
    return found


def texts(tasks: Sequence[Task]) -> list[str]:
    return [task.data.decode() for task in tasks]


async def letters(store: LogStore) -> list[tuple[int, str]]:
    return [(letter.message_id, letter.reason) for letter in await store.dead_letters("q")]


@ORDER
async def test_a_message_that_nobody_has_claimed_is_given_up(
    embedded_rig: StoreRig, *, ordered: bool
) -> None:
    store = embedded_rig.embedded
    ids = await pushed(store, *"abcde", ordered=ordered)
    assert await store.bury_message(ids[2], "moved by hand")
    assert await drained(store) == ["a", "b", "d", "e"]
    assert await letters(store) == [(ids[2], "moved by hand")]


@ORDER
@pytest.mark.parametrize("make", [pushed, block_of], ids=["blocks", "block"])
async def test_a_message_on_the_shelf_is_given_up(
    embedded_rig: StoreRig, make: Any, *, ordered: bool
) -> None:
    store = embedded_rig.embedded
    ids = await make(store, *"abcd", ordered=ordered)
    (task,) = await store.get_task("q", 1)
    await store.done_task([task])
    assert await store.bury_message(ids[2], "bad")
    assert await drained(store) == ["b", "d"]
    assert await letters(store) == [(ids[2], "bad")]


@ORDER
async def test_one_that_is_out_is_given_up_and_the_others_stay_out(
    embedded_rig: StoreRig, *, ordered: bool
) -> None:
    store = embedded_rig.embedded
    ids = await block_of(store, *"abc", ordered=ordered)
    tasks = await store.get_task("q", 3)
    assert await store.bury_message(ids[1], "bad")
    with pytest.raises(LeaseLost) as lost:
        await store.done_task(tasks)
    assert list(lost.value.ids) == [ids[1]]
    assert await drained(store) == []
    assert await letters(store) == [(ids[1], "bad")]


@ORDER
async def test_one_that_another_server_has_out_is_given_up(embedded_rig: StoreRig, *, ordered: bool) -> None:
    store = embedded_rig.embedded
    ids = await block_of(store, *"abc", ordered=ordered)
    other = await embedded_rig.open()
    tasks = await other.get_task("q", 3)
    assert await store.bury_message(ids[1], "bad")
    with pytest.raises(LeaseLost) as lost:
        await other.done_task(tasks)
    assert list(lost.value.ids) == [ids[1]]
    assert await letters(store) == [(ids[1], "bad")]


@ORDER
@pytest.mark.parametrize("make", [pushed, block_of], ids=["blocks", "block"])
async def test_one_on_the_shelf_of_another_server_is_not_handed_out(
    embedded_rig: StoreRig, make: Any, *, ordered: bool
) -> None:
    store = embedded_rig.embedded
    ids = await make(store, *"abcd", ordered=ordered)
    other = await opened(embedded_rig)
    (task,) = await other.get_task("q", 1)
    await other.done_task([task])
    assert await store.bury_message(ids[2], "bad")
    found = await drained(other)
    await other._rounds._beat()  # it asks the log time and again what else there is
    assert found + await drained(other) == ["b", "d"]


@ORDER
async def test_one_that_is_delayed_is_given_up_and_what_waits_with_it_keeps_its_time(
    embedded_rig: StoreRig, *, ordered: bool
) -> None:
    store = embedded_rig.embedded
    ids = await block_of(store, *"abc", ordered=ordered)
    await store.retry_task(await store.get_task("q", 3), delay=HOUR)
    assert await store.bury_message(ids[1], "bad")
    assert await drained(store) == []
    embedded_rig.clock.advance(seconds=HOUR)
    await store.tick()
    tasks = await store.get_task("q", 100)
    assert texts(tasks) == ["a", "c"]
    assert {task.attempts for task in tasks} == {1}
    await store.done_task(tasks)


async def test_one_behind_others_that_are_out_is_given_up(embedded_rig: StoreRig) -> None:
    store = embedded_rig.embedded
    ids = await pushed(store, *"abc")
    await store.configure_queue("q", {"in_memory_queue_size": 1})
    (task,) = await store.get_task("q", 1)
    assert await store.bury_message(ids[2], "bad")
    try:
        await store.done_task([task])
        left = ["b"]
    except LeaseLost:  # its lease ended along
        left = ["a", "b"]
    embedded_rig.clock.advance(seconds=HOUR)
    await store.tick()
    assert await drained(store) == left
    assert await letters(store) == [(ids[2], "bad")]


async def test_what_comes_back_along_counts_no_attempt(embedded_rig: StoreRig) -> None:
    store = embedded_rig.embedded
    ids = await block_of(store, *"abc")
    await store.configure_queue("q", {"retries_max": 0})
    out = await store.get_task("q", 2)
    assert await store.bury_message(ids[2], "bad")
    with pytest.raises(LeaseLost):
        await store.done_task(out)
    again = await store.get_task("q", 3) or await store.get_task("q", 3)
    assert [(task.data, task.attempts) for task in again] == [(b"a", 0), (b"b", 0)]
    await store.done_task(again)


async def test_what_is_delayed_before_one_that_is_given_up_keeps_its_time(embedded_rig: StoreRig) -> None:
    store = embedded_rig.embedded
    await pushed(store, *"ab")
    await store.retry_task(await store.get_task("q", 2), delay=HOUR)
    ids = await store.put_task("q", b"c", partition="p")
    assert await store.bury_message(ids[0], "bad")
    assert await drained(store) == []
    embedded_rig.clock.advance(seconds=HOUR)
    await store.tick()
    assert await drained(store) == ["a", "b"]


async def test_what_is_finished_is_left_alone(embedded_rig: StoreRig) -> None:
    store = embedded_rig.embedded
    ids = await pushed(store, *"ab")
    done, dead = await store.get_task("q", 1), []
    await store.done_task(done)
    dead = await store.get_task("q", 1)
    await store.bury(dead, "first")
    assert not await store.bury_message(ids[0], "again")
    assert not await store.bury_message(ids[1], "again")
    assert await letters(store) == [(ids[1], "first")]


async def test_what_was_given_up_comes_back_when_it_is_redriven(embedded_rig: StoreRig) -> None:
    store = embedded_rig.embedded
    ids = await pushed(store, *"abc")
    await store.bury_message(ids[1], "bad")
    assert list((await store.redrive("q")).ids) == [ids[1]]
    assert await drained(store) == ["a", "b", "c"]


async def test_a_call_that_fails_half_way_leaves_everything_to_others(
    embedded_rig: StoreRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = embedded_rig.embedded
    ids = await pushed(store, *"abc")

    async def away(*_: object, **__: object) -> None:
        raise Unavailable("gone")

    with monkeypatch.context() as broken:
        broken.setattr(embedded_rig.log_rig.log, "commit", away)
        with pytest.raises(Unavailable):
            await store.bury_message(ids[1], "bad")
    await store.tick()
    assert await drained(store) == ["a", "b", "c"]


async def test_what_a_call_could_not_give_back_is_given_back_by_others(
    embedded_rig: StoreRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = embedded_rig.embedded
    ids = await pushed(store, *"abc")

    async def away(*_: object, **__: object) -> None:
        raise Unavailable("gone")

    with monkeypatch.context() as broken:
        broken.setattr(embedded_rig.log_rig.log, "commit", away)
        broken.setattr(embedded_rig.log_rig.log, "retire", away)
        with pytest.raises(Unavailable):
            await store.bury_message(ids[1], "bad")
    assert await drained(store) == []
    embedded_rig.clock.advance(seconds=60)
    store._rounds._away_at -= 60
    await embedded_rig.log_rig.log.heartbeat("somebody")
    await store._rounds.retire_gone()
    await store._rounds._beat()
    assert await drained(store) == ["a", "b", "c"]


@ORDER
async def test_a_message_that_was_to_come_later_comes_now(embedded_rig: StoreRig, *, ordered: bool) -> None:
    store = embedded_rig.embedded
    ids = await pushed(store, *"abc", ordered=ordered, delay=HOUR)
    assert await drained(store) == []
    assert await store.hasten(ids[1])
    assert await drained(store) == (["a", "b"] if ordered else ["b"])
    assert await letters(store) == []
    embedded_rig.clock.advance(seconds=HOUR)
    await store.tick()
    assert await drained(store) == (["c"] if ordered else ["a", "c"])


async def test_one_that_nobody_has_looked_at_comes_now(embedded_rig: StoreRig) -> None:
    store = embedded_rig.embedded
    ids = await pushed(store, *"ab", delay=HOUR)
    assert await store.hasten(ids[0])
    assert await drained(store) == ["a"]


@ORDER
async def test_one_that_failed_comes_now_with_its_attempts(embedded_rig: StoreRig, *, ordered: bool) -> None:
    store = embedded_rig.embedded
    ids = await block_of(store, *"abc", ordered=ordered)
    await store.retry_task(await store.get_task("q", 3), delay=HOUR)
    assert await store.hasten(ids[1])
    tasks = await store.get_task("q", 100)
    assert texts(tasks) == (["a", "b"] if ordered else ["b"])
    assert {task.attempts for task in tasks} == {1}
    await store.done_task(tasks)
    assert await drained(store) == []


async def test_what_is_out_or_done_is_not_brought_forward(embedded_rig: StoreRig) -> None:
    store = embedded_rig.embedded
    ids = await pushed(store, *"ab")
    (task,) = await store.get_task("q", 1)
    assert not await store.hasten(ids[0])
    await store.done_task([task])
    assert not await store.hasten(ids[0])
    assert await drained(store) == ["b"]


async def test_a_partition_is_skipped_and_the_others_are_not(embedded_rig: StoreRig) -> None:
    store = embedded_rig.embedded
    await pushed(store, *"abcdef")
    await store.put_task("q", b"other", partition="o")
    assert await store.skip_partition("q", "p") == 6
    await store.put_task("q", b"g", partition="p")
    assert sorted(await drained(store)) == ["g", "other"]
    (stats,) = (await store.ledger()).queues[0].groups
    assert (stats.expired, stats.done, stats.difference) == (6, 2, 0)


async def test_leases_of_a_partition_that_is_skipped_are_lost(embedded_rig: StoreRig) -> None:
    store = embedded_rig.embedded
    await pushed(store, *"abcd")
    tasks = await store.get_task("q", 2)
    assert await store.skip_partition("q", "p") == 4
    with pytest.raises(LeaseLost):
        await store.done_task(tasks)
    assert await drained(store) == []


async def test_what_is_delayed_of_a_partition_is_skipped_too(embedded_rig: StoreRig) -> None:
    store = embedded_rig.embedded
    await pushed(store, *"abc")
    await store.retry_task(await store.get_task("q", 1), delay=HOUR)
    assert await store.skip_partition("q", "p") == 3
    embedded_rig.clock.advance(seconds=HOUR)
    await store.tick()
    assert await drained(store) == []


async def test_another_group_keeps_what_one_skips(embedded_rig: StoreRig) -> None:
    store = embedded_rig.embedded
    await pushed(store, *"ab")
    await store.create_group("q", "other")
    assert await store.skip_partition("q", "p", group="other") == 2
    assert await store.skip_partition("q", "nobody", group="other") == 0
    assert await drained(store) == ["a", "b"]


async def test_an_unordered_queue_has_no_partition_to_skip(embedded_rig: StoreRig) -> None:
    store = embedded_rig.embedded
    await pushed(store, "a", ordered=False)
    with pytest.raises(Rejected, match="no order of its own"):
        await store.skip_partition("q", "p")
