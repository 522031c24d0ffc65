"""Queues and groups that another server made, changed or deleted are here what they are there."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from forebay.log.values import Queue
from forebay.model import Unavailable, UnknownGroup, UnknownQueue
from tests.conformance.store.test_other_processes import LONG, Pair, pair

__all__ = ["pair"]


async def data(pair: Pair, **options: Any) -> list[bytes]:
    return [task.data for task in await pair.here.get_task("orders", 10, **options)]


async def known_here(pair: Pair) -> Queue:
    """A queue that both know, with a window for its group here."""
    queue = await pair.there.create_queue("orders", {"visibility_seconds": 5.0})
    assert await data(pair) == []
    return queue


async def test_what_was_just_made_there_is_used_here(pair: Pair) -> None:
    with pytest.raises(UnknownQueue):
        await pair.here.get_task("orders")
    await pair.there.create_queue("orders")
    await pair.here.put_task("orders", b"a")
    assert await data(pair) == [b"a"]
    with pytest.raises(UnknownGroup):
        await pair.here.get_task("orders", group="g")
    await pair.there.create_group("orders", "g")
    assert await data(pair, group="g") == [b"a"]


async def test_what_was_deleted_and_made_anew_there_goes_on_here(pair: Pair) -> None:
    await known_here(pair)
    await pair.there.delete_queue("orders")
    await pair.there.create_queue("orders", {"ordered": True})
    await pair.here.put_task("orders", b"a", partition="p")
    assert await data(pair) == [b"a"]
    pair.rig.clock.advance(seconds=1)
    assert (await pair.here.known_queue("orders")).settings.ordered


async def test_a_group_that_was_deleted_and_made_anew_there_goes_on_here(pair: Pair) -> None:
    await known_here(pair)
    await pair.there.delete_group("orders", "workers")
    await pair.there.create_group("orders", "workers")
    await pair.there.put_task("orders", b"a")
    assert [message.data for message in await pair.here.peek("orders")] == [b"a"]
    await pair.there.delete_group("orders", "workers")
    await pair.there.create_group("orders", "workers")
    assert (await pair.here.seek("orders", "workers", "earliest")).skipped == {"workers": 0}
    assert await data(pair) == [b"a"]


async def test_what_is_gone_there_is_gone_here(pair: Pair) -> None:
    await known_here(pair)
    await pair.there.delete_queue("orders")
    with pytest.raises(UnknownQueue):
        await pair.here.put_task("orders", b"a")
    with pytest.raises(UnknownQueue):
        await pair.here.get_task("orders")
    with pytest.raises(UnknownQueue):
        await pair.here.queue("orders")


async def test_settings_that_were_changed_there_hold_here_a_moment_later(pair: Pair) -> None:
    await known_here(pair)
    await pair.there.configure_queue("orders", {"visibility_seconds": 60.0})
    pair.rig.clock.advance(seconds=1)
    await pair.here.put_task("orders", b"a")
    (task,) = await pair.here.get_task("orders")
    assert task.deadline - pair.rig.clock.now() > 30_000_000


async def test_a_flood_of_requests_for_one_queue_that_is_not_there_is_few_readings(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    readings, queue = 0, pair.here.log.queue

    async def counted(name: str) -> Queue:
        nonlocal readings
        readings += 1
        return await queue(name)

    monkeypatch.setattr(pair.here.log, "queue", counted)
    denied = await asyncio.gather(*(pair.here.get_task("orders") for _ in range(500)), return_exceptions=True)
    assert {type(error) for error in denied} == {UnknownQueue}
    assert readings <= 6


async def test_nobody_is_denied_by_a_reading_that_began_before_he_asked(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue, begun, go_on = pair.here.log.queue, asyncio.Event(), asyncio.Event()

    async def slow(name: str) -> Queue:
        if begun.is_set():
            return await queue(name)
        begun.set()
        try:
            return await queue(name)
        finally:
            await go_on.wait()

    monkeypatch.setattr(pair.here.log, "queue", slow)
    early = asyncio.create_task(pair.here.queue("orders"))
    async with asyncio.timeout(LONG):
        await begun.wait()
    await pair.there.create_queue("orders")
    late = asyncio.create_task(pair.here.queue("orders"))
    go_on.set()
    assert (await late).name == "orders"
    await asyncio.gather(early, return_exceptions=True)


async def test_what_is_known_of_a_queue_holds_while_the_log_is_away(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = await known_here(pair)

    async def away(name: str) -> Queue:
        raise Unavailable(name)

    monkeypatch.setattr(pair.here.log, "queue", away)
    pair.rig.clock.advance(seconds=1)
    assert await pair.here.known_queue("orders") == made
    with pytest.raises(Unavailable):
        await pair.here.known_queue("others")
