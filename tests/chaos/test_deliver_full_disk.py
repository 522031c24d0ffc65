"""The disk of a server is full, log and spool: outcomes of deliveries are held, bounded, and written then."""

from __future__ import annotations

import asyncio
from time import monotonic

import pytest

import forebay
from forebay.store.seam import Store
from tests.chaos.outages import fill, small_disk
from tests.integration.http_wire import scrape
from tests.servers import ForebayServer
from tests.servers.destination import DestinationServer, Received, answer

pytestmark = [pytest.mark.chaos, pytest.mark.slow]

MESSAGES = 1_000
CONCURRENCY = 4
IN_HAND_MAX = 4 * CONCURRENCY
LONG_SECONDS = 120.0


async def done(store: Store, count: int) -> None:
    """Wait until so many messages are done, and the books balance."""
    end = monotonic() + LONG_SECONDS
    while True:
        (group,) = (await store.ledger(queue="jobs")).queues[0].groups
        if group.done == count:
            assert (group.accepted, group.dead, group.difference) == (count, 0, 0)
            return
        assert monotonic() < end, group
        await asyncio.sleep(0)


async def test_outcomes_are_held_while_nothing_can_be_written() -> None:
    gate = asyncio.Event()

    async def gated(_: Received, writer: asyncio.StreamWriter) -> None:
        await gate.wait()
        writer.write(answer())

    with small_disk(48 << 20) as disk:
        async with DestinationServer(gated) as target:
            to = {"url": target.url, "allow_private": True, "concurrency": CONCURRENCY}
            sections = {
                "deliver": {"hooks": {"queue": "jobs", "destination": to}},
                "spool": {"reserve_bytes": 0},
            }
            server = ForebayServer(sections=sections)
            server.data.symlink_to(disk)
            try:
                await asyncio.to_thread(server.start)
                async with forebay.open(server.url) as store:
                    await store.create_queue("jobs")
                    await store.put_task("jobs", *(b"%d" % number for number in range(MESSAGES)))
                    await asyncio.wait_for(target.arrived.wait(), LONG_SECONDS)
                    fill(disk / "filler")
                    gate.set()
                    await _held(server, target)
                    (disk / "filler").unlink()
                    await done(store, MESSAGES)
                assert sorted(map(int, target.bodies)) == list(range(MESSAGES)), "none twice"
                assert await asyncio.to_thread(server.stop) == 0, server.tail()
            finally:
                server.close()


async def _held(server: ForebayServer, target: DestinationServer) -> None:
    """Wait until outcomes can't be written; no more is in hand or sent than may be."""
    async with asyncio.timeout(LONG_SECONDS):
        while "messages can't be written yet" not in server.log.read_text():
            numbers = await asyncio.to_thread(scrape, server.port)
            (line,) = (text for text in numbers.splitlines() if text.startswith("forebay_delivery_in_hand{"))
            assert float(line.rpartition(" ")[2]) <= IN_HAND_MAX
    assert 0 < len(target.received) <= IN_HAND_MAX
