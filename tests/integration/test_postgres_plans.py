"""No work is proportional to the backlog: what PostgreSQL does for the hot verbs, as it says itself.

auto_explain writes the plan of every statement, also inside functions, with the rows it touched.
"""

import json
import re
from collections.abc import Awaitable, Iterator
from typing import Any, TypeVar

import pytest

from forebay.log.postgres import PostgresLog
from forebay.log.values import Claimed, Deferral, Group, Queue, Room
from forebay.model import ManualClock, mint
from tests.conformance.rigs import BEGIN, DAY
from tests.conformance.steps import append_of, finish, push
from tests.integration.postgres_steps import connected
from tests.servers import PostgresServer, ServerUnavailableError, absent

T = TypeVar("T")
BLOCKS = 20_000
PIECES = 30
BIG = re.compile(r"^(block|receipt|dedupe|outcome|head|cursor|tally|claim|lane)(_\d+)?$")
EXPLAIN = {
    "session_preload_libraries": "auto_explain",
    "auto_explain.log_min_duration": "0",
    "auto_explain.log_nested_statements": "on",
    "auto_explain.log_analyze": "on",
    "auto_explain.log_timing": "off",
    "auto_explain.log_format": "json",
    "log_line_prefix": "",
    "log_checkpoints": "off",
    "autovacuum": "off",
}
PLAN = re.compile(r"^LOG:  duration: .*? plan:\n((?:\t.*\n)+)", re.MULTILINE)


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    """Give a server that explains itself."""
    try:
        server = PostgresServer("wheel-18", settings=EXPLAIN)
        server.start()
    except ServerUnavailableError as error:
        absent(str(error))
    with server:
        yield server


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Give the nodes of a plan that were run."""
    if plan.get("Actual Loops", 1) > 0:
        yield plan
        for child in plan.get("Plans", ()):
            yield from nodes(child)


def faults(node: dict[str, Any], rows_max: int) -> list[str]:
    """What a node does that grows with the backlog."""
    kind, table = node["Node Type"], node.get("Relation Name", "")
    touched = node.get("Actual Rows", 0) + node.get("Rows Removed by Filter", 0)
    touched *= node.get("Actual Loops", 1)
    found = []
    if BIG.match(table) and kind in ("Seq Scan", "Bitmap Heap Scan"):
        found.append(f"{kind} on {table}")
    if touched > rows_max:
        found.append(f"{kind} on {table or 'rows'} touches {touched}")
    return found


class Watch:
    """Reads the plans that a server wrote since the last look."""

    def __init__(self, server: PostgresServer) -> None:
        self._log = server.log
        self._at = self._log.stat().st_size

    def skip(self) -> None:
        self._at = self._log.stat().st_size

    def plans(self) -> list[dict[str, Any]]:
        with self._log.open("rb") as file:
            file.seek(self._at)
            text = file.read().decode(errors="replace")
        self._at += len(text.encode())
        return [json.loads(match[1]) for match in PLAN.finditer(text + "\n")]


async def check(watch: Watch, call: Awaitable[T], rows_max: int = 100) -> T:
    """Run a call and look at its plans; what it may touch is a multiple of what it brings."""
    watch.skip()
    result = await call
    plans = watch.plans()
    assert plans, "the server explained nothing"
    found = {
        (fault, plan["Query Text"].strip()[:200])
        for plan in plans
        for node in nodes(plan["Plan"])
        for fault in faults(node, rows_max)
    }
    assert not found
    return result


async def check_verbs(log: PostgresLog, watch: Watch, queue: Queue, group: Group) -> None:
    """Every verb of the hot path, in small."""
    room = Room(3)
    await check(watch, push(log, queue, "x", transaction_ids=["t-new"], partition="p1"))
    await check(watch, push(log, queue, "x", transaction_ids=["t-new"], partition="p1"))
    claims = (await check(watch, log.claim(group, "owner", room))).claims
    assert len(claims) == 3
    later = [claim.settle(deferred=(Deferral(0, 1),)) for claim in claims[:2]]
    await check(watch, log.commit(settlements=later, id=mint()))
    due: Claimed = await check(watch, log.due(group, "owner", room))
    await check(watch, log.commit([append_of(queue, "y", partition="p1")], [due.claims[0].settle_all()]))
    await check(watch, log.read(queue, BLOCKS // 2, messages=3))
    await check(watch, log.outcomes(group, due.claims[0].first))
    await check(watch, log.groups(queue))
    await finish(log, claims[2], *due.claims[1:])


async def fill(log: PostgresLog, queue: Queue, blocks: int) -> None:
    """Many small blocks, each with a transaction id, over a hundred partitions."""
    made = 0
    while made < blocks:
        count = min(1_000, blocks - made)
        await log.commit([
            append_of(queue, "x", partition=f"p{n % 100}", transaction_ids=[f"{queue.number}-{n}"])
            for n in range(made, made + count)
        ])  # fmt: skip
        made += count


@pytest.mark.parametrize("ordered", [False, True])
async def test_hot_verbs_touch_only_what_they_bring(
    server: PostgresServer, *, ordered: bool
) -> None:
    dsn = server.create_database()
    watch = Watch(server)
    async with PostgresLog(dsn) as log:
        queue = await log.create_queue("orders", {"ordered": ordered})
        group = await log.create_group(queue, "workers")
        await fill(log, queue, BLOCKS)
        if ordered:
            await log.claim(group, "first", Room(1))  # walks over the backlog once, to know its partitions
            named = log.claim(group, "owner", Room(1), partition="p77")
            assert len((await check(watch, named)).claims) == 1
        await check_verbs(log, watch, queue, group)
    server.drop_database(dsn)


async def test_hot_verbs_stay_cheap_over_many_pieces(server: PostgresServer) -> None:
    dsn = server.create_database()
    watch = Watch(server)
    clock = ManualClock(BEGIN)
    async with PostgresLog(dsn, clock=clock) as log:
        queue = await log.create_queue("orders", {"dedupe_seconds": 2 * DAY})
        group = await log.create_group(queue, "workers")
        for _ in range(PIECES):
            await fill(log, queue, 50)
            await push(log, queue, "x")
            clock.advance(seconds=DAY)
        await check_verbs(log, watch, queue, group)
        async with connected(dsn) as user:
            pieces = await user.fetchval("SELECT count(*) FROM forebay.piece WHERE parent = 'block'")
        assert pieces > PIECES
        # Trimming looks at each piece, not into it: all of it is needed still.
        await check(watch, log.trim(), rows_max=20 * PIECES)
    server.drop_database(dsn)


async def test_a_claim_of_many_small_blocks_is_linear(server: PostgresServer) -> None:
    """Not a join of all blocks with all claims, nor of all settlements with all deferrals."""
    dsn = server.create_database()
    watch = Watch(server)
    async with PostgresLog(dsn) as log:
        queue = await log.create_queue("orders")
        group = await log.create_group(queue, "workers")
        await fill(log, queue, 2_000)
        claimed = await check(watch, log.claim(group, "owner", Room(2_000)), rows_max=2_100)
        assert len(claimed.claims) == 2_000
        later = [claim.settle(deferred=(Deferral(0, 1),)) for claim in claimed.claims]
        await check(watch, log.commit(settlements=later, id=mint()), rows_max=2_100)
    server.drop_database(dsn)
