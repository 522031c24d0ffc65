"""forebay.push(): messages enter the log when the user's own transaction commits, each of them once."""

import asyncio
import json
import random
import re
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import asyncpg
import pytest

from forebay.log.postgres import PostgresLog, inbox
from forebay.log.values import Queue
from forebay.model import Flow, Limits, Message, Unavailable, from_datetime
from tests.conformance.steps import ALL, drain, push, stored
from tests.integration.postgres_steps import connected, until_waiting
from tests.servers import FaultProxy, PostgresServer

if TYPE_CHECKING:
    Connection = asyncpg.Connection[asyncpg.Record]

PUSH = "SELECT forebay.push('orders', $1::text)"


@pytest.fixture
async def log(postgres_dsn: str) -> AsyncIterator[PostgresLog]:
    """Give a log on an empty database."""
    async with PostgresLog(postgres_dsn) as opened:
        yield opened


@pytest.fixture
async def queue(log: PostgresLog) -> Queue:
    """Give the queue that the tests push to."""
    return await log.create_queue("orders")


@pytest.fixture
async def user(postgres_dsn: str, log: PostgresLog) -> AsyncIterator["Connection"]:
    """Give a user's own connection to the database of the log."""
    await log.queues()  # opened first: forebay.push() comes with the schema
    connection = await asyncpg.connect(postgres_dsn)
    yield connection
    await connection.close()


async def messages(log: PostgresLog, queue: Queue) -> list[Message]:
    """All messages of a queue."""
    return [message for block in await log.read(queue) for message in block.decode()]


async def test_what_is_rolled_back_is_never_pushed(
    log: PostgresLog, queue: Queue, user: "Connection"
) -> None:
    transaction = user.transaction()
    await transaction.start()
    await user.execute(PUSH, "a")
    await transaction.rollback()
    assert await log.sweep() == 0
    assert await stored(log, queue) == []


async def test_nothing_is_pushed_before_the_commit(
    log: PostgresLog, queue: Queue, user: "Connection"
) -> None:
    async with user.transaction():
        await user.execute(PUSH, "a")
        assert await log.sweep() == 0
    assert await log.sweep() == 1
    assert await log.sweep() == 0
    assert await stored(log, queue) == ["a"]


async def test_a_message_arrives_with_all_it_was_given(
    log: PostgresLog, queue: Queue, user: "Connection"
) -> None:
    start = datetime(2031, 5, 4, 3, 2, 1, 654_321, tzinfo=UTC)
    await user.execute(
        "SELECT forebay.push('orders', $1::bytea, partition => $2, transaction_id => 't-1',"
        " headers => $3, start_time => $4)",
        b"\x00\xff",
        "käse 🧀",
        json.dumps({"flow": "orders", "trace": "é"}),
        start,
    )
    assert await log.sweep() == 1
    (message,) = await messages(log, queue)
    assert message == Message(
        b"\x00\xff", "käse 🧀", "t-1", {"flow": "orders", "trace": "é"}, from_datetime(start)
    )


async def test_a_delay_counts_from_now(log: PostgresLog, queue: Queue, user: "Connection") -> None:
    before: datetime = await user.fetchval("SELECT clock_timestamp()")
    await user.execute("SELECT forebay.push('orders', 'x', delay => '90 seconds')")
    after: datetime = await user.fetchval("SELECT clock_timestamp()")
    await log.sweep()
    (message,) = await messages(log, queue)
    delay = timedelta(seconds=90)
    assert message.start_time is not None
    assert from_datetime(before + delay) <= message.start_time <= from_datetime(after + delay)


@pytest.mark.parametrize(
    ("payload", "expected"),
    [
        ("'plain'", b"plain"),
        ("'größe 🧀'", "größe 🧀".encode()),
        ("''", b""),
        ('\'{"b": 1, "a": [true]}\'::jsonb', b'{"a": [true], "b": 1}'),
        ("jsonb_build_object('n', 1)", b'{"n": 1}'),
        ("'\\x00ff41'::bytea", b"\x00\xff\x41"),
        ("'\\x41'", b"\\x41"),
        ("convert_to('b', 'UTF8')", b"b"),
        ("'v'::varchar || 1", b"v1"),
    ],
)
async def test_payloads_of_every_type(
    log: PostgresLog, queue: Queue, user: "Connection", payload: str, expected: bytes
) -> None:
    await user.execute(f"SELECT forebay.push('orders', {payload})")
    await log.sweep()
    (message,) = await messages(log, queue)
    assert message == Message(expected)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ("'ordres', 'x'", "FB404 forebay: there is no queue 'ordres'"),
        ("NULL, 'x'", "FB404 forebay: there is no queue"),
        ("'orders', NULL", "FB400 forebay: the payload is null"),
        ("'orders', NULL::jsonb", "FB400 forebay: the payload is null"),
        (
            "'orders', 'x', start_time => now(), delay => '1s'",
            "FB400 forebay: start_time and delay exclude each other",
        ),
        ("'orders', 'x', headers => '[1]'", "FB400 forebay: headers must be a JSON object of strings"),
        ("'orders', 'x', headers => '{\"a\": 1}'", "FB400 forebay: headers must be a JSON object of strings"),
        ("'orders', 'x', headers => 'null'", "FB400 forebay: headers must be a JSON object of strings"),
    ],
)
async def test_a_bad_push_says_why_and_changes_nothing(
    log: PostgresLog, queue: Queue, user: "Connection", arguments: str, error: str
) -> None:
    with pytest.raises(asyncpg.PostgresError) as caught:
        await user.execute(f"SELECT forebay.push({arguments})")
    assert error in f"{caught.value.sqlstate} {caught.value}"
    assert caught.value.as_dict().get("hint")
    assert await log.sweep() == 0
    assert await stored(log, queue) == []


async def test_a_deleted_queue_is_unknown_to_push(log: PostgresLog, queue: Queue, user: "Connection") -> None:
    await user.execute(PUSH, "a")
    await log.delete_queue(queue.name)
    with pytest.raises(asyncpg.PostgresError, match="no queue"):
        await user.execute(PUSH, "b")
    assert await log.sweep() == 0


async def rejected(user: "Connection") -> list[tuple[bytes, str]]:
    """What was set aside: the start of the payload, and the reason."""
    rows = await user.fetch("SELECT payload, reason FROM forebay.inbox_rejected ORDER BY id")
    return [(row["payload"][:3], row["reason"]) for row in rows]


async def test_a_row_that_no_block_can_hold_is_set_aside_alone(
    log: PostgresLog, queue: Queue, user: "Connection"
) -> None:
    await user.execute(PUSH, "a")
    await user.execute(PUSH, "x" * (Limits().message_bytes_max + 1))
    await user.execute("SELECT forebay.push('orders', 'tab', partition => E'\\t')")
    await user.execute("SELECT forebay.push('orders', 'old', start_time => '1901-01-01')")
    await user.execute("SELECT forebay.push('orders', 'new', start_time => '20000-01-01')")
    await user.execute("SELECT forebay.push('orders', 'tid', transaction_id => repeat('t', 300))")
    await user.execute(PUSH, "b")
    assert await log.sweep() == 7
    assert await stored(log, queue) == ["a", "b"]
    aside = await rejected(user)
    assert [payload for payload, _ in aside] == [b"xxx", b"tab", b"old", b"new", b"tid"]
    assert "over 1Mi" in aside[0][1]
    assert "control character" in aside[1][1]
    listed = await log.inbox_rejected()
    assert [(row.id, row.queue, row.reason) for row in listed] == [
        (number, "orders", reason) for number, (_, reason) in zip(range(2, 7), aside, strict=True)
    ]
    assert (listed[0].payload_bytes, listed[1].partition) == (Limits().message_bytes_max + 1, "\t")
    assert listed[4].transaction_id == "t" * 300
    assert await log.inbox_rejected(3, 2) == listed[2:4]
    assert await log.sweep() == 0


async def test_a_rejected_row_is_tried_again_as_the_guide_says(
    log: PostgresLog, queue: Queue, user: "Connection", postgres_dsn: str
) -> None:
    await user.execute(PUSH, "x" * (Limits().message_bytes_max + 1))
    await user.execute(PUSH, "y" * (Limits().message_bytes_max + 1))
    await log.sweep()
    guide = (Path(__file__).parents[2] / "docs/how-to/enqueue-in-your-own-transaction.md").read_text()
    (example,) = re.findall(r"```sql\n(WITH again.*?)```", guide, re.DOTALL)
    await user.execute(example.replace("17", "1").replace("18", "2"))
    assert await log.inbox_rejected() == []
    async with PostgresLog(postgres_dsn, limits=Limits(message_bytes_max=2 << 20)) as raised:
        assert await raised.sweep() == 1
        assert await raised.inbox_rejected() == []
    assert (await messages(log, queue))[0].payload[:3] == b"xxx"


async def test_a_row_whose_queue_is_gone_is_set_aside(
    log: PostgresLog, queue: Queue, user: "Connection", postgres_dsn: str
) -> None:
    """A push that commits after its queue was deleted."""
    other: Connection = await asyncpg.connect(postgres_dsn)
    async with other.transaction():
        await other.execute(PUSH, "a")
        await log.delete_queue(queue.name)
    await other.close()
    assert await log.sweep() == 1
    assert await rejected(user) == [(b"a", "its queue was deleted")]
    assert [row.queue for row in await log.inbox_rejected()] == ["orders"]


async def test_a_queue_made_while_the_sweep_begins_loses_nothing(
    log: PostgresLog, user: "Connection", postgres_dsn: str
) -> None:
    """A message that the sweep sees may be of a queue that was not there when the sweep began."""
    async with connected(postgres_dsn) as other:
        transaction = other.transaction()
        await transaction.start()
        await other.execute("SELECT pg_advisory_xact_lock('forebay.inbox'::regclass::oid::int, 0)")
        sweep = asyncio.create_task(log.sweep())
        await until_waiting(user)
        queue = await log.create_queue("orders")
        await user.execute(PUSH, "a")
        await transaction.rollback()
    assert await sweep == 1
    assert await stored(log, queue) == ["a"]


async def test_messages_with_everything_at_its_limit_still_fit_in_blocks(postgres_dsn: str) -> None:
    """Headers, partitions and transaction ids count too: a block too large would stop every sweep."""
    limits = Limits(message_bytes_max=1_000, headers_bytes_max=1_000, block_bytes_max=6_500)
    async with PostgresLog(postgres_dsn, limits=limits) as log:
        queue = await log.create_queue("orders")
        user: Connection = await asyncpg.connect(postgres_dsn)
        await user.execute(
            "SELECT forebay.push('orders', repeat('x', 1000), repeat(chr(64 + n), 255),"
            " repeat(chr(64 + n), 255), jsonb_build_object('h', repeat(chr(64 + n), 990)), now())"
            " FROM generate_series(1, 40) AS n"
        )
        await user.close()
        assert await log.sweep() == 40
        assert len(await messages(log, queue)) == 40


async def test_a_sweep_takes_no_more_than_it_can_hold(
    log: PostgresLog, queue: Queue, user: "Connection", monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("forebay.log.postgres.inbox.SWEEP_BYTES", 1_000)
    await user.execute("SELECT forebay.push('orders', repeat('x', 400)) FROM generate_series(1, 10)")
    swept = []
    while count := await log.sweep():
        swept.append(count)
    assert swept == [3, 3, 3, 1]
    assert len(await stored(log, queue)) == 10


async def test_an_ordered_queue_keeps_the_order_of_each_partition(
    log: PostgresLog, user: "Connection"
) -> None:
    queue = await log.create_queue("steps", {"ordered": True})
    group = await log.create_group(queue, "workers")
    for number in range(30):
        await user.execute("SELECT forebay.push('steps', $1::text, $2)", f"{number}", f"p{number % 3}")
    while await log.sweep(limit=7):
        pass
    claims = (await log.claim(group, "owner", ALL)).claims
    by_partition: dict[str, list[int]] = {}
    for claim in claims:
        for message in claim.block.decode():
            by_partition.setdefault(message.partition, []).append(int(message.payload))
    assert by_partition == {f"p{n}": list(range(n, 30, 3)) for n in range(3)}


async def test_a_transaction_id_is_pushed_once_by_any_way(
    log: PostgresLog, queue: Queue, user: "Connection"
) -> None:
    await push(log, queue, "first", transaction_ids=["t1"])
    for text, transaction_id in (("again", "t1"), ("new", "t2"), ("twin", "t2")):
        await user.execute(
            "SELECT forebay.push('orders', $1::text, transaction_id => $2)", text, transaction_id
        )
    assert await log.sweep() == 3
    await user.execute("SELECT forebay.push('orders', 'late', transaction_id => 't2')")
    assert await log.sweep() == 1
    assert await stored(log, queue) == ["first", "new"]


async def test_two_sweepers_move_each_row_once_and_in_order(postgres_dsn: str, rng: random.Random) -> None:
    async with PostgresLog(postgres_dsn) as one, PostgresLog(postgres_dsn) as two:
        queue = await one.create_queue("steps", {"ordered": True})
        user: Connection = await asyncpg.connect(postgres_dsn)
        pushed = 0

        async def sweep_all(log: PostgresLog) -> int:
            swept = 0
            while count := await log.sweep(limit=rng.randrange(1, 8)):
                swept += count
            return swept

        for _ in range(8):
            for _ in range(rng.randrange(20, 40)):
                await user.execute("SELECT forebay.push('steps', $1::text, 'p')", str(pushed))
                pushed += 1
            counts = await asyncio.gather(*map(sweep_all, (one, two, one, two)))
            assert sum(counts) > 0
        await user.close()
        assert list(map(int, await stored(one, queue))) == list(range(pushed))


@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_sweep_that_is_cut_at_its_commit_neither_loses_nor_doubles(
    postgres_server: PostgresServer, postgres_dsn: str, when: str
) -> None:
    async with FaultProxy(postgres_server.port) as proxy:
        dsn = postgres_dsn.replace(f":{postgres_server.port}/", f":{proxy.port}/")
        async with PostgresLog(dsn) as log:
            queue = await log.create_queue("orders")
            group = await log.create_group(queue, "workers")
            user: Connection = await asyncpg.connect(postgres_dsn)
            for number in range(5):
                await user.execute(PUSH, str(number))
            await user.close()
            trap = (
                proxy.cut_before_client_bytes(b"COMMIT;")
                if when == "before"
                else proxy.cut_after_client_bytes(b"COMMIT;")
            )
            with pytest.raises(Unavailable):
                await log.sweep()
            await trap.wait()
            assert await log.sweep() == (5 if when == "before" else 0)
            assert await drain(log, group) == list("01234")


async def test_flows_of_swept_messages_are_counted(
    log: PostgresLog, queue: Queue, user: "Connection"
) -> None:
    group = await log.create_group(queue, "workers")
    for headers in ('{"flow": "daily", "action": "load"}', None, '{"flow": "daily", "action": "load"}'):
        await user.execute("SELECT forebay.push('orders', 'x', headers => $1::jsonb)", headers)
    assert await log.flows(group) == []
    assert await log.sweep() == 3
    counted = {count.flow: count.count for count in await log.flows(group)}
    assert counted == {Flow(): 1, Flow("daily", "", "load"): 2}


async def test_a_duplicate_leaves_the_order_of_what_is_swept(
    log: PostgresLog, user: "Connection", monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where one sweep fills several blocks, of which some hold duplicates."""
    monkeypatch.setattr(inbox, "BLOCK_MESSAGES", 2)
    queue = await log.create_queue("lanes", {"ordered": True})
    pushing = "SELECT forebay.push('lanes', $1::text, partition => 'p', transaction_id => $1::text)"
    await user.execute(pushing, "1")
    assert await log.sweep() == 1
    for name in ("1", "10", "20", "30", "10", "40", "1", "40", "50"):
        await user.execute(pushing, name)
    assert await log.sweep() == 9
    assert await stored(log, queue) == ["1", "10", "20", "30", "40", "50"]
