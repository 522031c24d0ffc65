"""What a queue costs while there are many others: the same, in statements and rows of SQLite."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from forebay.log.sqlite import SqliteLog
from forebay.log.sqlite.connection import Row, Transaction
from forebay.model import ManualClock, UnknownQueue
from forebay.store.store import LogStore

FEW: Final = 20
MANY: Final = 100
BEGIN: Final = 1_800_000_000_000_000


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(BEGIN)


@pytest.fixture
async def store(
    tmp_path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[LogStore]:
    monkeypatch.setattr("forebay.store.rounds.TICK_SECONDS", 1e6)  # rounds are done when they are counted
    async with LogStore(SqliteLog(tmp_path / "log.db", clock=clock), clock=clock) as store:
        yield store


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Statements that were run, and rows that they gave, by what they did."""
    counts: Counter[str] = Counter()
    rows, row, run, many = Transaction.rows, Transaction.row, Transaction.run, Transaction.many

    def count_rows(self: Transaction, name: str, *values: Any) -> Iterator[Row]:
        counts["reads"] += 1
        for one in rows(self, name, *values):
            counts["rows"] += 1
            yield one

    def count_row(self: Transaction, name: str, *values: Any) -> Row | None:
        counts["reads"] += 1
        return row(self, name, *values)

    def count_run(self: Transaction, name: str, *values: Any) -> int:
        counts["writes"] += 1
        return run(self, name, *values)

    def count_many(self: Transaction, name: str, values: Iterable[Row]) -> None:
        listed = list(values)
        counts["writes"] += len(listed)
        many(self, name, listed)

    monkeypatch.setattr(Transaction, "rows", count_rows)
    monkeypatch.setattr(Transaction, "row", count_row)
    monkeypatch.setattr(Transaction, "run", count_run)
    monkeypatch.setattr(Transaction, "many", count_many)
    return counts


async def make(store: LogStore, first: int, last: int) -> None:
    for number in range(first, last):
        await store.create_queue(f"tenant-{number:04}")


async def quiet(store: LogStore) -> None:
    """Return when nothing is brought ahead any more."""
    while filling := [w._filling for w in store._windows.values() if w._filling is not None]:
        await asyncio.wait(filling)
        await asyncio.sleep(0)


async def cost(store: LogStore, asked: Counter[str], work: Callable[[], Awaitable[object]]) -> dict[str, int]:
    await quiet(store)
    before = asked.copy()
    await work()
    await quiet(store)
    return {name: asked[name] - before[name] for name in ("reads", "rows", "writes")}


async def test_what_is_done_to_a_queue_costs_the_same_among_few_and_among_many(
    store: LogStore, asked: Counter[str]
) -> None:
    names = iter(f"new-{number}" for number in range(100))
    await make(store, 0, FEW)
    await store.create_queue("orders")

    async def work() -> None:
        await store.put_task("orders", b"a")
        await store.done_task(await store.get_task("orders"))

    async def round_() -> None:
        await store._rounds._keep_up()
        await store._rounds._beat()
        await store.tick()

    async def miss() -> None:
        with pytest.raises(UnknownQueue):
            await store.queue("tenants-0010")

    async def measure() -> dict[str, dict[str, int]]:
        await work()
        await round_()  # what was made a moment ago is in use
        await round_()
        found = {
            "create": await cost(store, asked, lambda: store.create_queue(next(names))),
            "work": await cost(store, asked, work),
            "books of one": await cost(store, asked, lambda: store.ledger(queue="orders")),
            "a page of queues": await cost(store, asked, lambda: store.queues(limit=10)),
            "a page of books": await cost(store, asked, lambda: store.ledger(limit=10)),
        }
        await round_()
        await work()
        return found | {"round": await cost(store, asked, round_)}

    few = await measure()
    few_miss = await cost(store, asked, miss)
    await make(store, FEW, MANY)
    assert await measure() == few
    assert (await cost(store, asked, miss))["rows"] <= 2 * 32 >= few_miss["rows"]
    assert few["round"]["rows"] < FEW


async def test_queues_of_which_nothing_is_old_cost_no_write_when_the_old_is_dropped(
    store: LogStore, clock: ManualClock, asked: Counter[str]
) -> None:
    await make(store, 0, FEW)
    for number in range(FEW):
        await store.put_task(f"tenant-{number:04}", b"a")
    await store.trim()
    idle = await cost(store, asked, store.trim)
    await make(store, FEW, 2 * FEW)
    for number in range(FEW, 2 * FEW):
        await store.put_task(f"tenant-{number:04}", b"a")
    assert (await cost(store, asked, store.trim))["writes"] == idle["writes"]
    clock.advance(seconds=40 * 86_400)
    for number in range(2 * FEW):
        await store.done_task(await store.get_task(f"tenant-{number:04}"))
    assert (await store.trim()).blocks == 2 * FEW


async def test_what_another_server_changes_is_noticed_where_nobody_works(
    store: LogStore, clock: ManualClock, tmp_path: Path
) -> None:
    await store.create_queue("orders")
    await store.create_queue("gone")
    async with LogStore(SqliteLog(tmp_path / "log.db", clock=clock), clock=clock) as other:
        await other.configure_queue("orders", {"retries_max": 7})
        await other.delete_queue("gone")
    clock.advance(seconds=1)
    assert (await store.known_queue("orders")).settings.retries_max == 7
    with pytest.raises(UnknownQueue):
        await store.known_queue("gone")
