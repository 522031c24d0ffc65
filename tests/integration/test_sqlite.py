"""What is particular to the log in a file: whose file it is, its versions, and who else uses it."""

# ruff: noqa: ASYNC220, ASYNC240 - a few small files, and a child that is waited for in a thread

import asyncio
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import apsw
import pytest

from forebay.log.sqlfile import Migration
from forebay.log.sqlite import SqliteLog, connection, handing, lanes
from forebay.log.sqlite.connection import SQL, Transaction, connect
from forebay.log.sqlite.versions import APPLICATION_ID, MIGRATIONS, prepare
from forebay.log.values import Deferral, Group, Mark, Queue, Room
from forebay.model import (
    Block,
    Corrupt,
    Flow,
    ManualClock,
    Message,
    Misconfigured,
    Unavailable,
    UnknownQueue,
    encode,
    mint,
    pack,
    sequence_of,
)
from tests.conformance.steps import (
    append_of,
    check_ledger,
    counts,
    drain,
    finish,
    push,
    push_named,
    stored,
    take,
    unfinished,
)

PUSHER = """
import asyncio, sys
from forebay.log.sqlite import SqliteLog
from forebay.log.values import Append
from forebay.model import Block, Message

async def main():
    async with SqliteLog(sys.argv[1]) as log:
        queue = await log.queue("orders")
        for number in range(50):
            await log.commit([Append.of(queue, Block.of([Message(b"%d" % number)] * 3))])

asyncio.run(main())
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Give the path of a log that isn't there yet."""
    return tmp_path / "log.db"


async def prepared(log: SqliteLog, **settings: object) -> tuple[Queue, Group]:
    """Make a queue and a group."""
    queue = await log.create_queue("orders", dict(settings))
    return queue, await log.create_group(queue, "workers")


def version_of(path: Path) -> tuple[int, int]:
    """Read the version of a schema, and whose it is."""
    database = apsw.Connection(str(path))
    try:
        version, owner = database.pragma("user_version"), database.pragma("application_id")
    finally:
        database.close()
    assert isinstance(version, int)
    assert isinstance(owner, int)
    return version, owner


# Whose file it is


async def test_a_log_is_what_it_was_when_it_is_opened_again(path: Path) -> None:
    clock = ManualClock(1_800_000_000_000_000)
    async with SqliteLog(path, clock=clock) as log:
        queue, group = await prepared(log, keep_seconds=5.0)
        for text in "abcd":
            await push_named(log, queue, text)
        claims = await take(log, group, room=Room(messages=3))
        await finish(log, claims[0])
        deferral = Deferral(0, clock.now(), attempts=2)
        await log.commit(settlements=[claims[1].settle(deferred=(deferral,))])
        before = await log.stats()
    async with SqliteLog(path, clock=clock) as log:
        assert await log.stats() == before
        assert await log.queues() == [queue]
        assert await log.groups(queue) == [group]
        assert (await push_named(log, queue, "a")).count == 0
        (due,) = (await log.due(group, "other")).claims
        assert (due.attempts, unfinished([due])) == (2, ["b"])
        await finish(log, claims[2], due)
        assert await drain(log, group) == ["d"]
        assert (await counts(log, group)).done == 4


async def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(Misconfigured, match=r"there is no folder .*nowhere.*make the folder"):
        await SqliteLog(tmp_path / "nowhere" / "log.db").__aenter__()
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.parametrize("name", [".", ":memory:"])
async def test_a_path_that_cannot_be_a_file_is_refused(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(Misconfigured):
        await SqliteLog(name).__aenter__()


@pytest.mark.parametrize("content", [b"hello", b"\x00" * 8192, b"no database " * 1000])
async def test_a_file_that_is_no_database_is_left_alone(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    with pytest.raises(Misconfigured, match="is not a log: it is not an SQLite database"):
        await SqliteLog(path).__aenter__()
    assert path.read_bytes() == content


async def test_a_database_of_another_program_is_left_alone(path: Path) -> None:
    other = apsw.Connection(str(path))
    other.execute("CREATE TABLE theirs (a); INSERT INTO theirs VALUES (1)")
    other.close()
    before = path.read_bytes()
    with pytest.raises(Misconfigured, match="is not a log: it is a database of another program"):
        await SqliteLog(path).__aenter__()
    assert path.read_bytes() == before


async def test_a_damaged_file_is_reported_as_corrupt(path: Path) -> None:
    async with SqliteLog(path) as log:
        queue, _ = await prepared(log)
        for text in "abcdefgh":
            await push(log, queue, text * 9_000)
    content = bytearray(path.read_bytes())
    content[8192:] = b"\xa5" * (len(content) - 8192)
    path.write_bytes(content)
    with pytest.raises(Corrupt, match="is damaged"):
        async with SqliteLog(path) as log:
            await log.stats()


async def test_a_log_that_is_not_open_says_so(path: Path) -> None:
    log = SqliteLog(path)
    with pytest.raises(Unavailable, match="is closed"):
        await log.stats()
    async with log:
        queue, _ = await prepared(log)
    with pytest.raises(Unavailable, match="is closed"):
        await log.queue("orders")
    with pytest.raises(Unavailable, match="is closed"):
        await log.commit([append_of(queue, "a")])
    async with log:
        await push(log, queue, "a")


# Versions


async def test_a_log_of_a_newer_forebay_is_refused(path: Path) -> None:
    async with SqliteLog(path):
        pass
    database = apsw.Connection(str(path))
    database.pragma("user_version", len(MIGRATIONS) + 1)
    database.close()
    known = len(MIGRATIONS)
    with pytest.raises(
        Misconfigured,
        match=f"made by a newer Forebay: schema {known + 1}, this one knows {known}; upgrade",
    ):
        await SqliteLog(path).__aenter__()
    assert version_of(path) == (known + 1, APPLICATION_ID)


@pytest.mark.parametrize("version", range(len(MIGRATIONS) + 1))
async def test_every_earlier_version_is_brought_up_to_date(path: Path, version: int) -> None:
    if version:
        prepare(path, MIGRATIONS[:version])
    else:
        path.touch()
    async with SqliteLog(path) as log:
        queue, group = await prepared(log)
        await push(log, queue, "a")
        assert await drain(log, group) == ["a"]
    assert version_of(path) == (len(MIGRATIONS), APPLICATION_ID)


async def test_blocks_and_dead_letters_of_the_first_version_are_as_good(path: Path) -> None:
    prepare(path, MIGRATIONS[:1])
    body = encode(Block.of([Message(b"a", "p", headers={"flow": "f"})], id=(block_id := mint())))
    first = pack(1, 1)
    database = apsw.Connection(str(path))
    database.execute(
        "INSERT INTO queue VALUES (1, 'orders', '{\"ordered\": true}', 1, 3, 1, 1, 1, 0);"
        "INSERT INTO consumer_group (number, queue, name, start, position, claimed, dead)"
        " VALUES (1, 1, 'workers', 1, 3, 1, 1);"
        "INSERT INTO lane VALUES (1, 'p', :ready, :ready)",
        {"ready": first + 1},
    )
    for last in (first, first + 1):
        row = (last, 1, 1, len(body), block_id, "p", body)
        database.execute("INSERT INTO block VALUES (?, ?, ?, ?, ?, ?, ?)", row)
    database.execute("INSERT INTO dead_letter VALUES (1, 1, ?, 1, 1, 'r', ?)", (first, body))
    database.close()
    async with SqliteLog(path) as log:
        (group,) = await log.groups(queue := await log.queue("orders"))
        assert [(c.flow, c.count) for c in await log.flows(group)] == [(Flow(), 1)]
        assert len(await log.read(queue)) == 2
        assert await log.redrive(group, [first]) == [first]
        assert await drain(log, group) == []  # its partition is held up
        await finish(log, *(await log.due(group, "owner")).claims)
        assert await drain(log, group) == ["a"]
        await check_ledger(log)


async def test_a_migration_that_fails_leaves_the_version_before(path: Path) -> None:
    async with SqliteLog(path) as log:
        queue, _ = await prepared(log)
        await push(log, queue, "a")
    number = len(MIGRATIONS) + 1
    broken = Migration(number, "broken", "CREATE TABLE half (a); INSERT INTO missing VALUES (1)")
    with pytest.raises(AssertionError, match="missing"):
        prepare(path, [*MIGRATIONS, broken])
    assert version_of(path) == (len(MIGRATIONS), APPLICATION_ID)
    repaired = Migration(number, "repaired", "CREATE TABLE half (a)")
    prepare(path, [*MIGRATIONS, repaired])
    assert version_of(path) == (number, APPLICATION_ID)


async def test_many_may_make_the_same_file_at_once(path: Path) -> None:
    logs = [SqliteLog(path) for _ in range(4)]
    await asyncio.gather(*(log.__aenter__() for log in logs))
    queues = await asyncio.gather(*(log.create_queue("orders") for log in logs))
    assert len({queue.number for queue in queues}) == 1
    await asyncio.gather(*(log.__aexit__(None, None, None) for log in logs))


# Who else uses it


async def test_two_logs_on_one_file_share_everything(path: Path) -> None:
    async with SqliteLog(path) as one, SqliteLog(path) as two:
        queue, group = await prepared(one)
        firsts = await asyncio.gather(*(push(log, queue, f"{n}") for n in range(40) for log in (one, two)))
        assert sorted(sequence_of(f.first) for f in firsts) == list(range(1, 81))
        claim, *rest = await take(two, group)
        await finish(one, claim)
        assert (await two.commit(settlements=[claim.settle_all()])).conflicts == (0,)
        await finish(two, *rest)
        assert (await counts(one, group)).done == 80
        await check_ledger(two)


async def test_a_change_of_settings_by_another_log_counts_at_once(path: Path) -> None:
    async with SqliteLog(path) as one, SqliteLog(path) as two:
        queue, _ = await prepared(one, dedupe_seconds=0.0)
        await push_named(one, queue, "t")
        await two.configure_queue("orders", {"dedupe_seconds": 60.0})
        assert (await push_named(one, queue, "t")).count == 1
        assert (await push_named(one, queue, "t")).count == 0


async def test_a_queue_that_another_log_deletes_is_gone(path: Path) -> None:
    async with SqliteLog(path) as one, SqliteLog(path) as two:
        queue, group = await prepared(one)
        await push(one, queue, "a")
        await two.delete_queue("orders")
        with pytest.raises(UnknownQueue):
            await push(one, queue, "b")
        with pytest.raises(UnknownQueue):
            await one.claim(group, "owner")


async def test_a_queue_that_another_log_makes_anew_has_its_new_settings(path: Path) -> None:
    async with SqliteLog(path) as one, SqliteLog(path) as two:
        queue, _ = await prepared(one)
        await push(one, queue, "a")
        await two.delete_queue("orders")
        again = await two.create_queue("orders", {"ordered": True})
        assert again.number == queue.number
        await push(one, queue, "b", partition="p")
        (block,) = await one.read(queue)
        assert (sequence_of(block.first), block.partition) == (2, "p")


async def test_two_processes_push_side_by_side(path: Path) -> None:
    async with SqliteLog(path) as log:
        queue, group = await prepared(log)
        child = subprocess.Popen([sys.executable, "-c", PUSHER, str(path)])
        for number in range(50):
            await push(log, queue, f"own {number}")
        assert await asyncio.to_thread(child.wait) == 0
        assert len(await stored(log, queue)) == 200
        assert len(await drain(log, group)) == 200


async def test_a_lock_of_another_process_is_waited_for_and_then_reported(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "BUSY_MILLISECONDS", 20)
    async with SqliteLog(path) as log:
        queue, _ = await prepared(log)
        other = apsw.Connection(str(path))
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(Unavailable, match="locked by another process") as caught:
            await push(log, queue, "a")
        assert caught.value.retry_after_seconds
        assert await log.queues() == [queue]
        other.execute("ROLLBACK")
        other.close()
        await push(log, queue, "b")
        assert await stored(log, queue) == ["b"]


# A disk that fails


async def test_a_full_disk_refuses_the_write_and_loses_nothing(path: Path) -> None:
    async with SqliteLog(path) as log:
        queue, group = await prepared(log)
        await push(log, queue, "a")
        assert log._writer is not None
        pages = await log._writer.bare(lambda c: c.pragma("page_count"))
        await log._writer.bare(lambda c: c.pragma("max_page_count", pages))
        with pytest.raises(Unavailable, match=r"no room left.*free some disk space"):
            await push(log, queue, os.urandom(250_000).hex(), transaction_ids=["b"])
        await log._writer.bare(lambda c: c.pragma("max_page_count", 1_000_000))
        await push(log, queue, "c")
        assert await drain(log, group) == ["a", "c"]


async def test_a_file_that_became_read_only_is_reported(path: Path) -> None:
    async with SqliteLog(path) as log:
        queue, _ = await prepared(log)
        assert log._writer is not None
        await log._writer.bare(lambda c: c.pragma("query_only", 1))
        with pytest.raises(Unavailable, match=r"can't be written.*check its permissions"):
            await push(log, queue, "a")


async def test_after_a_failed_write_the_file_is_opened_anew(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with SqliteLog(path) as log:
        queue, group = await prepared(log)
        await push(log, queue, "a")
        assert log._writer is not None
        run = Transaction.run

        def fail(self: Transaction, name: str, *values: object) -> int:
            if name == "add_receipt":
                raise apsw.IOError("disk I/O error")
            return run(self, name, *values)

        with monkeypatch.context() as broken:
            broken.setattr(Transaction, "run", fail)
            with pytest.raises(Unavailable, match="check the disk"):
                await push(log, queue, "b")
        assert log._writer._connection is None
        await push(log, queue, "c")
        assert path.with_name("log.db-wal").stat().st_size < 100_000
        assert await drain(log, group) == ["a", "c"]


# How much it costs


NORMAL = 1
"""`PRAGMA synchronous`, where a commit doesn't wait for the disk."""
GROWS_SLOWLY = {
    "queues", "groups", "group_counts", "deleted_group", "owners", "silent_owners", "trim_owners",
    "old_stage", "open_claims", "handed_claims", "held_flows",
    "flows", "lane_flows", "returned_flows",  # with what is unclaimed, or came back: that is what they count
    "partitions", "partition_count",  # a list of names, found one by one
    "partition_due_claims",  # open claims of one partition
    "owner_claims",  # sorted only where a message and its letter are out at once
    "span",  # two subqueries of a row each
    "delayed",  # with blocks whose start times are to come: that is what it counts
    "near_names",  # two subqueries of a bounded number of rows each
}  # fmt: skip
"""Statements that read a table whole, because it has a row per queue, group, owner or open claim."""


def test_no_statement_reads_or_sorts_a_backlog(path: Path) -> None:
    prepare(path)
    database = connect(path, create=False)
    for name, statement in SQL.items():
        values = [None] * max(map(int, re.findall(r"\?(\d+)", statement)), default=0)
        plan = [row[3] for row in database.execute(f"EXPLAIN QUERY PLAN {statement}", values)]
        costly = [line for line in plan if line.startswith("SCAN") or "TEMP B-TREE" in line]
        assert not costly or name in GROWS_SLOWLY, (name, plan)
    database.close()


async def test_concurrent_marks_share_transactions_that_wait_for_no_disk(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    batches: list[bool] = []
    noted = handing.mark

    def watched(tx: Transaction, marks: Sequence[Mark]) -> list[int]:
        row = tx.connection.execute("PRAGMA synchronous").fetchone()
        batches.append(row == (NORMAL,))
        return noted(tx, marks)

    monkeypatch.setattr(handing, "mark", watched)
    async with SqliteLog(path) as log:
        queue, group = await prepared(log)
        for number in range(50):
            await push(log, queue, f"{number}")
        claims = await take(log, group)
        await asyncio.gather(*(log.mark([claim.mark(handed=b"\x01")]) for claim in claims))
        assert batches == [True]
        taken = (await log.reclaim(group, "other", of=["owner"])).claims
        assert [claim.handed for claim in taken] == [b"\x01"] * 50


def test_flows_are_counted_without_bodies(path: Path) -> None:
    prepare(path)
    database = connect(path, create=False)
    columns = [row[1] for row in database.execute("PRAGMA table_info(block)")]
    assert columns.index("flows") < columns.index("body") == len(columns) - 1
    plan = [row[3] for row in database.execute(f"EXPLAIN QUERY PLAN {SQL['lane_flows']}", [1] * 4)]
    assert [line for line in plan if line.startswith("SEARCH b")] == [
        "SEARCH b USING INDEX block_partition (partition=? AND last>? AND last<?)",
        "SEARCH b USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)",
    ]
    assert "SEARCH lane USING COVERING INDEX lane_ready (group_number=? AND ready>?)" in plan
    database.close()


async def test_a_claim_finds_its_lane_past_many_busy_ones(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lanes, "DISCOVERED_BLOCKS", 2)
    monkeypatch.setattr(lanes, "DISCOVERIES_MAX", 2)
    async with SqliteLog(path) as log:
        queue, group = await prepared(log, ordered=True)
        for number in range(30):
            await push(log, queue, f"{number}", partition="busy")
        await push(log, queue, "free", partition="free")
        held = (await log.claim(group, "a", Room(1))).claims
        assert unfinished(held) == ["0"]
        assert unfinished(await take(log, group, "b")) == ["free"]
        assert await take(log, group, "b") == []
        await finish(log, *held)
        assert len(unfinished(await take(log, group, "b"))) == 29
