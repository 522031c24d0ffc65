"""A real Prometheus that remote-writes through the relay to another one, which is killed on the way."""

import asyncio
import json
import struct
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import cramjam
import pytest

from forebay.app.cli import main
from tests.chaos.relay_parts import RelayProcess, connection
from tests.servers import PrometheusServer
from tests.unit.deliver.test_split import field as protobuf_field

pytestmark = [
    pytest.mark.slow,
    pytest.mark.chaos,
    pytest.mark.timeout(400),
    pytest.mark.usefixtures("prometheus_program"),
]

SERIES = 20
REMOTE_WRITE = {
    "metadata_config": {"send": False},
    "queue_config": {
        "batch_send_deadline": "100ms", "max_samples_per_send": 50, "min_shards": 3, "min_backoff": "10ms",
    },
}  # fmt: skip


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

    async def until(self, condition: Callable[[], bool], seconds: float = 180) -> None:
        """Wait until something holds; it is looked at after each scrape."""
        async with asyncio.timeout(seconds):
            while not await asyncio.to_thread(condition):
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


def samples(prometheus: PrometheusServer, at: float) -> dict[str, list[list[Any]]]:
    """Every sample up to a time, by series; none while it can't be reached."""
    try:
        found = prometheus.get("query", query="trial_value[1h]", time=str(at))["result"]
    except (OSError, AssertionError):
        return {}
    return {one["metric"]["number"]: one["values"] for one in found}


def newest(prometheus: PrometheusServer) -> float:
    """The newest sample of the last hour by its own clock; 0 while there is none."""
    try:
        found = prometheus.query("max(timestamp(trial_value))")
    except (OSError, AssertionError):
        return 0.0
    return found[0][1] if found else 0.0


async def test_every_sample_arrives_although_the_receiver_is_killed(tmp_path: Path) -> None:
    flags = ("--queue-retry-interval", "50ms", "--queue-circuit-breaker-reset-timeout", "300ms")
    with PrometheusServer({}) as receiver:
        url = f"http://127.0.0.1:{receiver.port}/api/v1/write"
        async with Target() as target, RelayProcess(tmp_path / "queue", [url], *flags) as relay:
            to_relay = [{"url": f"http://127.0.0.1:{relay.port}/api/v1/write", **REMOTE_WRITE}]
            jobs, more = {"trial": [target.port]}, {"remote_write": to_relay}
            with PrometheusServer(jobs, more=more) as sender:
                await target.until(lambda: len(samples(receiver, newest(receiver))) == SERIES)
                for _ in range(2):
                    await asyncio.to_thread(receiver.kill)
                    await target.more(20)  # under load, with nobody there
                    await asyncio.to_thread(receiver.start)
                    await target.more(10)
                end = await asyncio.to_thread(newest, sender)
                sent = samples(sender, end)
                assert len(sent) == SERIES
                await target.until(lambda: _has_all(receiver, sent, end))
                assert samples(receiver, end) == sent
                assert 'error_type="client_error"} 0.0\n' in await relay.page("/metrics")


def _has_all(prometheus: PrometheusServer, sent: dict[str, list[list[Any]]], end: float) -> bool:
    found = samples(prometheus, end)
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
    # Nothing is noted before the kill, so that all that was delivered is sent again.
    flags = (
        "--queue-meta-sync", "1h", "--queue-retry-interval", "50ms",
        "--queue-circuit-breaker-reset-timeout", "300ms",
    )  # fmt: skip
    start = int(time.time()) - 10
    with PrometheusServer({}) as receiver:
        url = f"http://127.0.0.1:{receiver.port}/api/v1/write"
        async with RelayProcess(tmp_path / "queue", [url], *flags) as relay:
            async with connection(relay.port) as (reader, writer):
                for number in range(5):
                    writer.write(remote_write((start + number) * 1000, float(number)))
                    assert b" 202 " in await reader.readuntil(b"\r\n\r\n")
            async with asyncio.timeout(60):
                while sum(map(len, (await received(receiver, start)).values())) < 5 * SERIES:
                    pass
            before = await received(receiver, start)
            await relay.kill()
            await relay.start()
            async with asyncio.timeout(60):
                while len(letters := await dead_letters(tmp_path / "queue", capsys)) < 4:
                    pass
            # The newest samples were the same again, and were taken; the older ones were refused and kept.
            assert await received(receiver, start) == before
            assert [letter["status"] for letter in letters] == [400] * 4
            assert "out of order" in letters[0]["answer"]


async def received(receiver: PrometheusServer, start: int) -> dict[str, list[list[Any]]]:
    """What it has of the minute after `start`."""
    return await asyncio.to_thread(samples, receiver, start + 60)
