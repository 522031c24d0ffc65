"""Several servers on one database: sequence numbers without gaps, every message to one worker, once."""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING

import pytest

from forebay.log.postgres import PostgresLog
from forebay.log.postgres.log import SQL
from forebay.log.postgres.writing import write_marks
from forebay.log.values import Append, Claim, Deferral, Group, Mark, Queue, Room
from forebay.model import (
    Block,
    IdMint,
    ManualClock,
    Message,
    Rejected,
    UnknownQueue,
    bitmap,
    mint,
    sequence_of,
)
from tests.conformance.steps import (
    ALL,
    append_of,
    check_ledger,
    counts,
    drain,
    finish,
    push,
    stored,
    take_one,
    texts,
)
from tests.integration.postgres_steps import WAITERS, connected, until_waiting

if TYPE_CHECKING:
    from forebay.log.postgres.database import Connection

HOLD_TALLY = "SELECT forebay.lock_tally($1)"


@pytest.fixture
async def logs(postgres_dsn: str) -> AsyncIterator[tuple[PostgresLog, PostgresLog]]:
    """Give two logs on one database."""
    async with PostgresLog(postgres_dsn) as one, PostgresLog(postgres_dsn) as two:
        yield one, two


async def test_a_cursor_never_skips_what_commits_late(
    logs: tuple[PostgresLog, PostgresLog], rng: random.Random
) -> None:
    """Many writers, small and large blocks, atomic or not, and a group that claims all the while."""
    queue = await logs[0].create_queue("orders")
    group = await logs[1].create_group(queue, "readers")
    writing = 12
    pushed: Counter[str] = Counter()
    ids: list[int] = []

    async def write(log: PostgresLog, name: int) -> None:
        nonlocal writing
        for number in range(25):
            count = rng.choice((1, 2, 3, 50, 400))
            payloads = [f"{name}.{number}.{n}" for n in range(count)]
            receipt = await log.commit([append_of(queue, *payloads)], atomic=rng.random() < 0.3)
            ids.extend(receipt.appended[0].ids())
            pushed.update(payloads)
        writing -= 1

    seen: list[int] = []
    read: Counter[str] = Counter()

    async def claim(log: PostgresLog) -> None:
        idle = False
        while not idle:
            idle = writing == 0
            claims = (await log.claim(group, "reader", Room(rng.choice((1, 7, 5_000))))).claims
            for claim in claims:
                idle = False
                seen.extend(range(sequence_of(claim.first), sequence_of(claim.first) + claim.count))
                read.update(texts(claim))

    async with asyncio.timeout(60), asyncio.TaskGroup() as tasks:
        for name in range(writing):
            tasks.create_task(write(logs[name % 2], name))
        tasks.create_task(claim(logs[0]))
    assert seen == list(range(1, len(ids) + 1))
    assert len(set(ids)) == len(ids)
    assert sorted(map(sequence_of, ids)) == seen
    assert read == pushed
    await check_ledger(logs[0])


@pytest.mark.parametrize("ordered", [False, True])
async def test_two_servers_hand_out_every_message_once(
    logs: tuple[PostgresLog, PostgresLog], rng: random.Random, *, ordered: bool
) -> None:
    """Claim, settle in parts, defer and take again, from both at once."""
    queue = await logs[0].create_queue("orders", {"ordered": ordered})
    group = await logs[0].create_group(queue, "workers")
    total = 0
    for number in range(60):
        size = rng.choice((1, 5, 30))
        texts_ = [f"{number % 7}:{total + n:05}" for n in range(size)]
        await push(logs[number % 2], queue, *texts_, partition=f"p{number % 7}")
        total += size
    done: Counter[str] = Counter()
    order: dict[str, list[str]] = {}

    async def settle(log: PostgresLog, claim: Claim, most: int) -> bool:
        """Finish up to `most` messages, defer the others; whether that was all of them."""
        names = texts(claim)
        cut = rng.randrange(claim.count + 1) if rng.random() < 0.4 else claim.count
        cut = min(cut, most)
        for name in names[:cut]:
            done[name] += 1
            order.setdefault(name.partition(":")[0], []).append(name)
        deferred = (Deferral(cut, 1, count=claim.count - cut),) if cut < claim.count else ()
        done_bits = bitmap.of(range(cut), claim.count) if cut else b""
        receipt = await log.commit(settlements=[claim.settle(done=done_bits, deferred=deferred)], id=mint())
        assert not receipt.conflicts
        return cut == claim.count

    async def work(log: PostgresLog, owner: str) -> None:
        while sum(done.values()) < total:
            room = Room(rng.choice((1, 10, 200)))
            claims = (await log.claim(group, owner, room)).claims
            claims = [*claims, *(await log.due(group, owner, room)).claims]
            stuck: set[str | None] = set()  # a worker keeps the order too: what follows goes back
            for claim in claims:
                most = 0 if claim.block.partition in stuck else claim.count
                if not await settle(log, claim, most) and ordered:
                    stuck.add(claim.block.partition)

    async with asyncio.timeout(60), asyncio.TaskGroup() as tasks:
        for number in range(6):
            tasks.create_task(work(logs[number % 2], f"worker-{number}"))
    assert set(done.values()) == {1}
    assert len(done) == total
    if ordered:
        assert all(names == sorted(names) for names in order.values())
    stats = await counts(logs[0], group)
    assert (stats.done, stats.held, stats.deferred, stats.ready) == (total, 0, 0, 0)
    await check_ledger(logs[1])


async def prepare(log: PostgresLog) -> tuple[Queue, Group, Claim]:
    """One message in the hands of an owner."""
    queue = await log.create_queue("orders")
    group = await log.create_group(queue, "workers")
    await push(log, queue, "a")
    return queue, group, await take_one(log, group)


async def test_a_commit_sent_again_while_the_first_still_runs_is_no_conflict(
    logs: tuple[PostgresLog, PostgresLog], postgres_dsn: str
) -> None:
    """A server gave up on its connection, but PostgreSQL had not given up on the statement."""
    queue, group, claim = await prepare(logs[0])
    commit_id, append = mint(), append_of(queue, "b")
    async with connected(postgres_dsn) as user, connected(postgres_dsn) as watch:
        holding = user.transaction()
        await holding.start()
        await user.execute(HOLD_TALLY, group.number)
        first = asyncio.create_task(logs[0].commit([append], [claim.settle_all()], id=commit_id))
        await until_waiting(watch)
        second = asyncio.create_task(logs[1].commit([append], [claim.settle_all()], id=commit_id))
        third = asyncio.create_task(logs[1].commit(settlements=[claim.settle_all()], id=commit_id))
        await until_waiting(watch, 2)
        await holding.rollback()
    receipts = await asyncio.gather(first, second, third)
    assert [list(receipt.conflicts) for receipt in receipts] == [[], [], []]
    assert receipts[0].appended[0].ids() == receipts[1].appended[0].ids()
    assert (await counts(logs[0], group)).done == 1
    assert await stored(logs[0], queue) == ["a", "b"]


async def test_a_settlement_sent_again_while_the_first_still_runs_is_no_conflict(
    logs: tuple[PostgresLog, PostgresLog], postgres_dsn: str
) -> None:
    """The same without a block, so that no queue's lock puts one behind the other."""
    _, group, claim = await prepare(logs[0])
    commit_id = mint()
    async with connected(postgres_dsn) as user, connected(postgres_dsn) as watch:
        holding = user.transaction()
        await holding.start()
        await user.execute(HOLD_TALLY, group.number)
        commits = []
        for count, log in enumerate(logs, start=1):
            settling = log.commit(settlements=[claim.settle_all()], id=commit_id)
            commits.append(asyncio.create_task(settling))
            await until_waiting(watch, count)
        await holding.rollback()
    assert [list((await commit).conflicts) for commit in commits] == [[], []]
    assert (await counts(logs[0], group)).done == 1


async def test_a_partition_is_not_forgotten_between_settling_and_discovering(
    logs: tuple[PostgresLog, PostgresLog], postgres_dsn: str
) -> None:
    """One server finds nothing after the run it settles, another that the run is still out."""
    queue = await logs[0].create_queue("orders", {"ordered": True})
    group = await logs[0].create_group(queue, "workers")
    await push(logs[0], queue, "a", partition="p")
    claim = await take_one(logs[0], group)
    async with connected(postgres_dsn) as user, connected(postgres_dsn) as watch:
        holding = user.transaction()
        await holding.start()
        await user.execute(HOLD_TALLY, group.number)
        settling = asyncio.create_task(finish(logs[0], claim))
        await until_waiting(watch)
        await push(logs[1], queue, "b", partition="p")
        claiming = asyncio.create_task(drain(logs[1], group))
        while await watch.fetchval(WAITERS) < 2 and not claiming.done():
            pass
        await holding.rollback()
    await settling
    assert [*await claiming, *await drain(logs[0], group)] == ["b"]


async def test_one_commit_id_twice_in_one_flush_is_answered_twice(
    logs: tuple[PostgresLog, PostgresLog],
) -> None:
    queue, group, claim = await prepare(logs[0])
    commit_id = mint()
    _, receipts = await asyncio.gather(
        push(logs[0], queue, "flying"),
        asyncio.gather(*(logs[0].commit(settlements=[claim.settle_all()], id=commit_id) for _ in range(3))),
    )
    assert [list(receipt.conflicts) for receipt in receipts] == [[], [], []]
    assert (await counts(logs[0], group)).done == 1


async def test_a_queue_made_anew_elsewhere_as_another_kind_is_not_poisoned(
    logs: tuple[PostgresLog, PostgresLog],
) -> None:
    one, two = logs
    old = await one.create_queue("orders")
    await push(one, old, "a")
    await two.delete_queue("orders")
    queue = await two.create_queue("orders", {"ordered": True})
    group = await two.create_group(queue, "workers")
    with pytest.raises(UnknownQueue):
        await push(one, old, "b", partition="p")
    await push(one, queue, "c", partition="p")
    assert await drain(two, group) == ["c"]


async def test_an_id_from_far_ahead_of_the_databases_clock_is_refused(
    logs: tuple[PostgresLog, PostgresLog],
) -> None:
    """Its receipt would not be found again: a retry would be written twice."""
    queue, group, claim = await prepare(logs[0])
    async with connected(logs[0]._database._dsn) as user:
        now: int = await user.fetchval("SELECT forebay.now_us()")
    ahead = IdMint(ManualClock(now + 86_400_000_000 * 5 // 2))
    late = Append.of(queue, Block.of([Message(b"x")], id=ahead.mint()))
    good = append_of(queue, "b")
    results = await asyncio.gather(
        push(logs[0], queue, "flying"),
        logs[0].commit([late]),
        logs[0].commit([good]),
        logs[0].commit(settlements=[claim.settle_all()], id=ahead.mint()),
        return_exceptions=True,
    )
    assert [type(result) for result in results].count(Rejected) == 2
    assert "day in the future" in str(results[1])
    assert await stored(logs[0], queue) == ["a", "flying", "b"]
    await finish(logs[0], claim)
    assert await drain(logs[0], group, room=ALL) == ["flying", "b"]


async def test_concurrent_marks_share_a_call(
    logs: tuple[PostgresLog, PostgresLog], monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = await logs[0].create_queue("orders")
    group = await logs[0].create_group(queue, "workers")
    for number in range(50):
        await push(logs[0], queue, f"{number}")
    claims = (await logs[0].claim(group, "owner", ALL)).claims
    batches: list[int] = []

    async def watched(connection: "Connection", marks: Sequence[Mark]) -> list[int]:
        batches.append(len(marks))
        return await write_marks(connection, marks)

    async def never() -> None:
        raise AssertionError("nobody waits for the disk")

    monkeypatch.setattr("forebay.log.postgres.log.write_marks", watched)
    with monkeypatch.context() as patched:
        patched.setattr(logs[0]._disk, "wait", never)
        await asyncio.gather(*(logs[0].mark([claim.mark(handed=b"\x01")]) for claim in claims))
    assert batches == [50]
    taken = (await logs[1].reclaim(group, "other", ALL, of=["owner"])).claims
    assert [claim.handed for claim in taken] == [b"\x01"] * 50


async def test_a_mark_does_not_wait_for_the_disk(logs: tuple[PostgresLog, PostgresLog]) -> None:
    queue = await logs[0].create_queue("orders")
    group = await logs[0].create_group(queue, "workers")
    await push(logs[0], queue, "a")
    claim = await take_one(logs[0], group)
    async with logs[0]._database.transaction() as connection:
        assert await write_marks(connection, [claim.mark(handed=b"\x01")]) == []
        assert await connection.fetchval("SHOW synchronous_commit") == "off"
    async with logs[0]._database.connection() as connection:
        assert await connection.fetchval("SHOW synchronous_commit") == "on"


async def test_a_mark_that_waits_for_its_claim_sees_what_became_of_it(
    logs: tuple[PostgresLog, PostgresLog], postgres_dsn: str
) -> None:
    queue = await logs[0].create_queue("orders")
    group = await logs[0].create_group(queue, "workers")
    await push(logs[0], queue, *"abc")
    await push(logs[0], queue, *"def")
    kept, lost = (await logs[0].claim(group, "owner", ALL)).claims
    async with connected(postgres_dsn) as user, connected(postgres_dsn) as watcher:
        async with user.transaction():  # another server has marked the one, and takes over the other
            await user.execute("UPDATE forebay.claim SET handed = B'001' WHERE token = $1", kept.token)
            await user.execute("UPDATE forebay.claim SET token = 7 WHERE token = $1", lost.token)
            marks = [lost.mark(handed=b"\x07"), kept.mark(handed=b"\x01")]
            marking = asyncio.create_task(logs[0].mark(marks))
            await until_waiting(watcher)
        assert await marking == [0]
    first, second = (await logs[1].reclaim(group, "other", ALL, of=["owner"])).claims
    assert (first.handed, second.handed) == (b"\x05", b"\x00")


async def test_a_group_is_made_though_another_server_deletes_it_meanwhile(
    logs: tuple[PostgresLog, PostgresLog], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was in the way of the insert, and is gone when it is looked for."""
    queue = await logs[0].create_queue("orders")
    in_the_way = "SELECT 1 WHERE $1::int + $3::bigint + $4::bigint IS NULL AND $2::text IS NULL"
    statements = [in_the_way, SQL["insert_group"]]

    class Once(dict[str, str]):
        def __getitem__(self, name: str) -> str:
            return statements.pop(0) if name == "insert_group" else super().__getitem__(name)

    monkeypatch.setattr("forebay.log.postgres.log.SQL", Once(SQL))
    group = await logs[0].create_group(queue, "workers")
    assert (statements, await logs[1].groups(queue)) == ([], [group])
    await push(logs[0], queue, "a")
    assert await drain(logs[1], group) == ["a"]
