"""How many messages are where, in Queen's words, whatever groups a queue has."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any, cast

import pytest

from forebay.api.queen.census import Census, Counts, added, counts_of, leading
from forebay.api.queen.desk import Desk
from forebay.log.values import Group, GroupStats, Queue, QueueSettings, QueueStats, Stats
from forebay.model import Unavailable


def group(name: str = "workers", **numbers: int) -> GroupStats:
    """A group of which everything that isn't said is 0; what was accepted is the sum."""
    parts = dict.fromkeys(("ready", "held", "deferred", "done", "dead", "purged", "expired", "corrupt"), 0)
    parts |= {key: value for key, value in numbers.items() if key in parts}
    rest = {"handed": numbers.get("handed", 0), "due": 0}
    return GroupStats(group=Group(1, 1, name, 1), accepted=sum(parts.values()), **parts, **rest)


def queue(
    *groups: GroupStats, pushed: int = 10, ordered: bool = True, number: int = 1, created_at: int = 0
) -> QueueStats:
    settings = QueueSettings(ordered=ordered)
    made = Queue(number, "q", settings, created_at)
    return QueueStats(queue=made, next=pushed + 1, floor=1, groups=groups)


def test_one_group_is_counted_as_it_is() -> None:
    found = queue(group(ready=3, held=4, handed=2, deferred=1, done=1, dead=1))
    assert counts_of(found) == Counts(total=10, pending=6, processing=2, completed=1, dead_letter=1)


def test_the_group_without_a_name_doesnt_count_where_others_work_and_it_never_did() -> None:
    idle = group(ready=10)
    assert counts_of(queue(idle, group("a", done=10))) == Counts(total=10, completed=10)
    assert counts_of(queue(idle)) == Counts(total=10, pending=10)


def test_with_several_groups_a_message_counts_once() -> None:
    found = queue(
        group("a", ready=2, held=3, handed=3, done=4, dead=1),
        group("b", ready=7, held=1, handed=1, done=2),
        group(ready=1, done=8, dead=1),
    )
    assert counts_of(found) == Counts(total=10, pending=7, processing=3, completed=2, dead_letter=2)


def test_partitions_are_shown_by_the_group_without_a_name_or_the_one_that_is_furthest_behind() -> None:
    slow, fast, idle = group("slow", ready=9, done=1), group("fast", done=10), group(ready=10)
    assert leading(queue(idle, fast, slow)) is slow
    used = group(ready=1, done=9)
    assert leading(queue(used, fast, slow)) is used


def test_queues_are_added_up() -> None:
    one = queue(group(ready=4, done=6))
    assert added([one, one]) == Counts(total=20, pending=8, completed=12)
    assert added([]) == Counts()


class Books:
    """A desk that has nothing but books, which are given out when it is said so."""

    def __init__(self) -> None:
        self.read = 0
        self.open = asyncio.Event()
        self.open.set()
        self.error: Exception | None = None

    @property
    def store(self) -> Books:
        return self

    async def ledger(self) -> Stats:
        self.read += 1
        await self.open.wait()
        if self.error is not None:
            raise self.error
        return Stats(self.read, [])


def census(books: Books) -> Census:
    return Census(cast("Desk", books))


async def test_those_who_ask_together_share_one_reading() -> None:
    books = Books()
    books.open.clear()
    found = census(books)
    asked = [asyncio.create_task(found.stats()) for _ in range(5)]
    await asyncio.sleep(0)
    books.open.set()
    assert {one.at for one in await asyncio.gather(*asked)} == {1}
    assert (await found.stats()).at == 1
    assert books.read == 1


async def test_books_that_are_old_are_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    books, now = Books(), [100.0]
    monkeypatch.setattr("forebay.api.queen.census.monotonic", lambda: now[0])
    found = census(books)
    await found.stats()
    now[0] += 0.49
    assert (await found.stats()).at == 1
    now[0] += 0.02
    assert (await found.stats()).at == 2
    assert (await found.stats(fresh=True)).at == 3


async def test_one_who_leaves_takes_the_reading_from_nobody() -> None:
    books = Books()
    books.open.clear()
    found = census(books)
    leaves, stays = (asyncio.create_task(found.stats()) for _ in range(2))
    await asyncio.sleep(0)
    leaves.cancel()
    await asyncio.sleep(0)
    books.open.set()
    assert (await stays).at == 1


async def test_a_log_that_is_away_is_asked_again_by_the_next() -> None:
    books = Books()
    books.error = Unavailable("away")
    found = census(books)
    with pytest.raises(Unavailable):
        await found.stats()
    books.error = None
    assert (await found.stats()).at == 2


class Partitions(Books):
    """A desk whose directory knows partitions: as many as a queue's number says."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[int] = []
        """Queues that were counted; 0 for all of them."""

    @property
    def directory(self) -> Partitions:
        return self

    async def names(self, queue: int) -> Any:
        self.asked.append(queue)
        for number in range(queue):
            yield str(number)

    async def counts(self) -> Counter[int]:
        self.asked.append(0)
        return Counter({number: number for number in range(100)})


async def test_partitions_are_those_that_were_used_and_at_least_one() -> None:
    found = census(Partitions())
    assert await found.partitions(queue(group(), number=3)) == [3]
    assert await found.partitions(queue(group(), number=5, ordered=False)) == [1]
    assert await found.partitions(queue(group(), number=0)) == [1]
    assert await found.partitions() == []


async def test_many_queues_are_counted_in_one_go_and_few_by_themselves() -> None:
    desk = Partitions()
    found = census(desk)
    many = [queue(group(), number=number) for number in (1, 2, 3)]
    assert await found.partitions(*many) == [1, 2, 3]
    assert await found.partitions(*many, queue(group(), number=4)) == [1, 2, 3, 4]
    assert desk.asked == [0, 4]


async def test_partitions_are_counted_again_only_when_something_was_pushed_and_some_time_is_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [100.0]
    monkeypatch.setattr("forebay.api.queen.census.monotonic", lambda: now[0])
    desk = Partitions()
    found = census(desk)
    for pushed, seconds, counted in [(10, 0, 1), (10, 100, 1), (11, 0, 2), (12, 5, 2), (12, 6, 3)]:
        now[0] += seconds
        await found.partitions(queue(group(), pushed=pushed))
        assert len(desk.asked) == counted, (pushed, seconds)


async def test_a_queue_that_was_made_again_has_partitions_of_its_own() -> None:
    desk = Partitions()
    found = census(desk)
    await found.partitions(queue(group()))
    await found.partitions(queue(group(), created_at=5))
    assert len(desk.asked) == 2
