"""The queue of metrics-governor is brought into a relay, which delivers it."""

import asyncio
import logging
import shlex
from pathlib import Path

import pytest

from forebay.app.cli import main
from forebay.disk import RealDisk
from forebay.fastqueue.queue import FastQueue
from forebay.fastqueue.settings import FastQueueSettings
from tests.integration.relay.disk_rig import on_disk
from tests.servers.destination import DestinationServer

BODIES = [b"export %d" % number * 20 for number in range(30)]


def governors_queue(folder: Path) -> None:
    queue = FastQueue.open(RealDisk(folder), FastQueueSettings(format="governor"), clock=lambda: 0)
    queue.push(BODIES)
    queue.close()


def command_in(caplog: pytest.LogCaptureFixture) -> list[str]:
    """The words of the command that the relay says."""
    (line,) = [line for line in caplog.messages if "forebay fastqueue import" in line]
    return shlex.split(line.rpartition("move the files away: forebay ")[2])


async def test_the_relay_says_how_to_bring_in_a_queue_and_delivers_it_then(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "the queue"
    governors_queue(path)
    async with DestinationServer() as server:
        url = server.url.removesuffix("/hook")
        with caplog.at_level(logging.WARNING):
            async with on_disk(path, url):
                pass
        assert server.received == []
        words = [*command_in(caplog), "--header", "X-Scope-OrgID: team"]
        assert await asyncio.to_thread(main, words) == 0
        async with on_disk(path, url) as rig:
            (delivery,) = rig.relay.deliveries
            while delivery.queue.size:
                await delivery.queue._next_round()
            assert delivery.queue.dead_count == 0
        assert sorted(server.bodies) == sorted(BODIES)
        for one in server.received:
            assert (one.method, one.target) == ("POST", "/v1/metrics")
            assert one.headers["content-type"] == "application/x-protobuf"
            assert one.headers["x-scope-orgid"] == "team"
