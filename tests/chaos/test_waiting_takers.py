"""Ten thousand takers wait on one server: it idles meanwhile, and a push reaches one of them at once."""

import asyncio
import os
import resource
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.integration.http_wire import SCRAPER, Wire, request
from tests.servers import ForebayServer

pytestmark = [pytest.mark.chaos, pytest.mark.slow]

TAKERS: Final = 10_000
AT_ONCE: Final = 200
"""Connections that are being opened at a time."""
TAKE: Final = request("POST", "/v1/queues/orders/take", b'{"wait_seconds": 100}')
PUSH: Final = "/v1/queues/orders/messages"


@pytest.fixture
def enough_files() -> Iterator[None]:
    """Allow this process a file for each taker."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = TAKERS + 1_000
    if hard != resource.RLIM_INFINITY and hard < wanted:
        pytest.skip(f"only {hard} files may be open here")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


class Takers:
    """Takers on connections of their own."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._gate = asyncio.Semaphore(AT_ONCE)
        self.tasks: list[asyncio.Task[bytes]] = []

    async def start(self) -> None:
        """Return once all have asked."""
        asked = await asyncio.gather(*(self._ask() for _ in range(TAKERS)))
        self.tasks = [asyncio.create_task(self._answer(*streams)) for streams in asked]

    async def _ask(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        async with self._gate:
            reader, writer = await asyncio.open_connection("127.0.0.1", self._port, limit=4_096)
            writer.write(TAKE)
            return reader, writer

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
        body = await reader.readexactly(length)
        writer.close()
        return body

    @property
    def served(self) -> list[bytes]:
        """The answers so far."""
        return [task.result() for task in self.tasks if task.done()]

    async def first(self) -> None:
        """Return when one more is answered."""
        waiting = [task for task in self.tasks if not task.done()]
        await asyncio.wait(waiting, timeout=20, return_when=asyncio.FIRST_COMPLETED)


def waiting(port: int) -> int:
    """How many takers wait, by what the server counts."""
    with Wire(port) as wire:
        text = wire.ask("GET", "/metrics", headers=SCRAPER).body.decode()
    return round(float(text.partition("\nforebay_http_waiting ")[2].partition("\n")[0]))


def cpu_seconds(pid: int) -> float:
    """Processor time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@pytest.mark.usefixtures("enough_files")
async def test_a_push_reaches_one_of_ten_thousand_takers() -> None:
    limits = {"wait_seconds_max": 100.0, "request_seconds": 100.0}
    server = ForebayServer(limits=limits)
    try:
        await asyncio.to_thread(server.start)
        with Wire(server.port) as wire:
            assert wire.ask("PUT", "/v1/queues/orders", {}).status == 201
            before, began = server.rss_mb, time.monotonic()
            takers = Takers(server.port)
            await takers.start()
            while await asyncio.to_thread(waiting, server.port) < TAKERS:
                pass
            opened, used, mark = time.monotonic() - began, cpu_seconds(server.pid), time.monotonic()
            await asyncio.wait(takers.tasks, timeout=3)
            idle = (cpu_seconds(server.pid) - used) / (time.monotonic() - mark)
            assert takers.served == []
            delays = []
            for count in range(1, 6):
                mark = time.monotonic()
                assert wire.ask("POST", PUSH, [{"payload": count}]).status == 201
                await takers.first()
                delays.append(time.monotonic() - mark)
                assert len(takers.served) == count
                assert b'"payload":%d' % count in b"".join(takers.served)
            grown = server.rss_mb - before
        print(  # noqa: T201 - what was measured
            f"{TAKERS} takers after {opened:.1f} s; {grown:.0f} MB more; {idle:.1%} of a core while idle;"
            f" a push reached one in {min(delays) * 1e3:.0f} to {max(delays) * 1e3:.0f} ms"
        )
        assert idle < 0.25
        assert grown < 500
        assert await asyncio.to_thread(server.stop) == 0
        await asyncio.wait(takers.tasks, timeout=20)
        assert takers.served.count(b'{"tasks":[]}') == TAKERS - 5
    finally:
        server.close()
