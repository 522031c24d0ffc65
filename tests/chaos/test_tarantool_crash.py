"""Tarantool dies, or its connection does: what was acknowledged holds, and nothing is there twice."""

import asyncio
import random
import time
from collections.abc import AsyncIterator

import pytest

from forebay.log.tarantool import TarantoolLog
from forebay.log.values import Claim, Group, Queue, Record
from forebay.model import Unavailable, mint
from tests.chaos.log_load import Load
from tests.conformance.steps import append_of, check_ledger, counts, drain, push, stored, take_one
from tests.servers import FaultProxy, TarantoolServer, Verdict

pytestmark = pytest.mark.chaos


@pytest.fixture
async def proxy(tarantool: TarantoolServer) -> AsyncIterator[FaultProxy]:
    """Give the way to a server of the test's own, on which things go wrong."""
    async with FaultProxy(tarantool.port) as opened:
        yield opened


def behind(proxy: FaultProxy) -> str:
    """The address of the server behind the proxy."""
    return f"tarantool://127.0.0.1:{proxy.port}"


async def prepare(log: TarantoolLog) -> tuple[Queue, Group, Claim]:
    """A message in the hands of an owner."""
    queue = await log.create_queue("orders")
    group = await log.create_group(queue, "workers")
    await push(log, queue, "a", "b")
    return queue, group, await take_one(log, group)


@pytest.mark.parametrize("give_up", [0.0, 0.4])
async def test_a_server_that_dies_under_load(
    tarantool: TarantoolServer, give_up: float, rng: random.Random
) -> None:
    async with (
        asyncio.timeout(100),
        TarantoolLog(tarantool.url, retry_seconds=0.1) as one,
        TarantoolLog(tarantool.url, retry_seconds=0.1) as two,
    ):
        queue = await one.create_queue("orders")
        load = Load(rng, queue, await one.create_group(queue, "workers"), give_up=give_up)

        async def kill_and_start() -> None:
            for death in (tarantool.kill, tarantool.stop, tarantool.kill, tarantool.kill):
                await load.reached(load.steps + rng.randrange(10, 120))
                load.up.clear()
                await asyncio.to_thread(death)
                await asyncio.to_thread(tarantool.start)
                load.up.set()

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(load.run([one, two], pushers=8, blocks=100, workers=4))
            tasks.create_task(kill_and_start())
        await load.check(one)
        assert load.failures > 0


async def test_a_log_outlives_its_server(tarantool: TarantoolServer) -> None:
    """Down, everything is Unavailable; up again, the same log goes on and the same ids are one copy."""
    async with asyncio.timeout(60), TarantoolLog(tarantool.url, retry_seconds=0.2) as log:
        queue, group, claim = await prepare(log)
        await log.mark([claim.mark(handed=b"\x02")])
        append, commit_id = append_of(queue, "c"), mint()
        tarantool.kill()
        outcomes = await asyncio.gather(
            log.commit([append], [claim.settle_all()], id=commit_id),
            log.commit([append], [claim.settle_all()], id=commit_id, atomic=True),
            log.claim(group, "owner"),
            log.due(group, "owner"),
            log.reclaim(group, "new", of=["owner"]),
            log.mark([claim.mark(handed=b"\x01")]),
            log.retire("owner"),
            log.heartbeat("owner"),
            log.read(queue),
            log.stats(),
            log.queues(),
            log.create_queue("more"),
            log.delete_group(group),
            log.stage("s", [append]),
            log.publish("s", [append.block.id]),
            log.trim(),
            log.dead_letters(group),
            log.records("s", ["k"]),
            return_exceptions=True,
        )
        assert {type(outcome) for outcome in outcomes} == {Unavailable}
        tarantool.start()
        (taken,) = (await log.reclaim(group, "new", of=["owner"])).claims
        assert taken.handed == b"\x02"
        receipt = await log.commit([append], [taken.settle_all()], id=commit_id)
        assert not receipt.conflicts
        assert await stored(log, queue) == ["a", "b", "c"]
        assert await drain(log, group) == ["c"]
        assert (await counts(log, group)).done == 3
        await check_ledger(log)


async def test_a_log_whose_server_is_gone_closes(tarantool: TarantoolServer) -> None:
    async with asyncio.timeout(30):
        async with TarantoolLog(tarantool.url, retry_seconds=0.1) as log:
            queue = await log.create_queue("orders")
            await push(log, queue, "a")
            tarantool.kill()
        with pytest.raises(Unavailable):
            await push(log, queue, "b")


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("atomic", [False, True])
async def test_a_commit_whose_connection_is_cut_is_one_commit(
    proxy: FaultProxy, when: str, *, atomic: bool
) -> None:
    async with asyncio.timeout(60), TarantoolLog(behind(proxy), timeout_seconds=5) as log:
        queue, group, claim = await prepare(log)
        append, commit_id = append_of(queue, "c", "d"), mint()
        cut = proxy.cut_before_client_bytes if when == "before" else proxy.cut_after_client_bytes
        trap = cut(append.block.id)
        records = [Record("s", "k", b"v", version=0)] if atomic else []
        settled = [claim.settle_all()]
        receipt = await log.commit([append], settled, id=commit_id, atomic=atomic, records=records)
        assert trap.is_set()
        assert not receipt.conflicts
        assert receipt.appended[0].known == (when == "after")
        assert await stored(log, queue) == ["a", "b", "c", "d"]
        assert [kept.version for kept in await log.records("s", ["k"])] == [1] * len(records)
        stats = await counts(log, group)
        assert (stats.done, stats.ready, stats.held) == (2, 2, 0)
        again = await log.commit([append], settled, id=commit_id)
        assert again.appended[0].ids() == receipt.appended[0].ids()
        assert not again.conflicts


@pytest.mark.parametrize("give_up", [0.0, 0.3])
async def test_cuts_at_random_under_load(
    proxy: FaultProxy, tarantool: TarantoolServer, give_up: float, rng: random.Random
) -> None:
    retry_seconds = 5.0 if not give_up else 0.05

    def cut_some(_chunk: bytes) -> Verdict:
        draw = rng.random()
        if draw < 0.03:
            return Verdict.LOSE_ANSWER
        return Verdict.LOSE_REQUEST if draw < 0.05 else Verdict.FORWARD

    async with (
        asyncio.timeout(90),
        TarantoolLog(behind(proxy), retry_seconds=retry_seconds, timeout_seconds=10) as one,
        TarantoolLog(behind(proxy), retry_seconds=retry_seconds, timeout_seconds=10) as two,
        TarantoolLog(tarantool.url) as direct,
    ):
        queue = await direct.create_queue("orders")
        load = Load(rng, queue, await direct.create_group(queue, "workers"), give_up=give_up)
        proxy.on_client_bytes(cut_some)
        await load.run([one, two], pushers=8, blocks=40, workers=4)
        proxy.heal()
        await load.check(direct)
        assert load.failures > 0


async def test_a_black_hole_ends_in_unavailable_and_heals(proxy: FaultProxy) -> None:
    async with (
        asyncio.timeout(60),
        TarantoolLog(behind(proxy), timeout_seconds=0.5, retry_seconds=0.5) as log,
    ):
        queue, group, claim = await prepare(log)
        append, commit_id = append_of(queue, "c"), mint()
        proxy.blackhole()
        began = time.monotonic()
        outcomes = await asyncio.gather(
            log.commit([append], [claim.settle_all()], id=commit_id),
            log.commit([append_of(queue, "d")]),
            log.claim(group, "owner"),
            log.heartbeat("owner"),
            log.stats(),
            log.trim(),
            return_exceptions=True,
        )
        assert {type(outcome) for outcome in outcomes} == {Unavailable}
        assert time.monotonic() - began < 10
        proxy.heal()
        receipt = await log.commit([append], [claim.settle_all()], id=commit_id)
        assert not receipt.conflicts
        assert (await stored(log, queue)).count("c") == 1
        assert (await counts(log, group)).done == 2


async def test_hanging_up_ends_what_waits(proxy: FaultProxy) -> None:
    async with asyncio.timeout(30), TarantoolLog(behind(proxy), timeout_seconds=20) as log:
        queue = await log.create_queue("orders")
        proxy.blackhole()
        waiting = asyncio.create_task(log.stats())
        pushing = asyncio.create_task(push(log, queue, "a"))
        done, _ = await asyncio.wait([waiting, pushing], timeout=0.1)
        assert not done
        proxy.heal()
        log.hang_up()
        with pytest.raises(Unavailable):
            await waiting
        await pushing  # is tried again
        assert await stored(log, queue) == ["a"]
