"""Values at the edges come back from PostgreSQL as they went in."""

from collections.abc import AsyncIterator

import pytest

from forebay.log.postgres import PostgresLog
from forebay.log.values import Append, Death, Deferral
from forebay.model import Block, Limits, Message, Rejected, bitmap
from tests.conformance.steps import ALL, drain, finish, push, take_one

ODD = ["ünï çødé", "a'b\"c;--", "%s $1 \\x00 \\", "🧀" * 60, "日本語", "e\u0301", "a b", "{}[],"]


@pytest.fixture
async def log(postgres_dsn: str) -> AsyncIterator[PostgresLog]:
    """Give a log on an empty database; it is patient, as thousands of deferrals take a busy machine long."""
    async with PostgresLog(postgres_dsn, timeout_seconds=100) as opened:
        yield opened


async def test_odd_names(log: PostgresLog) -> None:
    for name in ODD:
        queue = await log.create_queue(name)
        group = await log.create_group(queue, name)
        assert (await log.queue(name)).name == name
        assert [g.name for g in await log.groups(queue)] == [name]
        await push(log, queue, name, partition=name, transaction_ids=[name])
        claim = await take_one(log, group, owner=name)
        (message,) = claim.block.decode()
        assert message == Message(name.encode(), name, name)
        assert await log.retire(name) == 1
        await finish(log, *(await log.due(group, name, ALL)).claims)
        assert await log.delete_queue(name)


async def test_odd_partitions_of_an_ordered_queue(log: PostgresLog) -> None:
    queue = await log.create_queue("orders", {"ordered": True})
    group = await log.create_group(queue, "workers")
    for number in range(2):
        for name in ["", *ODD]:
            await push(log, queue, f"{name}{number}", partition=name)
    (named,) = (await log.claim(group, "owner", type(ALL)(1), partition=ODD[3])).claims
    assert named.block.partition == ODD[3]
    await finish(log, named)
    assert sorted(await drain(log, group)) == sorted(
        f"{name}{number}" for name in ["", *ODD] for number in range(2) if (name, number) != (ODD[3], 0)
    )


@pytest.mark.parametrize("name", ["nul\0", "lone \ud800"])
async def test_text_that_postgresql_cannot_hold_is_rejected(log: PostgresLog, name: str) -> None:
    queue = await log.create_queue("orders")
    group = await log.create_group(queue, "workers")
    await push(log, queue, "a")
    with pytest.raises(Rejected):
        await log.claim(group, name)
    with pytest.raises(Rejected):
        await log.heartbeat(name)
    with pytest.raises(Rejected):
        await log.publish(name, [])
    assert await drain(log, group) == ["a"]


async def test_a_reason_with_a_nul_is_kept_without_it(log: PostgresLog) -> None:
    queue = await log.create_queue("orders")
    group = await log.create_group(queue, "workers")
    await push(log, queue, "a", "b")
    claim = await take_one(log, group)
    deaths = tuple(
        Death(n, reason, n, claim.block.decode().message(n))
        for n, reason in enumerate(["x\0y 🧀", "é" * 10_000])
    )
    receipt = await log.commit(settlements=[claim.settle(dead=deaths, worker="w\0")])
    receipt.raise_for_conflicts()
    letters = await log.dead_letters(group)
    assert [letter.reason for letter in letters] == ["x\N{REPLACEMENT CHARACTER}y 🧀", "é" * 10_000]
    assert [letter.message().payload for letter in letters] == [b"a", b"b"]
    (outcome,) = await log.outcomes(group, claim.first)
    assert (outcome.dead[0][1], outcome.worker) == ("x\0y 🧀", "w\0")


async def test_the_largest_messages(log: PostgresLog) -> None:
    queue = await log.create_queue("orders")
    group = await log.create_group(queue, "workers")
    size = Limits().message_bytes_max
    payloads = [bytes([n]) * size for n in range(8)]
    await log.commit([Append.of(queue, Block.of([Message(payload) for payload in payloads]))])
    claim = await take_one(log, group)
    assert claim.block.decode().payloads == payloads
    await finish(log, claim)


@pytest.mark.parametrize("count", [1, 7, 8, 9, 10_000])
async def test_bitmaps_of_every_length(log: PostgresLog, count: int) -> None:
    """PostgreSQL counts the bits of a byte from the other end."""
    queue = await log.create_queue("orders")
    group = await log.create_group(queue, "workers")
    messages = [Message(b"%d" % n, f"p{n}", f"t{n}") for n in range(count)]
    await log.commit([Append.of(queue, Block.of(messages))])
    claim = await take_one(log, group)
    done, handed = bitmap.of(range(0, count, 3), count), bitmap.of(range(1, count, 5), count)
    await log.mark([claim.mark(handed=handed)])
    await log.commit(settlements=[claim.settle(done=done)])
    left = count - bitmap.count(done)
    taken = (await log.reclaim(group, "new", ALL, of=["owner"])).claims
    if not left:
        assert not taken
        return
    assert (taken[0].done, taken[0].handed) == (done, handed)
    rest = [n for n in range(count) if n % 3]
    deferred = tuple(Deferral(n, 1, 1) for n in rest)
    receipt = await log.commit(settlements=[taken[0].settle(deferred=deferred)])
    receipt.raise_for_conflicts()
    back = (await log.due(group, "new", ALL)).claims
    assert [c.first - claim.first for c in back] == rest
    await finish(log, *back)


async def test_numbers_out_of_range_are_rejected(log: PostgresLog) -> None:
    queue = await log.create_queue("orders")
    group = await log.create_group(queue, "workers")
    await push(log, queue, "a")
    claim = await take_one(log, group)
    for deferral in (Deferral(0, 1 << 63), Deferral(0, 1, 1 << 31)):
        with pytest.raises(Rejected):
            await log.commit(settlements=[claim.settle(deferred=(deferral,))])
    await finish(log, claim)
