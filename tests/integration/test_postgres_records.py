"""Records, partitions and look-ups on PostgreSQL: several servers at once, and what they touch."""

import asyncio
import random
from collections.abc import AsyncIterator, Iterator

import pytest

from forebay.log.postgres import PostgresLog
from forebay.log.values import Append, Record, Room
from forebay.model import Block, Message, mint
from tests.conformance.steps import append_of, push, stored
from tests.integration.postgres_steps import connected, until_waiting
from tests.integration.test_postgres_plans import Watch, check
from tests.servers import PostgresServer, ServerUnavailableError, absent

PARTITIONS = 300
BLOCKS = 20
"""In each partition."""
HOLD_ALL = "SELECT FROM forebay.record ORDER BY space, key FOR UPDATE"


@pytest.fixture
async def logs(postgres_dsn: str) -> AsyncIterator[tuple[PostgresLog, PostgresLog]]:
    """Give two logs on one database."""
    async with PostgresLog(postgres_dsn) as one, PostgresLog(postgres_dsn) as two:
        yield one, two


@pytest.mark.parametrize("version", [None, 1])
async def test_a_commit_that_is_sent_again_while_the_first_is_under_way_is_one(
    logs: tuple[PostgresLog, PostgresLog], postgres_dsn: str, version: int | None
) -> None:
    queue = await logs[0].create_queue("orders")
    await logs[0].commit(records=[Record("s", "k", b"before")])
    commit_id, records = mint(), [Record("s", "k", b"after", version=version)]
    append = append_of(queue, "a")
    async with connected(postgres_dsn) as user, connected(postgres_dsn) as watcher:
        holding = user.transaction()
        await holding.start()
        await user.execute(HOLD_ALL)
        sent = [
            asyncio.create_task(log.commit([append], id=commit_id, records=records)) for log in (*logs, *logs)
        ]
        await until_waiting(watcher, 4)
        await holding.rollback()
        receipts = await asyncio.gather(*sent)
    assert len({receipt.appended[0].first for receipt in receipts}) == 1
    assert sorted(receipt.appended[0].known for receipt in receipts) == [False, True, True, True]
    assert [(kept.value, kept.version) for kept in await logs[1].records("s", ["k"])] == [(b"after", 2)]
    assert await stored(logs[0], queue) == ["a"]


async def test_a_record_that_is_removed_meanwhile_is_written_as_new(
    logs: tuple[PostgresLog, PostgresLog], postgres_dsn: str
) -> None:
    for _ in range(3):
        await logs[0].commit(records=[Record("s", "k", b"old")])
    async with connected(postgres_dsn) as user, connected(postgres_dsn) as watcher:
        async with user.transaction():
            await user.execute("DELETE FROM forebay.record WHERE key = 'k'")
            writing = [asyncio.create_task(log.commit(records=[Record("s", "k", b"new")])) for log in logs]
            await until_waiting(watcher, 2)
        await asyncio.gather(*writing)
    assert [(kept.value, kept.version) for kept in await logs[0].records("s", ["k"])] == [(b"new", 2)]


async def test_keys_in_any_order_from_everywhere_never_wait_for_each_other_in_a_circle(
    logs: tuple[PostgresLog, PostgresLog], postgres_dsn: str, rng: random.Random
) -> None:
    keys = [f"k{n}" for n in range(12)]

    async def write(log: PostgresLog) -> None:
        for _ in range(15):
            some = rng.sample(keys, rng.randint(1, 12))
            values = (None if rng.random() < 0.3 else b"x" for _ in some)
            await log.commit(records=[Record("s", key, v) for key, v in zip(some, values, strict=True)])
            if rng.random() < 0.2:
                await log.trim()

    async with asyncio.timeout(60), asyncio.TaskGroup() as tasks:
        for n in range(12):
            tasks.create_task(write(logs[n % 2]))
    async with connected(postgres_dsn) as user:
        asked = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"
        assert await user.fetchval(asked) == 0


async def test_partitions_are_counted_from_name_to_name(postgres_dsn: str) -> None:
    """The blocks of a partition are not walked over to find the next; those that are listed are."""
    async with PostgresLog(postgres_dsn, connections_max=1) as log:
        watch = Watch(log)
        queue = await log.create_queue("orders", {"ordered": True})
        group = await log.create_group(queue, "workers")
        names = [f"p{n:03}" for n in range(PARTITIONS)]
        for _ in range(BLOCKS):
            await log.commit([Append.of(queue, Block.of([Message(b"x", name)])) for name in names])
        await log.claim(group, "owner", Room(PARTITIONS))
        count = await check(watch, log.lane_count(queue), rows_max=4 * PARTITIONS)
        assert count == PARTITIONS
        page = await check(watch, log.lanes(group, after="p100", limit=5), rows_max=5 * (BLOCKS + 10))
        assert [(lane.partition, lane.messages) for lane in page] == [
            (f"p{n}", BLOCKS) for n in range(101, 106)
        ]
        assert sum(lane.waiting for lane in page) == 5 * BLOCKS
        spans = await check(watch, log.spans(queue, after="p100", limit=5), rows_max=5 * 10 + 10)
        assert [span.partition for span in spans.spans] == [f"p{n}" for n in range(101, 106)]
        blocks = await check(watch, log.read(queue, partition="p007"), rows_max=2 * BLOCKS + 10)
        assert len(blocks) == BLOCKS


async def test_look_ups_touch_only_what_they_bring(postgres_dsn: str) -> None:
    async with PostgresLog(postgres_dsn, connections_max=1) as log:
        watch = Watch(log)
        queue = await log.create_queue("orders")
        group = await log.create_group(queue, "workers")
        names = [f"t{n}" for n in range(2_000)]
        await log.commit([append_of(queue, name, transaction_ids=[name]) for name in names])
        await log.commit(records=[Record("s", name, b"x") for name in names])
        claims = (await log.claim(group, "owner", Room(2_000))).claims
        assert [c.first for c in await check(watch, log.holding(group, [claims[700].first]))] == [
            claims[700].first
        ]
        assert await check(watch, log.locate(queue, [("", "t9"), ("", "no")])) == [claims[9].first, None]
        assert [kept.key for kept in await check(watch, log.records("s", ["t7", "no"]))] == ["t7"]
        page = await check(watch, log.scan("s", "t19", after="t1998"))
        assert [kept.key for kept in page] == ["t1999"]
        await check(watch, log.commit(records=[Record("s", "t5", b"y", version=1), Record("s", "t6", None)]))


async def test_many_records_are_written_in_seconds(postgres_dsn: str) -> None:
    async with PostgresLog(postgres_dsn) as log, asyncio.timeout(20):
        for version in range(3):
            many = [Record("s", f"k{n}", b"x" * 100, version=version) for n in range(20_000)]
            await log.commit(records=many)
        await log.commit(records=[Record("s", f"k{n}", None, version=3) for n in range(20_000)])
        assert await log.scan("s") == []


@pytest.fixture
def english_dsn() -> Iterator[str]:
    """Give a database in which texts have the order of a language; not every build can have one."""
    try:
        server = PostgresServer("debian-15")
    except ServerUnavailableError as error:
        absent(str(error))
    with server:
        name = "english"
        server.run_sql(f"CREATE DATABASE {name} TEMPLATE template0 LOCALE_PROVIDER icu ICU_LOCALE 'en-US'")
        yield server.dsn(name)


async def test_names_have_the_order_of_bytes_whatever_the_databases_own_is(english_dsn: str) -> None:
    names = ["a", "B", "a b", "ab", "A", "\u00e9", "z", "_"]
    async with PostgresLog(english_dsn) as log:
        queue = await log.create_queue("orders", {"ordered": True})
        group = await log.create_group(queue, "workers")
        await log.commit(records=[Record("s", name, b"") for name in names])
        for name in names:
            await push(log, queue, name, partition=name)
        assert [lane.partition for lane in await log.lanes(group)] == sorted(names)
        assert [lane.partition for lane in await log.lanes(group, after="a", limit=2)] == ["a b", "ab"]
        assert [kept.key for kept in await log.scan("s", "a")] == ["a", "a b", "ab"]
        (claim,) = (await log.claim(group, "owner", Room(5), partition="ab")).claims
        assert claim.block.partition == "ab"
