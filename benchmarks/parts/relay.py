"""The relay end to end over loopback: requests of 1 KiB in, each on disk before it is answered, and out.

A turn counts from the first request to the last one's arrival at the destination. The rival runs its turns in
between. The latency is that of a lone client that asks one after the other, less that of asking the
destination itself.
"""

import asyncio
import random
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Final, cast

from benchmarks.bench import Bench
from benchmarks.verdict import Figures

ROOT: Final = Path(__file__).parents[2]
_CONNECTIONS: Final = 32
_AHEAD: Final = 2
"""Requests of a connection that are under way."""
_BODY: Final = random.Random(1).randbytes(512).hex().encode()
_REQUEST: Final = (
    b"POST /in HTTP/1.1\r\nHost: relay\r\nContent-Type: application/octet-stream\r\n"
    b"User-Agent: benchmark\r\nContent-Length: %d\r\n\r\n" % len(_BODY)
) + _BODY
_STATUS: Final = b"HTTP/1.1 20"
_LOOK_SECONDS: Final = 0.01
_PATIENCE_SECONDS: Final = 120.0


class _Load(asyncio.Protocol):
    """Asks again for each answer, until `stop`."""

    def __init__(self, *, ahead: int, latencies: list[float]) -> None:
        self._ahead = ahead
        self._latencies = latencies
        self._sent: list[float] = []
        self._tail = b""
        self.answered = 0
        self.is_stopped = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._ask(self._ahead)

    def data_received(self, data: bytes) -> None:
        data = self._tail + data
        count = data.count(_STATUS)
        self._tail = data[-len(_STATUS) + 1 :] if not data.endswith(b"\r\n\r\n") else b""
        now = perf_counter()
        self._latencies += [now - sent for sent in self._sent[:count]]
        del self._sent[:count]
        self.answered += count
        self._ask(count)

    def _ask(self, count: int) -> None:
        if not self.is_stopped and count:
            self._sent += [perf_counter()] * count
            self._transport.write(_REQUEST * count)

    @property
    def is_idle(self) -> bool:
        """Whether every request is answered."""
        return not self._sent

    def close(self) -> None:
        """End the connection."""
        self._transport.close()


async def run(bench: Bench) -> Figures:
    """Turns of ours and of the rival, and the latency of ours."""
    pace = bench.pace
    rounds: list[tuple[float, float, float]] = []
    async with _program("benchmarks.relay.sink") as said:
        with bench.folder() as folder, bench.part("relay", pace.rounds):
            for number in range(pace.rounds):
                with bench.note(f"round {number + 1} of {pace.rounds}"):
                    rounds.append(await _round(folder / str(number), int(said), pace.seconds))
    return {
        "requests_per_second": round(median(ours for ours, _, _ in rounds)),
        "rival_per_second": round(median(rival for _, _, rival in rounds)),
        "ratio": round(median(ours / rival for ours, _, rival in rounds), 2),
        "added_p50_ms": round(median(added for _, added, _ in rounds), 3),
    }


async def _round(folder: Path, sink: int, seconds: float) -> tuple[float, float, float]:
    """Our rate, the milliseconds that we add, and the rival's rate."""
    url = f"http://127.0.0.1:{sink}/in"
    flags = ("--listen", "127.0.0.1:0", "--queue-max-size", "10000000", "--data", str(folder / "ours"))
    async with _program("forebay.app.cli", "relay", "--to", url, *flags) as said:
        port = int(said.rpartition(":")[2])
        ours = await _turn(port, sink, seconds)
        added = await _latency(port, seconds) - await _latency(sink, seconds / 4)
    async with _program("benchmarks.relay.rival", str(folder / "rival"), url) as said:
        rival = await _turn(int(said.rpartition(":")[2]), sink, seconds)
    return ours, added * 1000, rival


async def _turn(port: int, sink: int, seconds: float) -> float:
    """Requests a second, from the first push to the last arrival."""
    before, start = await _count(sink), perf_counter()
    pushed = await _push(port, seconds, connections=_CONNECTIONS, ahead=_AHEAD, latencies=[])

    async def has_all() -> bool:
        return await _count(sink) >= before + pushed

    await _until(has_all)
    return pushed / (perf_counter() - start)


async def _latency(port: int, seconds: float) -> float:
    """The median of a lone client."""
    latencies: list[float] = []
    await _push(port, seconds, connections=1, ahead=1, latencies=latencies)
    return median(latencies)


async def _push(port: int, seconds: float, *, connections: int, ahead: int, latencies: list[float]) -> int:
    loop = asyncio.get_running_loop()
    make: Callable[[], _Load] = lambda: _Load(ahead=ahead, latencies=latencies)  # noqa: E731 - typed
    loads = [(await loop.create_connection(make, "127.0.0.1", port))[1] for _ in range(connections)]
    await asyncio.sleep(seconds)
    for load in loads:
        load.is_stopped = True

    async def are_idle() -> bool:
        return all(load.is_idle for load in loads)

    await _until(are_idle)
    for load in loads:
        load.close()
    return sum(load.answered for load in loads)


async def _until(condition: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(_PATIENCE_SECONDS):
        while not await condition():  # noqa: ASYNC110 - it is another process that changes
            await asyncio.sleep(_LOOK_SECONDS)


async def _count(port: int) -> int:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET / HTTP/1.1\r\n\r\n")
    await reader.readuntil(b"\r\n\r\n")
    text = await reader.read(32)
    writer.close()
    return int(text)


@asynccontextmanager
async def _program(module: str, *words: str) -> AsyncIterator[str]:
    """Run a module; gives the first line that it says."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", module, *words, cwd=ROOT,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    assert process.stdout is not None
    try:
        yield (await process.stdout.readline()).decode().strip()
    finally:
        process.kill()
        await process.wait()
