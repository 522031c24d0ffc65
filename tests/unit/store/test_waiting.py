"""Takers in line: who is woken, who looks, and that no wake-up and no task is lost."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Self, cast

import pytest

from forebay.log.memory import MemoryLog
from forebay.model import Unavailable, cancel
from forebay.store.store import LogStore
from forebay.store.values import Task
from forebay.store.waiting import Line, Source, in_turn, take
from forebay.warm.memory import MemoryWarm
from tests.conformance.store.rigs import all_waiting

LONG = 60.0


class Stock:
    """A source of numbers instead of tasks, which counts how often it is looked at."""

    def __init__(self, *ready: int) -> None:
        self.line = Line()
        self.turn = 0
        self.is_closed = False
        self.is_paused = False
        self.ready = list(ready)
        self.later: list[int] = []
        self.returned: list[int] = []
        self.kept: list[int] = []
        self.over: list[int] = []
        self.grabs = 0
        self.asks = 0
        self.hold: asyncio.Event | None = None
        self.error: Exception | None = None

    async def grab(self, count: int, worker: str, seconds: float) -> list[Task]:  # noqa: ARG002
        self.grabs += 1
        if self.hold is not None:
            await self.hold.wait()
        if self.error is not None:
            error, self.error = self.error, None
            raise error
        taken, self.ready = self.ready[:count], self.ready[count:]
        return cast("list[Task]", taken)

    async def ask(self) -> None:
        self.asks += 1

    async def bring(self) -> bool:
        brought, self.later = self.later, []
        self.ready.extend(brought)
        return bool(brought)

    def keep(self, tasks: Sequence[Task], seconds: float) -> AbstractContextManager[None]:  # noqa: ARG002
        self.kept.extend(cast("Sequence[int]", tasks))
        return nullcontext()

    async def confirm(self, tasks: list[Task], seconds: float, age: float) -> list[Task]:  # noqa: ARG002
        return [task for task in tasks if cast("int", task) not in self.over]

    def give_back(self, tasks: Sequence[Task]) -> None:
        self.returned.extend(cast("Sequence[int]", tasks))

    def put(self, *numbers: int) -> None:
        self.ready.extend(numbers)
        self.line.wake(len(numbers))


def start(*stocks: Stock, count: int = 1, wait: float = LONG) -> asyncio.Task[list[Any]]:
    sources: list[tuple[Source, float]] = [(stock, 1.0) for stock in stocks]
    taking: Coroutine[Any, Any, list[Any]] = take(sources, count, "w", wait)
    return asyncio.get_running_loop().create_task(taking)


async def settled() -> None:
    """Let everything run that can."""
    for _ in range(30):
        await asyncio.sleep(0)


async def waiting(stock: Stock, count: int) -> list[asyncio.Task[list[Any]]]:
    takers = [start(stock) for _ in range(count)]
    await settled()
    assert len(stock.line) == count
    stock.grabs = stock.asks = 0
    return takers


async def test_one_message_wakes_one_of_thousands_the_one_that_came_first() -> None:
    stock = Stock()
    takers = await waiting(stock, 2_000)
    for number in range(3):
        stock.put(number)
        await settled()
        assert [taker.done() for taker in takers[:4]] == [i <= number for i in range(4)]
    assert stock.grabs == 3
    assert stock.asks == 0
    await cancel(*takers)
    assert len(stock.line) == 0
    assert stock.grabs == 3, "who is cancelled while waiting wakes nobody"


async def test_who_times_out_leaves_the_line_and_looks_no_more() -> None:
    stock = Stock()
    takers = [start(stock, wait=0.01) for _ in range(100)]
    assert await asyncio.gather(*takers) == [[]] * 100
    assert len(stock.line) == 0
    assert stock.grabs == 200, "before the log was asked, and after"


@pytest.mark.parametrize("ready", [0, 1, 5, 40])
async def test_a_wake_up_for_an_unknown_number_reaches_as_many_as_find_something(ready: int) -> None:
    stock = Stock()
    takers = await waiting(stock, 1_000)
    stock.ready = list(range(ready))
    stock.line.wake_next()
    await settled()
    assert [taker.done() for taker in takers] == [True] * ready + [False] * (1_000 - ready)
    assert ready < stock.grabs <= 2 * ready + 1
    assert len(stock.line) == 1_000 - ready
    await cancel(*takers)


async def test_who_was_woken_for_nothing_keeps_its_place() -> None:
    stock = Stock()
    takers = await waiting(stock, 3)
    stock.line.wake(1)
    await settled()
    stock.put(7)
    await settled()
    assert [taker.done() for taker in takers] == [True, False, False]
    await cancel(*takers)


async def test_those_who_were_woken_for_nothing_keep_their_order() -> None:
    stock = Stock()
    takers = await waiting(stock, 4)
    stock.line.wake(3)
    await settled()
    for number in range(4):
        stock.put(number)
    await settled()
    assert [taker.result() for taker in takers] == [[0], [1], [2], [3]]


async def test_a_wake_up_of_somebody_who_is_gone_goes_to_the_next() -> None:
    stock = Stock()
    takers = await waiting(stock, 3)
    stock.put(7)  # the first is woken, and cancelled before it has looked
    takers[0].cancel()
    await settled()
    assert takers[0].cancelled()
    assert takers[1].result() == [7]
    await cancel(*takers)


async def test_a_wake_up_of_somebody_who_fails_goes_to_the_next() -> None:
    stock = Stock()
    takers = await waiting(stock, 2)
    stock.error = Unavailable("away")
    stock.put(7)
    with pytest.raises(Unavailable):
        await takers[0]
    await settled()
    assert takers[1].result() == [7]


async def test_two_sources_spend_no_two_wake_ups_on_one_taker() -> None:
    one, two = Stock(), Stock()
    first = start(one, two)
    await settled()
    second = start(two)
    await settled()
    one.put(1)
    two.put(2)  # before the first has looked
    await settled()
    assert first.result() == [1]
    assert second.result() == [2]


async def test_who_is_woken_looks_where_it_was_woken_first() -> None:
    one, two = Stock(), Stock()
    taker = start(one, two)
    await settled()
    two.put(2)
    one.ready = [1]
    one.line.news += 1  # somebody else is woken for it
    assert await taker == [2]


async def test_what_is_ready_in_several_sources_comes_together() -> None:
    one, two = Stock(1, 2), Stock(3, 4)
    assert await start(one, two, count=3) == [1, 2, 3]
    assert two.ready == [4]
    one.later = [5]
    assert await start(one, two, count=3) == [4, 5], "with what the log has beside"


async def test_what_was_taken_is_returned_when_the_next_source_fails() -> None:
    one, two = Stock(1), Stock()
    two.error = Unavailable("away")
    assert await start(one, two, count=2) == [1]
    two.error = Unavailable("away")
    with pytest.raises(Unavailable):
        await start(two, one)


async def test_what_was_taken_goes_back_when_the_taker_is_cancelled() -> None:
    one, two = Stock(1), Stock()
    two.hold = asyncio.Event()
    taker = start(one, two, count=2)
    await settled()
    await cancel(taker)
    assert one.returned == [1]


async def test_a_source_that_closes_ends_the_wait_once_it_was_the_last() -> None:
    one, two = Stock(), Stock()
    taker = start(one, two)
    await settled()
    one.is_closed = True
    one.line.wake_all()
    await settled()
    assert not taker.done()
    two.put(2)
    assert await taker == [2]
    last = start(two)
    await settled()
    two.is_closed = True
    two.line.wake_all()
    assert await last == []


async def test_a_paused_source_is_asked_about_once_it_is_resumed() -> None:
    stock = Stock()
    stock.is_paused = True
    taker = start(stock)
    await settled()
    assert stock.asks == 0
    stock.is_paused = False
    stock.line.wake_next()
    await settled()
    assert stock.asks == 1
    await cancel(taker)


def test_sources_take_turns_in_whatever_company() -> None:
    one, two, three = Stock(), Stock(), Stock()
    firsts = [in_turn([one, two, three])[0] for _ in range(6)]
    assert firsts == [one, two, three, one, two, three]
    pairs = [(in_turn([one, two])[0], in_turn([two, three])[0]) for _ in range(6)]
    assert {one, two} >= {pair[0] for pair in pairs}
    assert {two, three} == {pair[1] for pair in pairs}


# With the real store


class Counted:
    """A log that counts its calls."""

    def __init__(self, log: MemoryLog) -> None:
        self._log = log
        self.calls: list[str] = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._log.__aexit__(None, None, None)

    def __getattr__(self, name: str) -> object:
        self.calls.append(name)
        return getattr(self._log, name)


async def test_waiting_takers_ask_nothing_and_share_what_they_ask_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    takes = 0
    original = MemoryWarm.take

    async def counted(self: MemoryWarm, *args: object, **kwargs: object) -> object:
        nonlocal takes
        takes += 1
        return await original(self, *args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(MemoryWarm, "take", counted)
    monkeypatch.setattr(
        "forebay.store.lookups.RECENT_SECONDS", LONG
    )  # they begin at once, on a slow machine too
    log = Counted(MemoryLog())
    async with LogStore(log) as store:  # type: ignore[arg-type]
        await store.create_queue("orders")
        await store.get_task("orders")
        log.calls.clear()
        takers = [
            asyncio.get_running_loop().create_task(store.get_task("orders", wait_seconds=LONG))
            for _ in range(1_000)
        ]
        await all_waiting(store, 1_000)
        assert log.calls.count("claim") <= 2, "one for the first, one for all that came meanwhile"
        log.calls.clear()
        takes = 0
        for _ in range(3):
            await store.tick()
        await settled()
        assert takes <= 3, "a tick lets one of them look"
        assert log.calls.count("claim") <= 3
        takes = 0
        await store.put_task("orders", b"x")
        done, _ = await asyncio.wait(takers, return_when=asyncio.FIRST_COMPLETED)
        assert done == {takers[0]}
        await settled()
        assert takes == 1
        await store.done_task(takers[0].result())
        await cancel(*takers)
