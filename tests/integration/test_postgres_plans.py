"""No work is proportional to the backlog: what the hot verbs touch, as PostgreSQL itself counts it.

Rows read by sequential scans and entries read from indexes, of every table and piece of the log.
"""

import random
from collections.abc import Awaitable
from typing import TypeVar

import pytest

from forebay.log.postgres import PostgresLog
from forebay.log.postgres.log import SQL
from forebay.log.values import Append, Claimed, Death, Deferral, Group, Queue, Room
from forebay.model import TIME_MAX, ManualClock, Message, mint
from tests.awake import Awake
from tests.conformance.rigs import BEGIN, DAY
from tests.conformance.steps import append_of, finish, push
from tests.integration.postgres_steps import connected

T = TypeVar("T")
BLOCKS = 20_000
PIECES = 30
TOUCHED = """
    SELECT relname AS name, seq_tup_read + coalesce((
        SELECT sum(i.idx_tup_read) FROM pg_stat_user_indexes AS i WHERE i.relid = t.relid), 0) AS rows
    FROM pg_stat_user_tables AS t WHERE schemaname = 'forebay'
"""


class Watch:
    """Counts what a log with one connection touches."""

    def __init__(self, log: PostgresLog) -> None:
        self._log = log

    async def touched(self) -> dict[str, int]:
        """Rows and index entries read so far, by table."""
        async with self._log._database.connection() as connection:
            await connection.fetchval("SELECT pg_stat_force_next_flush()")
            rows = await connection.fetch(TOUCHED)
        return {row["name"]: int(row["rows"]) for row in rows}


async def check(watch: Watch, call: Awaitable[T], rows_max: int = 100, besides: str = "") -> T:
    """Run a call, and see that no table was walked over (`besides` may be)."""
    before = await watch.touched()
    result = await call
    after = await watch.touched()
    touched = {name: rows - before.get(name, 0) for name, rows in after.items()}
    assert sum(touched.values()) > 0, "nothing was counted"
    assert {name: rows for name, rows in touched.items() if rows > rows_max and name != besides} == {}
    return result


async def check_verbs(log: PostgresLog, watch: Watch, queue: Queue, group: Group) -> None:
    """Every verb of the hot path, in small."""
    room = Room(3)
    await check(watch, push(log, queue, "x", transaction_ids=["t-new"], partition="p1"))
    await check(watch, push(log, queue, "x", transaction_ids=["t-new"], partition="p1"))
    claims = (await check(watch, log.claim(group, "owner", room))).claims
    assert len(claims) == 3
    assert not await check(watch, log.mark([claim.mark(handed=b"\x01") for claim in claims]))
    later = [claim.settle(deferred=(Deferral(0, 1),)) for claim in claims[:2]]
    await check(watch, log.commit(settlements=later, id=mint()))
    await check(watch, log.outlook([group]), rows_max=10)
    due: Claimed = await check(watch, log.due(group, "owner", room))
    await check(watch, log.commit([append_of(queue, "y", partition="p1")], [due.claims[0].settle_all()]))
    await check(watch, log.read(queue, BLOCKS // 2, messages=3))
    await check(watch, log.outcomes(group, due.claims[0].first))
    for claim in (due.claims[0], claims[2]):  # finished, and open
        await check(watch, log.find(claim.first))
    await check(watch, log.groups(queue))
    await finish(log, claims[2], *due.claims[1:])


async def fill(log: PostgresLog, queue: Queue, blocks: int, name: str = "") -> None:
    """Many small blocks, each with a transaction id, over a thousand partitions."""
    made = 0
    while made < blocks:
        count = min(1_000, blocks - made)
        await log.commit([
            append_of(queue, "x", partition=f"p{n % 1_000}", transaction_ids=[f"{name}{n}"])
            for n in range(made, made + count)
        ])  # fmt: skip
        made += count


@pytest.mark.parametrize("ordered", [False, True])
async def test_hot_verbs_touch_only_what_they_bring(postgres_dsn: str, *, ordered: bool) -> None:
    async with PostgresLog(postgres_dsn, connections_max=1) as log:
        watch = Watch(log)
        queue = await log.create_queue("orders", {"ordered": ordered})
        group = await log.create_group(queue, "workers")
        await fill(log, queue, BLOCKS)
        if not ordered:  # many that wait for a far time
            claims = (await log.claim(group, "owner", Room(2_000))).claims
            later = [claim.settle(deferred=(Deferral(0, TIME_MAX),)) for claim in claims]
            await log.commit(settlements=later, id=mint())
        if ordered:
            await log.claim(group, "first", Room(1))  # walks once, to know the partitions
            named = log.claim(group, "owner", Room(1), partition="p777")
            assert len((await check(watch, named, rows_max=30)).claims) == 1
        await check_verbs(log, watch, queue, group)


async def test_hot_verbs_stay_cheap_over_many_pieces(postgres_dsn: str) -> None:
    clock = ManualClock(BEGIN)
    async with PostgresLog(postgres_dsn, clock=clock, connections_max=1) as log:
        watch = Watch(log)
        queue = await log.create_queue("orders", {"dedupe_seconds": 2 * DAY})
        group = await log.create_group(queue, "workers")
        for day in range(PIECES):
            await fill(log, queue, 200, f"{day}-")
            clock.advance(seconds=DAY)
        await check_verbs(log, watch, queue, group)
        # Trimming goes through the list of pieces, but looks only at the end of each.
        trimmed = await check(watch, log.trim(), rows_max=150, besides="piece")
        assert trimmed.blocks == 0
        async with connected(postgres_dsn) as user:
            pieces = await user.fetchval("SELECT count(*) FROM forebay.piece WHERE parent = 'block'")
        assert pieces > PIECES


async def test_five_thousand_small_blocks_are_not_twenty_five_million_steps(
    postgres_dsn: str, awake: Awake
) -> None:
    """Neither claiming them, nor sending back a message of each; seconds are ample."""
    async with PostgresLog(postgres_dsn) as log:
        queue = await log.create_queue("orders")
        group = await log.create_group(queue, "workers")
        await fill(log, queue, 5_000)
        began = awake()
        claims = (await log.claim(group, "owner", Room(5_000))).claims
        assert len(claims) == 5_000
        assert awake() - began < 2
        began = awake()
        later = [claim.settle(deferred=(Deferral(0, 1),)) for claim in claims]
        assert not (await log.commit(settlements=later, id=mint())).conflicts
        assert awake() - began < 4


TOASTED = """
    SELECT coalesce(sum(toast_blks_read + toast_blks_hit), 0)::bigint
    FROM pg_statio_user_tables WHERE schemaname = 'forebay' AND relname LIKE 'block%'
"""


async def bodies_read(log: PostgresLog) -> int:
    """How many pages of large bodies were read so far."""
    async with log._database.connection() as connection:
        await connection.fetchval("SELECT pg_stat_force_next_flush()")
        pages: int = await connection.fetchval(TOASTED)
    return pages


@pytest.mark.parametrize("ordered", [False, True])
async def test_flows_read_the_unclaimed_blocks_once_and_no_body(postgres_dsn: str, *, ordered: bool) -> None:
    async with PostgresLog(postgres_dsn, connections_max=1) as log:
        watch = Watch(log)
        queue = await log.create_queue("orders", {"ordered": ordered})
        group = await log.create_group(queue, "workers")
        messages = [
            [
                Message(random.randbytes(1_000), f"p{n % 50}" if ordered else "", None, {"flow": name})
                for name in ("f", "g", "g", f"h{n % 3}")
            ]
            for n in range(1_000)
        ]
        await log.commit([Append.of(queue, block) for block in messages])
        await log.claim(group, "owner", Room(3_600 if not ordered else 2_000))
        before = await bodies_read(log)
        counted = await check(watch, log.flows(group), rows_max=1_100 if ordered else 110)
        assert await bodies_read(log) == before
        unclaimed = sum(count.count for count in counted)
        assert unclaimed == (2_000 if ordered else 400)
        assert {count.flow.name: count.count for count in counted}["g"] == unclaimed // 2
        held = [each for each in await log.flows(group, besides=[]) if each.is_held]
        assert sum(each.count for each in held) == 4_000 - unclaimed
        assert await bodies_read(log) == before
        partition = "p49" if ordered else None
        await log.claim(group, "owner", Room(1), partition=partition)
        before = await bodies_read(log)
        assert sum(count.count for count in await log.flows(group)) == unclaimed - 1
        assert before < await bodies_read(log) <= before + 20  # the one block that is cut
        async with log._database.connection() as connection:
            name, values = ("lane_flows", [0] * 5) if ordered else ("block_flows", [0] * 4)
            lines = await connection.fetch(f"EXPLAIN (VERBOSE) {SQL[name]}", *values)
        plan = [line[0] for line in lines]
        assert not [line for line in plan if "Seq Scan" in line]
        sorts = [n for n, line in enumerate(plan) if "Sort  (" in line]
        assert not [plan[n + 1] for n in sorts if "body" in plan[n + 1] or "Output" not in plan[n + 1]]


async def test_letters_are_changed_and_listed_without_walking_over_others(postgres_dsn: str) -> None:
    async with PostgresLog(postgres_dsn, connections_max=1) as log:
        watch = Watch(log)
        queue = await log.create_queue("orders")
        group = await log.create_group(queue, "workers")
        await push(log, queue, *["x"] * 5_000)
        (claim,) = (await log.claim(group, "owner", Room(5_000))).claims
        deaths = tuple(Death(n, "r", 1, Message(b"x")) for n in range(5_000))
        await log.commit(settlements=[claim.settle(dead=deaths)])
        first = claim.first
        await log.purge(group, range(first, first + 4_000))
        await log.dead_letters(group)  # the first to walk over old versions marks them as dead
        page = await check(watch, log.dead_letters(group, limit=10))
        assert [letter.message_id for letter in page] == list(range(first + 4_000, first + 4_010))
        some = [letter.message_id for letter in page]
        for verb in (log.redrive, log.restore, log.purge, log.restore):
            assert await check(watch, verb(group, some), rows_max=150) == some
        await log.redrive(group, range(first + 4_500, first + 5_000))
        await check(watch, log.due(group, "owner", Room(3)))
