"""A real Prometheus that remote-writes through the relay to another one, which is killed on the way."""

import asyncio
import json
import os
import shutil
import socket
import struct
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlencode

import cramjam
import pytest

from forebay.app.cli import main
from tests.chaos.relay_parts import RelayProcess, connection
from tests.unit.deliver.test_split import field as protobuf_field

PROMETHEUS = shutil.which("prometheus")
pytestmark = [pytest.mark.slow, pytest.mark.chaos, pytest.mark.timeout(400)]
if PROMETHEUS is None and os.environ.get("CI") != "true":
    pytestmark.append(pytest.mark.skip(reason="prometheus isn't installed"))

SERIES = 20
SENDER = """
global: {{scrape_interval: 100ms}}
scrape_configs:
  - job_name: trial
    static_configs: [{{targets: ['127.0.0.1:{target}']}}]
remote_write:
  - url: http://127.0.0.1:{relay}/api/v1/write
    metadata_config: {{send: false}}
    queue_config: {{batch_send_deadline: 100ms, max_samples_per_send: 50, min_shards: 3, min_backoff: 10ms}}
"""


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port


class Target:
    """Something to scrape: numbers that change with each scrape."""

    def __init__(self) -> None:
        self.scrapes = 0
        self.port = 0
        self._scraped = asyncio.Condition()
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()

    async def more(self, count: int) -> None:
        """Wait for so many scrapes more."""
        wanted = self.scrapes + count
        async with self._scraped:
            await self._scraped.wait_for(lambda: self.scrapes >= wanted)

    async def until(self, condition: Callable[[], Any], seconds: float = 180) -> None:
        """Wait until something holds; it is looked at after each scrape."""
        async with asyncio.timeout(seconds):
            while not await condition():
                await self.more(1)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await reader.readuntil(b"\r\n\r\n"):
                self.scrapes += 1
                lines = [f'trial_value{{number="{n}"}} {self.scrapes * SERIES + n}\n' for n in range(SERIES)]
                text = "".join(lines).encode()
                head = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4\r\n"
                writer.write(head + b"Content-Length: %d\r\n\r\n%b" % (len(text), text))
                async with self._scraped:
                    self._scraped.notify_all()
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()


class Prometheus:
    """One Prometheus, which can be killed and started again on its data."""

    def __init__(self, folder: Path, config: str) -> None:
        self._folder = folder
        folder.mkdir()
        (folder / "prometheus.yml").write_text(config)
        self.port = free_port()
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        """Start, and wait until it is ready."""
        assert PROMETHEUS is not None
        with (self._folder / "log").open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                PROMETHEUS, "--config.file=prometheus.yml", "--storage.tsdb.path=data",
                f"--web.listen-address=127.0.0.1:{self.port}", "--web.enable-remote-write-receiver",
                cwd=self._folder, stdout=log, stderr=log,
            )  # fmt: skip

    async def kill(self) -> None:
        """Kill -9."""
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
            await self._process.wait()

    async def samples(self, at: float) -> dict[str, list[list[Any]]]:
        """Every sample up to a time, by series; none while it can't be reached."""
        query = urlencode({"query": "trial_value[1h]", "time": at})
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
            writer.write(f"GET /api/v1/query?{query} HTTP/1.0\r\n\r\n".encode())
            answer = await reader.read()
            writer.close()
            found = json.loads(answer.partition(b"\r\n\r\n")[2])
        except (OSError, ValueError):
            return {}
        if found.get("status") != "success":
            return {}
        return {one["metric"]["number"]: one["values"] for one in found["data"]["result"]}

    async def newest(self) -> float:
        """The newest sample of the last hour by its own clock."""
        query = urlencode({"query": "max(timestamp(trial_value))"})
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(f"GET /api/v1/query?{query} HTTP/1.0\r\n\r\n".encode())
        answer = await reader.read()
        writer.close()
        result = json.loads(answer.partition(b"\r\n\r\n")[2])["data"]["result"]
        return float(result[0]["value"][1]) if result else 0.0


@asynccontextmanager
async def running(prometheus: Prometheus) -> AsyncIterator[Prometheus]:
    await prometheus.start()
    try:
        yield prometheus
    finally:
        await prometheus.kill()


async def test_every_sample_arrives_although_the_receiver_is_killed(tmp_path: Path) -> None:
    receiver = Prometheus(tmp_path / "receiver", "global: {}\n")
    flags = ("--queue-retry-interval", "50ms", "--queue-circuit-breaker-reset-timeout", "300ms")
    url = f"http://127.0.0.1:{receiver.port}/api/v1/write"
    async with (
        Target() as target,
        running(receiver),
        RelayProcess(tmp_path / "queue", [url], *flags) as relay,
    ):
        config = SENDER.format(target=target.port, relay=relay.port)
        sender = Prometheus(tmp_path / "sender", config)
        async with running(sender):
            await target.until(lambda: _has_samples(receiver))
            for _ in range(2):
                await receiver.kill()
                await target.more(20)  # under load, with nobody there
                await receiver.start()
                await target.more(10)
            end = await sender.newest()
            sent = await sender.samples(end)
            assert len(sent) == SERIES
            await target.until(lambda: _has_all(receiver, sent, end))
            assert await receiver.samples(end) == sent
            assert 'error_type="client_error"} 0.0\n' in await relay.page("/metrics")


async def _has_samples(prometheus: Prometheus) -> bool:
    return len(await prometheus.samples(await _newest_or_none(prometheus))) == SERIES


async def _newest_or_none(prometheus: Prometheus) -> float:
    try:
        return await prometheus.newest()
    except (OSError, ValueError, KeyError):
        return 0.0


async def _has_all(prometheus: Prometheus, sent: dict[str, list[list[Any]]], end: float) -> bool:
    found = await prometheus.samples(end)
    return sum(map(len, found.values())) >= sum(map(len, sent.values()))


def remote_write(at_ms: int, value: float) -> bytes:
    """One sample of each series, as Prometheus sends it."""
    sample = protobuf_field(2, struct.pack("<Bd", 1 << 3 | 1, value) + protobuf_field(2, at_ms))
    series = b""
    for number in range(SERIES):
        labels = [("__name__", "trial_value"), ("number", str(number))]
        texts = [protobuf_field(1, name.encode()) + protobuf_field(2, text.encode()) for name, text in labels]
        series += protobuf_field(1, b"".join(protobuf_field(1, text) for text in texts) + sample)
    body = bytes(cramjam.snappy.compress_raw(series))
    lines = [
        "POST /api/v1/write HTTP/1.1", "Host: relay", f"Content-Length: {len(body)}",
        "Content-Encoding: snappy", "Content-Type: application/x-protobuf",
        "X-Prometheus-Remote-Write-Version: 0.1.0",
    ]  # fmt: skip
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


async def dead_letters(folder: Path, capsys: pytest.CaptureFixture[str]) -> list[Any]:
    assert await asyncio.to_thread(main, ["relay", "dead", "--data", str(folder), "--json"]) == 0
    found: list[Any] = json.loads(capsys.readouterr().out)
    return found


async def test_a_repeated_remote_write_is_refused_becomes_a_dead_letter_and_nothing_is_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    receiver = Prometheus(tmp_path / "receiver", "global: {}\n")
    url = f"http://127.0.0.1:{receiver.port}/api/v1/write"
    # Nothing is noted before the kill, so that all that was delivered is sent again.
    flags = (
        "--queue-meta-sync",
        "1h",
        "--queue-retry-interval",
        "50ms",
        "--queue-circuit-breaker-reset-timeout",
        "300ms",
    )
    start = int(time.time()) - 10
    async with running(receiver), RelayProcess(tmp_path / "queue", [url], *flags) as relay:
        async with connection(relay.port) as (reader, writer):
            for number in range(5):
                writer.write(remote_write((start + number) * 1000, float(number)))
                assert b" 202 " in await reader.readuntil(b"\r\n\r\n")
        async with asyncio.timeout(60):
            while sum(map(len, (await receiver.samples(start + 60)).values())) < 5 * SERIES:
                await asyncio.to_thread(lambda: None)
        before = await receiver.samples(start + 60)
        await relay.kill()
        await relay.start()
        async with asyncio.timeout(60):
            while len(letters := await dead_letters(tmp_path / "queue", capsys)) < 4:
                pass
        # The newest samples were the same again, and were taken; the older ones were refused, and are there.
        assert await receiver.samples(start + 60) == before
        assert [letter["status"] for letter in letters] == [400] * 4
        assert "out of order" in letters[0]["answer"]
