"""Our HTTP client and aiohttp's, sending requests of 1 KiB to a server on loopback, in turns.

The server is a process of its own that answers 204 and does nothing else. Beside the rate there is the
processor time of the client alone: a relay receives and keeps what it sends, on the same core.
"""

import asyncio
import multiprocessing
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from statistics import median
from time import perf_counter, process_time
from typing import Final, cast

import aiohttp
import httptools
import uvloop

from benchmarks.bench import Bench
from benchmarks.drive import interleave, ratios, turns_of, typical
from benchmarks.verdict import Figures
from forebay.deliver.http.destination import HttpDestination
from forebay.deliver.settings import DestinationSettings
from forebay.deliver.values import Request

_BODY: Final = bytes(1024)
_SENDERS: Final = 16
_HEADERS: Final = {"Content-Type": "application/x-protobuf", "Content-Encoding": "snappy"}


class _Receiver(asyncio.Protocol):
    """Answers 204 to everything."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._parser = httptools.HttpRequestParser(self)

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_message_complete(self) -> None:
        self._transport.write(b"HTTP/1.1 204 No Content\r\n\r\n")


def _receive(told: Connection) -> None:
    async def serve() -> None:
        server = await asyncio.get_running_loop().create_server(_Receiver, "127.0.0.1", 0)
        told.send(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    uvloop.run(serve())


@contextmanager
def receiver() -> Iterator[str]:
    """Run a server that takes everything; its address."""
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=_receive, args=(theirs,), daemon=True)
    process.start()
    try:
        yield f"http://127.0.0.1:{ours.recv()}/write"
    finally:
        process.terminate()
        process.join()


async def run(bench: Bench) -> Figures:
    """Measure both in turns, and the processor time of each."""
    pace = bench.pace
    cpu: dict[str, list[float]] = {"ours": [], "aiohttp": []}
    with bench.part("deliver_http", turns_of(2, pace.rounds)), receiver() as url:
        ours = HttpDestination(DestinationSettings(url=url, allow_private=True, concurrency=_SENDERS))
        headers = tuple((name.encode(), value.encode()) for name, value in _HEADERS.items())
        request = Request(b"POST", b"/write", headers, _BODY)
        connector = aiohttp.TCPConnector(limit=_SENDERS)
        async with aiohttp.ClientSession(connector=connector) as session:

            async def send_ours() -> None:
                assert (await ours.send(ours.prepare(request, id="x"))).is_delivered

            async def send_theirs() -> None:
                async with session.post(url, data=_BODY, headers=_HEADERS) as answer:
                    await answer.read()
                    assert answer.ok

            rates = await interleave(
                {
                    "ours": lambda seconds: _rate(send_ours, seconds, cpu["ours"]),
                    "aiohttp": lambda seconds: _rate(send_theirs, seconds, cpu["aiohttp"]),
                },
                pace.rounds,
                pace.seconds,
                bench.note,
            )
        await ours.close()
    # The first turn of each was to warm up.
    return {
        **{f"{name}_per_second": typical(rates[name]) for name in rates},
        **{f"{name}_cpu_us": round(median(cpu[name][1:]), 1) for name in cpu},
        "ratio": median(ratios(rates, "ours", "aiohttp")),
    }


async def _rate(send: Callable[[], Awaitable[None]], seconds: float, cpu: list[float]) -> float:
    """Send from all senders for a time; requests a second. Appends processor time of one, in µs."""
    count = 0
    began, cpu_began = perf_counter(), process_time()

    async def sender() -> None:
        nonlocal count
        while perf_counter() - began < seconds:
            await send()
            count += 1

    await asyncio.gather(*(sender() for _ in range(_SENDERS)))
    cpu.append((process_time() - cpu_began) / count * 1e6)
    return count / (perf_counter() - began)
