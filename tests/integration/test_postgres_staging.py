"""Publishing in PostgreSQL: in pieces, of blocks that an older Forebay staged, and who waits for it."""

import asyncio

import pytest

from forebay.log.postgres import PostgresLog, staging
from forebay.log.values import Append, Queue
from forebay.model import ManualClock
from tests.conformance.rigs import BEGIN, DAY
from tests.conformance.steps import append_of, drain, push, sequences, stored
from tests.integration.postgres_steps import connected


def with_duplicates(queue: Queue) -> list[Append]:
    """Blocks that repeat themselves, each other, and the log."""
    texts = {"bacb": "2132", "dbe": "425", "de": "45", "f": "6"}
    return [
        append_of(queue, *text, transaction_ids=[f"t{name}" for name in names])
        for text, names in texts.items()
    ]


@pytest.mark.parametrize("before_these_columns", [False, True])
@pytest.mark.parametrize("bytes_max", [1, staging.COPIED_BYTES_MAX])
async def test_duplicates_are_found_across_pieces_and_in_old_stages(
    postgres_dsn: str, monkeypatch: pytest.MonkeyPatch, bytes_max: int, *, before_these_columns: bool
) -> None:
    monkeypatch.setattr(staging, "COPIED_BYTES_MAX", bytes_max)
    monkeypatch.setattr(staging, "UNSTAGED_ROWS", 2)
    async with PostgresLog(postgres_dsn) as log, connected(postgres_dsn) as user:
        queue = await log.create_queue("orders")
        await push(log, queue, "a", transaction_ids=["t1"])
        appends = with_duplicates(queue)
        await log.stage("s", appends)
        if before_these_columns:
            columns = "count = NULL, partition = NULL, flows = NULL, digests = NULL"
            await user.execute(f"UPDATE forebay.staged SET {columns}")
        receipt = await log.publish("s", [append.block.id for append in appends])
        assert [sequences(answer) for answer in receipt.appended] == [[2, 1, 3, 2], [4, 2, 5], [4, 5], [6]]
        assert await stored(log, queue) == list("abcdef")
        assert await user.fetchval("SELECT count(*) FROM forebay.staged") == 0
        assert await user.fetchval("SELECT count(*) FROM forebay.block WHERE last < 0") == 0
        assert await user.fetchval("SELECT count(*) FROM forebay.dedupe") == 6
        group = await log.create_group(queue, "workers")
        assert await drain(log, group) == list("abcdef")


async def test_pushes_go_on_while_bodies_are_copied(
    postgres_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And a block that somebody commits meanwhile is not published a second time."""
    copied, go_on = asyncio.Event(), asyncio.Event()
    original = staging._Publication._copy

    async def copy_and_wait(self: staging._Publication, pieces: list[staging._Piece]) -> None:
        await original(self, pieces)
        copied.set()
        await go_on.wait()

    monkeypatch.setattr(staging._Publication, "_copy", copy_and_wait)
    async with PostgresLog(postgres_dsn) as log:
        queue = await log.create_queue("orders")
        appends = [append_of(queue, "a", "b"), append_of(queue, "c")]
        await log.stage("s", appends)
        publishing = asyncio.create_task(log.publish("s", [append.block.id for append in appends]))
        async with asyncio.timeout(20):
            await copied.wait()
            assert sequences(await push(log, queue, "x")) == [1]
            await log.commit([appends[1]])
            go_on.set()
            receipt = await publishing
        assert [sequences(answer) for answer in receipt.appended] == [[3, 4], [2]]
        assert await stored(log, queue) == ["x", "c", "a", "b"]


async def test_blocks_get_their_place_in_another_piece_of_the_log(postgres_dsn: str) -> None:
    """The clock went back over the bound between two pieces: times don't."""
    clock = ManualClock(BEGIN)
    async with PostgresLog(postgres_dsn, clock=clock) as log, connected(postgres_dsn) as user:
        queue = await log.create_queue("orders")
        clock.advance(seconds=3 * DAY)
        await log.trim()  # makes the pieces
        await push(log, queue, "a")
        clock.advance(seconds=-3 * DAY)
        appends = [append_of(queue, text, transaction_ids=[text]) for text in "bc"]
        await log.stage("s", appends)
        await log.publish("s", [append.block.id for append in appends])
        blocks = await log.read(queue)
        assert [block.appended_at for block in blocks] == [BEGIN + int(3 * DAY) * 1_000_000] * 3
        assert await stored(log, queue) == ["a", "b", "c"]
        assert await user.fetchval("SELECT count(*) FROM forebay.block WHERE last < 0") == 0
