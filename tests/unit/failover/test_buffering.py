"""Messages with QoS 0 wait for the disk, and it is said when they were given up."""

from __future__ import annotations

import asyncio

import pytest

from forebay.failover.buffering import Buffer
from forebay.model import Message, SystemClock
from forebay.spool.lines import Spooled
from forebay.spool.settings import SpoolSettings
from forebay.spool.spool import Spool
from tests.disks import SimulatedDisk

SECONDS = 0.005
DEADLINE_SECONDS = 10.0


async def buffer_on(disk: SimulatedDisk) -> tuple[Buffer, Spool]:
    spool = await Spool.open(disk, SpoolSettings(reserve_bytes=0))
    return Buffer(spool, SystemClock(), seconds=SECONDS, bytes_max=1 << 20), spool


async def test_what_cant_be_spooled_for_a_reason_that_nobody_foresaw_is_tried_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    buffer, spool = await buffer_on(SimulatedDisk())
    failed = asyncio.Event()

    async def fail(*_: Spooled, prefix: str) -> None:
        failed.set()
        raise RuntimeError(prefix)

    async with spool, asyncio.timeout(DEADLINE_SECONDS):
        with monkeypatch.context() as broken:
            broken.setattr(spool, "append", fail)
            buffer.add("orders", [Message(b"1")])
            await failed.wait()
        while buffer.events:  # noqa: ASYNC110 - it is told to nobody
            await asyncio.sleep(0)
        assert buffer.spooled == {"orders": 1}
        await buffer.close()


async def test_at_the_end_it_is_said_how_many_the_disk_didnt_take(caplog: pytest.LogCaptureFixture) -> None:
    disk = SimulatedDisk(capacity=0)
    buffer, spool = await buffer_on(disk)
    async with spool:
        buffer.add("orders", [Message(b"1"), Message(b"2")])
        await buffer.close()
    assert "2 messages with QoS 0 are lost" in caplog.text
