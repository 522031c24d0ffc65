"""What a guarded log does not keep for later: it may be refused, and nobody could say so."""

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from forebay.log.seam import LogAway
from forebay.log.values import Record
from forebay.model import Unavailable
from tests.unit.failover.outage import OutageLog
from tests.unit.failover.test_failover import site


async def test_records_are_refused_while_the_log_is_away_and_kept_nowhere(
    tmp_path: Path,
) -> None:
    log = OutageLog()
    await log.log.create_queue("orders")
    async with site(tmp_path, log) as here:
        await here.push(1)
        guarded = here.store.log
        (queue,) = await guarded.queues()
        group = await guarded.create_group(queue, "g")
        (claim,) = (await guarded.claim(group, "owner")).claims
        record = Record("s", "k", b"1")
        log.mode = "away"
        with pytest.raises(LogAway):
            await guarded.commit(settlements=[claim.settle_all()], records=[record])
        verbs = (
            guarded.scan("s"),
            guarded.records("s", ["k"]),
            guarded.lane_count(queue),
            guarded.spans(queue),
        )
        for verb in verbs:
            with pytest.raises(LogAway):
                await verb
        log.mode = "there"
        await here.until(lambda: here.failover.health.is_healthy)
        assert await guarded.scan("s") == []
        await guarded.commit(settlements=[claim.settle_all()], records=[record])
        assert [kept.value for kept in await guarded.records("s", ["k"])] == [b"1"]


async def test_a_lone_connection_that_is_cut_is_no_outage(tmp_path: Path) -> None:
    log = OutageLog()
    await log.log.create_queue("orders")
    async with site(tmp_path, log) as here:
        await here.push(1, 2)
        first, second = await here.store.get_task("orders", 2)
        guarded = here.store.log
        (queue,) = await guarded.queues()
        (group,) = await guarded.groups(queue)
        calls: dict[str, Callable[[], Awaitable[object]]] = {
            "queue": lambda: guarded.queue("orders"),
            "queues": guarded.queues,
            "groups": lambda: guarded.groups(queue),
            "outlook": lambda: guarded.outlook([group]),
            "owners": guarded.owners,
            "heartbeat": lambda: guarded.heartbeat("somebody"),
            "retire": lambda: guarded.retire("somebody"),
            "create_queue": lambda: guarded.create_queue("more"),
            "create_group": lambda: guarded.create_group(queue, "more"),
            "recall": lambda: guarded.recall(group, [first.lease.claim]),
            "holding": lambda: guarded.holding(group, [second.id]),
            "records": lambda: guarded.records("space", ["key"]),
        }
        for verb, call in calls.items():
            log.cuts = [verb]
            await call()
            assert log.cuts == []
        log.cuts = ["claim"]
        with pytest.raises(Unavailable, match="cut") as caught:
            await guarded.claim(group, "somebody")
        assert not isinstance(caught.value, LogAway), "whoever claims has to look for what it got"
        assert here.failover.health.outages == 0
