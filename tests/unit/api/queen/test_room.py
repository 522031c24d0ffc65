"""How many messages a queue may hold, while others push and while it is counted."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from forebay.api.queen.room import Room
from forebay.log.values import Queue, QueueSettings
from forebay.model import Full

QUEUE = Queue(1, "q", QueueSettings(), 0)


class Books:
    """A ledger that says what is in the queue, as soon as it may."""

    def __init__(self) -> None:
        self.waiting = 0
        self.asked = 0
        self.is_asked, self.may_answer = asyncio.Event(), asyncio.Event()

    async def __call__(self, queue: str) -> Any:
        assert queue == QUEUE.name
        self.asked += 1
        self.is_asked.set()
        waiting = self.waiting
        await self.may_answer.wait()
        group = type("Group", (), {"unclaimed": waiting, "held": 0, "deferred": 0})
        found = type("Found", (), {"queue": QUEUE, "groups": [group]})
        return type("Stats", (), {"queues": [found]})


async def push(room: Room, books: Books, count: int = 1) -> bool:
    try:
        async with room.take(QUEUE, 10, count):
            await asyncio.sleep(0)
            books.waiting += count
    except Full:
        return False
    return True


async def test_many_who_push_at_once_count_once_and_leave_room_for_each_other() -> None:
    books = Books()
    room = Room(cast("Any", books))
    pushing = [asyncio.create_task(push(room, books)) for _ in range(50)]
    await books.is_asked.wait()
    books.may_answer.set()
    assert sum(await asyncio.gather(*pushing)) == books.waiting == 10
    assert books.asked <= 2


async def test_what_was_pushed_counts_while_others_count() -> None:
    books = Books()
    room = Room(cast("Any", books))
    books.may_answer.set()
    assert await push(room, books, 9)
    books.may_answer.clear()
    books.is_asked.clear()
    too_many = asyncio.create_task(push(room, books, 2))
    await books.is_asked.wait()
    assert await push(room, books)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(push(room, books), 0.01)
    books.may_answer.set()
    assert not await too_many
    assert books.waiting == 10
