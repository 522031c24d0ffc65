"""Everything at once from two servers: no deadlock that is not resolved, no token that settles twice."""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator

import pytest
from msgspec.structs import replace

from forebay.log.postgres import PostgresLog
from forebay.log.values import Claim, Deferral, Group, Queue, Room
from forebay.model import Conflict, Unavailable, UnknownGroup, bitmap, mint
from tests.conformance.steps import ALL, append_of, check_ledger, counts, push, take
from tests.integration.postgres_steps import connected, until_waiting

pytestmark = pytest.mark.chaos


@pytest.fixture
async def logs(postgres_dsn: str) -> AsyncIterator[list[PostgresLog]]:
    """Give two logs on one database."""
    async with PostgresLog(postgres_dsn) as one, PostgresLog(postgres_dsn) as two:
        yield [one, two]


class Hammer:
    """Random verbs on a few queues and groups; only errors of the five branches may come out."""

    def __init__(self, rng: random.Random, queues: list[Queue], groups: list[Group]) -> None:
        self.rng = rng
        self.queues = queues
        self.groups = groups
        self.held: list[Claim] = []
        self.errors: Counter[str] = Counter()
        self.settled: Counter[tuple[int, int]] = Counter()

    async def run(self, log: PostgresLog, rounds: int) -> None:
        verbs = [
            self.push, self.claim, self.claim, self.due, self.settle, self.settle, self.settle,
            self.settle_and_push, self.reclaim, self.retire, self.mark, self.mark,
        ]  # fmt: skip
        for _ in range(rounds):
            try:
                await self.rng.choice(verbs)(log)
            except (Conflict, Unavailable, UnknownGroup) as error:
                self.errors[type(error).__name__] += 1

    def some_claims(self) -> list[Claim]:
        """A few of the claims that anybody got, stale ones among them, in any order."""
        self.held = self.held[-60:]
        return self.rng.sample(self.held, min(len(self.held), self.rng.randrange(1, 8)))

    async def push(self, log: PostgresLog) -> None:
        queues = self.rng.sample(self.queues, self.rng.randrange(1, len(self.queues) + 1))
        partition = f"p{self.rng.randrange(4)}"
        await log.commit([append_of(queue, *"abcd", partition=partition) for queue in queues])

    async def claim(self, log: PostgresLog) -> None:
        owner = f"owner-{self.rng.randrange(4)}"
        claimed = await log.claim(self.rng.choice(self.groups), owner, Room(20))
        self.held.extend(claimed.claims)

    async def due(self, log: PostgresLog) -> None:
        owner = f"owner-{self.rng.randrange(4)}"
        self.held.extend((await log.due(self.rng.choice(self.groups), owner, Room(20))).claims)

    async def reclaim(self, log: PostgresLog) -> None:
        old, new = self.rng.sample(range(4), 2)
        group = self.rng.choice(self.groups)
        claimed = await log.reclaim(group, f"owner-{new}", Room(20), of=[f"owner-{old}"])
        self.held.extend(claimed.claims)

    async def retire(self, log: PostgresLog) -> None:
        await log.retire(f"owner-{self.rng.randrange(4)}")

    async def mark(self, log: PostgresLog) -> None:
        claims = self.some_claims()
        await log.mark([claim.mark(handed=bitmap.full(claim.count)) for claim in claims])

    async def settle(self, log: PostgresLog) -> None:
        await self._settle(log, [], atomic=self.rng.random() < 0.2)

    async def settle_and_push(self, log: PostgresLog) -> None:
        await self._settle(log, self.rng.sample(self.queues, 2), atomic=self.rng.random() < 0.7)

    async def _settle(self, log: PostgresLog, queues: list[Queue], *, atomic: bool) -> None:
        claims = self.some_claims()
        settlements, finished = [], []
        for claim in claims:
            left = [n for n in range(claim.count) if n not in bitmap.indexes(claim.done)]
            mine = self.rng.sample(left, self.rng.randrange(1, len(left) + 1))
            cut = self.rng.randrange(len(mine) + 1)
            deferred = tuple(Deferral(n, 1, 1) for n in mine[cut:])
            done = bitmap.of(mine[:cut], claim.count) if cut else b""
            settlements.append(claim.settle(done=done, deferred=deferred))
            finished.append([(claim.group, claim.first + n) for n in mine[:cut]])
        appends = [append_of(queue, "x", partition="p1") for queue in queues]
        receipt = await log.commit(appends, settlements, id=mint(), atomic=atomic)
        for n, names in enumerate(finished):
            if n not in receipt.conflicts:
                self.settled.update(names)


async def test_everything_at_once(logs: list[PostgresLog], rng: random.Random) -> None:
    queues = [await logs[0].create_queue(f"queue-{n}", {"ordered": n == 2}) for n in range(3)]
    groups = [await logs[0].create_group(q, f"group-{n}") for q in queues for n in range(2)]
    hammer = Hammer(rng, queues, groups)
    async with asyncio.timeout(60), asyncio.TaskGroup() as tasks:
        for n in range(10):
            tasks.create_task(hammer.run(logs[n % 2], 60))
    assert not hammer.errors["Unavailable"], "a deadlock"
    assert max(hammer.settled.values(), default=1) == 1, "a message was done twice"
    for log in logs:
        await check_ledger(log)
    done = Counter(group for group, _ in hammer.settled)
    for group in groups:
        assert (await counts(logs[0], group)).done == done[group.number]


async def test_groups_are_deleted_while_they_are_worked(logs: list[PostgresLog], rng: random.Random) -> None:
    queues = [await logs[0].create_queue(f"queue-{n}", {"ordered": n == 1}) for n in range(2)]
    groups = [await logs[0].create_group(queue, f"group-{n}") for queue in queues for n in range(3)]
    hammer = Hammer(rng, queues, groups)

    async def delete_and_create(log: PostgresLog) -> None:
        for _ in range(25):
            index = rng.randrange(len(groups))
            old = groups[index]
            queue = next(queue for queue in queues if queue.number == old.queue)
            try:
                await log.delete_group(old)
                groups[index] = await log.create_group(queue, old.name)
            except Unavailable:
                hammer.errors["not deleted"] += 1

    async with asyncio.timeout(60), asyncio.TaskGroup() as tasks:
        for n in range(8):
            tasks.create_task(hammer.run(logs[n % 2], 50))
        tasks.create_task(delete_and_create(logs[0]))
        tasks.create_task(delete_and_create(logs[1]))
    assert not hammer.errors["Unavailable"] + hammer.errors["not deleted"], "a deadlock"
    assert max(hammer.settled.values(), default=1) == 1
    for log in logs:
        await check_ledger(log)


@pytest.mark.parametrize("ordered", [False, True])
async def test_a_lost_token_never_settles(
    logs: list[PostgresLog], rng: random.Random, *, ordered: bool
) -> None:
    """The old owner settles while another takes over: one of them has the message, never both."""
    queue = await logs[0].create_queue("orders", {"ordered": ordered})
    group = await logs[0].create_group(queue, "workers")
    wins: Counter[str] = Counter()
    pushed = 0
    async with asyncio.timeout(60):
        for turn in range(40):
            for n in range(3):
                await push(logs[0], queue, "a", "b", partition=f"p{n}")
                pushed += 2
            claims = await take(logs[0], group, f"old-{turn}")
            first, second = rng.sample(logs, 2)
            settling = first.commit(settlements=[claim.settle_all() for claim in claims])
            taking = second.reclaim(group, f"new-{turn}", ALL, of=[f"old-{turn}"])
            receipt, taken = await asyncio.gather(settling, taking)
            late = {claims[n].first for n in receipt.conflicts}
            assert late == {claim.first for claim in taken.claims}
            wins.update(old=len(claims) - len(late), new=len(late))
            await logs[0].commit(settlements=[claim.settle_all() for claim in taken.claims])
            stale = await logs[1].commit(settlements=[claim.settle_all() for claim in claims])
            assert len(stale.conflicts) == len(claims)
    assert wins.total() == 120
    stats = await counts(logs[0], group)
    assert (stats.done, stats.held) == (pushed, 0)
    await check_ledger(logs[0])


async def test_settling_and_taking_over_wait_for_claims_in_the_same_order(
    logs: list[PostgresLog], postgres_dsn: str
) -> None:
    """Tokens are drawn by lot: in their order, each could hold what the other waits for."""
    queue = await logs[0].create_queue("orders")
    group = await logs[0].create_group(queue, "workers")
    for text in "ab":
        await push(logs[0], queue, text)
    claims = await take(logs[0], group, "old")
    async with connected(postgres_dsn) as user, connected(postgres_dsn) as watch:
        for claim, token in zip(claims, (2, 1), strict=True):
            await user.execute("UPDATE forebay.claim SET token = $2 WHERE token = $1", claim.token, token)
        claims = [replace(claim, token=token) for claim, token in zip(claims, (2, 1), strict=True)]
        holding = user.transaction()
        await holding.start()
        await user.execute("SELECT FROM forebay.claim WHERE token = 1 FOR UPDATE")
        settling = asyncio.create_task(logs[0].commit(settlements=[c.settle_all() for c in claims]))
        await until_waiting(watch)
        taking = asyncio.create_task(logs[1].reclaim(group, "new", ALL, of=["old"]))
        await until_waiting(watch, 2)
        await holding.rollback()
    assert list((await settling).conflicts) == []
    assert list((await taking).claims) == []
    await check_ledger(logs[0])


async def test_marking_and_taking_over_wait_for_claims_in_the_same_order(
    logs: list[PostgresLog], postgres_dsn: str
) -> None:
    queue = await logs[0].create_queue("orders")
    group = await logs[0].create_group(queue, "workers")
    for text in "ab":
        await push(logs[0], queue, text)
    claims = await take(logs[0], group, "old")
    async with connected(postgres_dsn) as user, connected(postgres_dsn) as watch:
        for claim, token in zip(claims, (2, 1), strict=True):
            await user.execute("UPDATE forebay.claim SET token = $2 WHERE token = $1", claim.token, token)
        marks = [replace(c, token=t).mark(handed=b"\x01") for c, t in zip(claims, (2, 1), strict=True)]
        holding = user.transaction()
        await holding.start()
        await user.execute("SELECT FROM forebay.claim WHERE token = 1 FOR UPDATE")
        marking = asyncio.create_task(logs[0].mark(marks))
        await until_waiting(watch)
        taking = asyncio.create_task(logs[1].reclaim(group, "new", ALL, of=["old"]))
        await until_waiting(watch, 2)
        await holding.rollback()
    assert await marking == []
    assert [claim.handed for claim in (await taking).claims] == [b"\x01", b"\x01"]
