"""TarantoolLog and its server: several logs on one, what it must be set to, who may come, when it is full."""

import asyncio
import random
from collections import Counter
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from typing import Any

import asynctnt
import pytest
from asynctnt.exceptions import ErrorCode, TarantoolDatabaseError

from forebay.log.tarantool import TarantoolLog
from forebay.log.tarantool.server import SCHEMA, in_our_words, parse_address
from forebay.log.values import Append, Queue, Room
from forebay.model import Full, Limits, Message, Misconfigured, Unavailable, sequence_of
from tests.conformance.steps import append_of, check_ledger, counts, push, stored, texts
from tests.servers import ServerUnavailableError, TarantoolServer, absent

MEBI = 1 << 20


@contextmanager
def server_with(**settings: str) -> Iterator[TarantoolServer]:
    """A server with settings of its own."""
    try:
        server = TarantoolServer(settings=settings)
    except ServerUnavailableError as error:
        absent(str(error))
    with server:
        yield server


async def run(server: TarantoolServer, script: str) -> Any:
    """Have the server run a script."""
    async with asynctnt.Connection(host="127.0.0.1", port=server.port) as connection:
        return (await connection.eval(script)).body


async def test_two_logs_share_a_server(tarantool: TarantoolServer, rng: random.Random) -> None:
    """Many writers, small and large blocks, atomic or not, and groups that claim all the while."""
    writing = 8
    pushed, read = Counter[str](), Counter[str]()
    seen = list[int]()
    async with TarantoolLog(tarantool.url) as one, TarantoolLog(tarantool.url) as two:
        queue = await one.create_queue("orders")
        group = await two.create_group(queue, "readers")

        async def write(log: TarantoolLog, name: int) -> None:
            nonlocal writing
            for number in range(20):
                payloads = [f"{name}.{number}.{n}" for n in range(rng.choice((1, 2, 3, 50, 400)))]
                await log.commit([append_of(queue, *payloads)], atomic=rng.random() < 0.3)
                pushed.update(payloads)
            writing -= 1

        async def claim(log: TarantoolLog, owner: str) -> None:
            idle = False
            while not idle:
                idle = writing == 0
                for found in (await log.claim(group, owner, Room(rng.choice((1, 7, 5_000))))).claims:
                    idle = False
                    seen.extend(range(sequence_of(found.first), sequence_of(found.first) + found.count))
                    read.update(texts(found))
                    assert not (await log.commit(settlements=[found.settle_all()])).conflicts

        async with asyncio.timeout(60), asyncio.TaskGroup() as tasks:
            for name in range(writing):
                tasks.create_task(write((one, two)[name % 2], name))
            tasks.create_task(claim(one, "one"))
            tasks.create_task(claim(two, "two"))
        assert sorted(seen) == list(range(1, sum(pushed.values()) + 1))
        assert read == pushed
        assert (await counts(one, group)).done == len(seen)
        await check_ledger(two)


async def test_an_answer_never_tells_of_what_is_not_on_disk(tarantool: TarantoolServer) -> None:
    """A transaction that waits for the disk is seen by others: whoever sees it waits, too."""
    async with TarantoolLog(tarantool.url) as log:
        await log.create_queue("first")
    script = """
        local fiber, verbs, written = require('fiber'), nil, 0
        for name, value in pairs(_G) do
            if type(name) == 'string' and name:match('^forebay_%x+$') then verbs = value end
        end
        fiber.create(function()
            verbs.heartbeat({'somebody'})
            written = written + 1
        end)
        local early = written
        local _, owners = verbs.owners()
        return early, #owners, written
    """
    assert await run(tarantool, script) == [0, 1, 1]


@pytest.mark.parametrize(
    ("name", "value"), [("wal_mode", "'write'"), ("wal_mode", "'none'"), ("memtx_max_tuple_size", str(MEBI))]
)
async def test_a_server_that_would_lose_or_refuse_blocks_is_refused(name: str, value: str) -> None:
    with server_with(**{name: value}) as server:
        with pytest.raises(Misconfigured, match=name):
            async with TarantoolLog(server.url):
                pass
        assert await run(server, "return box.space.forebay_queue == nil") == [True]


async def test_smaller_limits_need_smaller_rows() -> None:
    with server_with(memtx_max_tuple_size=str(2 * MEBI)) as server:
        limits = Limits(message_bytes_max=MEBI // 2, block_bytes_max=MEBI)
        async with TarantoolLog(server.url, limits=limits) as log:
            queue = await log.create_queue("orders")
            await push(log, queue, "a")
            assert await stored(log, queue) == ["a"]


async def test_logs_that_open_at_once_make_one_set_of_spaces(tarantool: TarantoolServer) -> None:
    logs = [TarantoolLog(tarantool.url) for _ in range(8)]
    async with AsyncExitStack() as stack:
        await asyncio.gather(*map(stack.enter_async_context, logs))
        queues = await asyncio.gather(*(log.create_queue("orders") for log in logs))
        assert {queue.number for queue in queues} == {1}


async def test_publishes_of_one_stage_at_once_answer_alike(tarantool: TarantoolServer) -> None:
    async with TarantoolLog(tarantool.url) as one, TarantoolLog(tarantool.url) as two:
        queue = await one.create_queue("orders")
        appends = [append_of(queue, f"{n}", "same", transaction_ids=[f"{n}", "same"]) for n in range(50)]
        await one.stage("epoch", appends)
        ids = [append.block.id for append in appends]
        receipts = await asyncio.gather(*(log.publish("epoch", ids) for log in (one, two, one, two)))
        answers = [[appended.ids() for appended in receipt.appended] for receipt in receipts]
        assert all(answer == answers[0] for answer in answers)
        assert len(await stored(one, queue)) == 51
        assert {place[1] for place in answers[0]} == {answers[0][0][1]}


async def test_who_is_cancelled_leaves_the_others_alone(tarantool: TarantoolServer) -> None:
    async with TarantoolLog(tarantool.url) as log:
        connection = log._server._connection
        calls = [asyncio.create_task(log.heartbeat(f"owner-{n}")) for n in range(40)]
        await asyncio.sleep(0)
        for call in calls[::2]:
            call.cancel()
        results = await asyncio.gather(*calls, return_exceptions=True)
        assert results[1::2] == [None] * 20
        assert all(isinstance(result, asyncio.CancelledError) for result in results[::2])
        assert len(await log.owners()) >= 20
        assert log._server._connection is connection


async def test_a_schema_of_a_newer_forebay_is_left_alone(tarantool: TarantoolServer) -> None:
    async with TarantoolLog(tarantool.url):
        pass
    newer = f"box.space.forebay_schema:replace({{1, {SCHEMA + 1}}})"
    await run(tarantool, newer)
    with pytest.raises(Misconfigured, match="newer"):
        async with TarantoolLog(tarantool.url):
            pass
    tarantool.restart()
    with pytest.raises(Misconfigured, match="newer"):
        async with TarantoolLog(tarantool.url):
            pass


async def test_a_user_needs_no_more_than_it_is_told(tarantool: TarantoolServer) -> None:
    address = f"tarantool://bay:p%40ss%3Aword@127.0.0.1:{tarantool.port}"
    async with TarantoolLog(address) as log:
        queue = await log.create_queue("orders")
        await push(log, queue, "a")
        assert await stored(log, queue) == ["a"]
    for wrong in ("tarantool://bay:no@", "tarantool://nobody:no@"):
        with pytest.raises(Misconfigured, match="refuses the user"):
            async with TarantoolLog(f"{wrong}127.0.0.1:{tarantool.port}"):
                pass


@pytest.mark.parametrize(
    "url", ["tarantool://", "tarantool://h:port", "tarantool://h/db", "tarantool://h?x=1"]
)
def test_an_address_that_names_no_server_is_refused(url: str) -> None:
    with pytest.raises(Misconfigured, match="no address"):
        parse_address(url)


def test_a_disk_that_takes_nothing_is_named() -> None:
    with pytest.raises(Unavailable, match=r"write to disk; see its disk.*same id"), in_our_words():
        raise TarantoolDatabaseError(ErrorCode.ER_WAL_IO, "Failed to write to disk", None)


async def fill(log: TarantoolLog, queue: Queue, size: int = MEBI - 100) -> int:
    """Append what can't be compressed until nothing more fits; how often."""
    rng = random.Random(0)
    for kept in range(100 * MEBI // size):
        try:
            await log.commit([Append.of(queue, [Message(rng.randbytes(size))])])
        except Full:
            return kept
    pytest.fail("there is no end to it")


async def test_a_full_server_keeps_nothing_of_what_it_refuses_and_goes_on() -> None:
    with server_with(memtx_memory=str(64 * MEBI)) as server:
        async with TarantoolLog(server.url, retry_seconds=0.1) as log:
            queue = await log.create_queue("orders", {"keep_seconds": 0})
            group = await log.create_group(queue, "workers")
            kept = await fill(log, queue)
            stats = await counts(log, group)
            assert (stats.accepted, stats.ready) == (kept, kept)
            for claim in (await log.claim(group, "owner", Room(kept - 1))).claims:
                await log.commit(settlements=[claim.settle_all()])
            assert (await log.trim()).blocks == kept - 1
            await push(log, queue, "a")
            await check_ledger(log)


async def test_a_server_that_takes_no_more_blocks_is_worked_off() -> None:
    """Many small blocks: to take and to settle them needs memory, too, for each."""
    with server_with(memtx_memory=str(64 * MEBI)) as server:
        async with TarantoolLog(server.url, retry_seconds=0.1) as log:
            queue = await log.create_queue("orders", {"dedupe_seconds": 0})
            group = await log.create_group(queue, "workers")
            last = append_of(queue, "last")
            await log.commit([last])
            await fill(log, queue, 1_000)
            with pytest.raises(Full, match=r"little memory left.*raise its memtx_memory"):
                await log.stage("s", [append_of(queue, "staged")])
            assert (await log.commit([last])).appended[0].known  # what is there already is answered as before
            worked = 0
            while claims := (await log.claim(group, "owner", Room(5_000))).claims:
                await log.commit(settlements=[claim.settle_all() for claim in claims])
                worked += sum(claim.count for claim in claims)
            stats = await counts(log, group)
            assert (stats.accepted, stats.done) == (worked, worked)
            await log.configure_queue("orders", {"keep_seconds": 0})
            assert (await log.trim()).blocks > 0
            await check_ledger(log)


async def test_bytes_and_names_come_back_as_they_were(tarantool: TarantoolServer) -> None:
    every = bytes(range(256))
    async with TarantoolLog(tarantool.url) as log:
        queue = await log.create_queue("zürich-очередь", {"ordered": True, "labels": {"ü": "ж"}})
        group = await log.create_group(queue, "gruppe-ü")
        assert await log.queue("zürich-очередь") == queue
        await log.commit([append_of(queue, "x", partition="ключ-€")])
        (claim,) = (await log.claim(group, "besitzer-ß", partition="ключ-€")).claims
        assert claim.block.partition == "ключ-€"
        assert [owner.name for owner in await log.owners()] == ["besitzer-ß"]
        other = await log.create_queue("bytes")
        await log.commit([Append.of(other, [Message(every)])])
        (block,) = await log.read(other)
        assert block.decode().payloads == [every]
