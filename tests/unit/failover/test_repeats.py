"""Transaction ids that are pushed again during an outage: each message once, in the order of the pushes."""

from __future__ import annotations

from pathlib import Path

import pytest

from forebay.log.values import Appended
from forebay.model import Block, Message
from tests.unit.failover.outage import OutageLog, numbered, payloads_of
from tests.unit.failover.test_failover import site


@pytest.mark.parametrize("ordered", [False, True], ids=["unordered", "ordered"])
async def test_what_is_repeated_during_an_outage_leaves_the_order_of_the_rest(
    tmp_path: Path, *, ordered: bool
) -> None:
    """All of it comes back as one page."""
    log = OutageLog()
    await log.log.create_queue("named", {"ordered": ordered})

    async def push_named(*values: int) -> Appended:
        named = zip(numbered(values), map(str, values), strict=True)
        block = Block.of([Message(payload, "p", name) for payload, name in named])
        return await here.push_block(block, "named")

    async with site(tmp_path, log) as here:
        await push_named(1)
        log.mode = "away"
        for values in ((1, 10), (20,), (10, 30, 1), (40,), (40,)):
            assert (await push_named(*values)).where == "spool"
        log.mode = "there"
        await here.drained()
        tasks = await here.store.get_task("named", 10)
        assert [task.data for task in tasks] == numbered([1, 10, 20, 30, 40])
    assert await payloads_of(log, "named") == numbered([1, 10, 20, 30, 40])
