"""Connections cut around a commit: the caller gets its answer, and what it wrote is there once."""

import asyncio
import random
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest

from forebay.log.postgres import PostgresLog
from forebay.log.values import Claim, Group, Queue, Record
from forebay.model import Unavailable, mint
from tests.awake import Awake
from tests.chaos.log_load import Load
from tests.conformance.steps import append_of, check_ledger, counts, push, sequences, stored, take_one
from tests.integration.postgres_steps import connected
from tests.servers import FaultProxy, PostgresServer, Verdict

pytestmark = pytest.mark.chaos


@pytest.fixture
async def proxy(postgres_server: PostgresServer) -> AsyncIterator[FaultProxy]:
    """Give the way to the server, on which things go wrong."""
    async with FaultProxy(postgres_server.port) as opened:
        yield opened


@pytest.fixture
def dsn(postgres_server: PostgresServer, postgres_dsn: str, proxy: FaultProxy) -> str:
    """Give the address of an empty database behind the proxy."""
    return postgres_dsn.replace(f":{postgres_server.port}/", f":{proxy.port}/")


@pytest.fixture
async def log(dsn: str) -> AsyncIterator[PostgresLog]:
    """Give a log behind the proxy."""
    async with PostgresLog(dsn, timeout_seconds=5, retry_seconds=5) as opened:
        yield opened


def set_trap(proxy: FaultProxy, when: str, pattern: bytes) -> asyncio.Event:
    """Cut the connection that carries `pattern`, before the server gets it or after it has acted."""
    if when == "before":
        return proxy.cut_before_client_bytes(pattern)
    return proxy.cut_after_client_bytes(pattern)


async def prepare(log: PostgresLog) -> tuple[Queue, Group, Claim]:
    """A message in the hands of an owner, and a connection that has written before."""
    queue = await log.create_queue("orders")
    group = await log.create_group(queue, "workers")
    await push(log, queue, "a", "b")
    return queue, group, await take_one(log, group)


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("place", ["write", "commit"])
async def test_a_commit_whose_connection_is_cut_is_one_commit(
    log: PostgresLog, proxy: FaultProxy, when: str, place: str
) -> None:
    """At the statement, which commits by itself; or at the COMMIT of an atomic one."""
    queue, group, claim = await prepare(log)
    append, commit_id = append_of(queue, "c", "d"), mint()
    trap = set_trap(proxy, when, append.block.id if place == "write" else b"COMMIT;")
    receipt = await log.commit([append], [claim.settle_all()], id=commit_id, atomic=place == "commit")
    assert trap.is_set()
    assert not receipt.conflicts
    assert receipt.appended[0].known == (when == "after")
    assert await stored(log, queue) == ["a", "b", "c", "d"]
    stats = await counts(log, group)
    assert (stats.done, stats.ready, stats.held) == (2, 2, 0)
    again = await log.commit([append], [claim.settle_all()], id=commit_id)
    assert again.appended[0].ids() == receipt.appended[0].ids()
    assert not again.conflicts
    await check_ledger(log)


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("place", [b"the value", b"COMMIT;"], ids=["records", "commit"])
async def test_records_whose_connection_is_cut_are_written_once(
    log: PostgresLog, proxy: FaultProxy, when: str, place: bytes
) -> None:
    queue, group, claim = await prepare(log)
    trap = set_trap(proxy, when, place)
    record = Record("s", "k", b"the value", version=0)
    await log.commit([append_of(queue, "c")], [claim.settle_all()], records=[record])
    assert trap.is_set()
    assert [(kept.value, kept.version) for kept in await log.records("s", ["k"])] == [(b"the value", 1)]
    assert await stored(log, queue) == ["a", "b", "c"]
    assert (await counts(log, group)).done == 2
    await check_ledger(log)


@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_settlement_whose_answer_is_lost_counts_once(
    log: PostgresLog, proxy: FaultProxy, when: str
) -> None:
    _, group, claim = await prepare(log)
    commit_id = mint()
    trap = set_trap(proxy, when, commit_id)
    receipt = await log.commit(settlements=[claim.settle_all()], id=commit_id)
    assert trap.is_set()
    assert not receipt.conflicts
    assert (await counts(log, group)).done == 2


async def test_a_publish_whose_answer_is_lost_can_be_repeated(log: PostgresLog, proxy: FaultProxy) -> None:
    queue, *_ = await prepare(log)
    appends = [append_of(queue, text) for text in "cde"]
    ids = [append.block.id for append in appends]
    await log.stage("epoch", appends)
    trap = proxy.cut_after_client_bytes(b"COMMIT;")
    with pytest.raises(Unavailable):
        await log.publish("epoch", ids)
    await trap.wait()
    assert all(appended.known for appended in (await log.publish("epoch", ids)).appended)
    assert await stored(log, queue) == list("abcde")


async def test_a_new_piece_that_is_cut_while_made_is_made_again(
    log: PostgresLog, proxy: FaultProxy, postgres_dsn: str
) -> None:
    """The write finds no piece, and the connection breaks while one is made."""
    queue, *_ = await prepare(log)
    async with connected(postgres_dsn) as user:
        for row in await user.fetch("SELECT parent, lower FROM forebay.piece"):
            await user.execute("SELECT forebay.drop_piece($1, $2)", row["parent"], row["lower"])
    append = append_of(queue, "c", transaction_ids=["t"])
    verdicts = iter((Verdict.FORWARD, Verdict.LOSE_REQUEST))

    def cut_the_next(_chunk: bytes) -> Verdict:
        return next(verdicts, Verdict.FORWARD)

    proxy.on_client_bytes(cut_the_next)
    assert sequences((await log.commit([append])).appended[0]) == [3]
    assert next(verdicts, None) is None
    assert await stored(log, queue) == ["c"]


@pytest.mark.parametrize("give_up", [0.0, 0.3])
async def test_cuts_at_random_under_load(
    dsn: str, proxy: FaultProxy, postgres_dsn: str, give_up: float, rng: random.Random
) -> None:
    retry_seconds = 5.0 if not give_up else 0.05

    def cut_some(_chunk: bytes) -> Verdict:
        draw = rng.random()
        if draw < 0.03:
            return Verdict.LOSE_ANSWER
        return Verdict.LOSE_REQUEST if draw < 0.05 else Verdict.FORWARD

    async with (
        asyncio.timeout(90),
        PostgresLog(dsn, retry_seconds=retry_seconds, timeout_seconds=10) as one,
        PostgresLog(dsn, retry_seconds=retry_seconds, timeout_seconds=10) as two,
        PostgresLog(postgres_dsn) as direct,
    ):
        queue = await direct.create_queue("orders")
        load = Load(rng, queue, await direct.create_group(queue, "workers"), give_up=give_up)
        proxy.on_client_bytes(cut_some)
        await load.run([one, two], pushers=8, blocks=40, workers=4)
        proxy.heal()
        await load.check(direct)
        assert load.failures > 0


@pytest.mark.parametrize("atomic", [False, True])
async def test_a_black_hole_ends_in_unavailable_and_heals(
    dsn: str, proxy: FaultProxy, awake: Awake, *, atomic: bool
) -> None:
    async with (
        asyncio.timeout(60),
        PostgresLog(dsn, timeout_seconds=0.5, retry_seconds=0.5, connections_max=2) as log,
    ):
        queue, group, claim = await prepare(log)
        append, commit_id = append_of(queue, "c"), mint()
        proxy.blackhole()
        began = awake()
        outcomes = await asyncio.gather(
            log.commit([append], [claim.settle_all()], id=commit_id, atomic=atomic),
            log.commit([append_of(queue, "d")]),
            log.claim(group, "owner"),
            log.heartbeat("owner"),
            log.stats(),
            log.trim(),
            log.sweep(),
            return_exceptions=True,
        )
        took = awake() - began
        assert {type(outcome) for outcome in outcomes} == {Unavailable}
        # Each waits for a connection, for its answer, and for the connection's end at most once;
        # commits behind one another wait for the one before.
        assert took < 2 * (0.5 + 0.5) + 3 * 0.5 + 1
        proxy.heal()
        receipt = await log.commit([append], [claim.settle_all()], id=commit_id, atomic=atomic)
        assert not receipt.conflicts
        found = await stored(log, queue)
        assert found.count("c") == 1
        assert (await counts(log, group)).done == 2
        await check_ledger(log)


async def test_closing_in_a_black_hole_comes_to_an_end(dsn: str, proxy: FaultProxy) -> None:
    log = PostgresLog(dsn, timeout_seconds=0.5, retry_seconds=0.5)
    await log.__aenter__()
    await prepare(log)
    proxy.blackhole()
    async with asyncio.timeout(10):
        await log.__aexit__(None, None, None)
    proxy.heal()


async def use_what_is_lost(log: PostgresLog) -> None:
    """Be cancelled while the connection in use is lost."""
    async with log._database.connection() as connection:
        cast("Any", connection)._con.terminate()
        log.hang_up()
        raise asyncio.CancelledError


async def test_a_connection_that_was_lost_is_not_hung_up_on_again(log: PostgresLog) -> None:
    """The pool takes back what was lost, perhaps before those who use it have noticed."""
    with pytest.raises(asyncio.CancelledError):
        await use_what_is_lost(log)
    await prepare(log)
