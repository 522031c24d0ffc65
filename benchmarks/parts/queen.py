"""The same load by the same client of Queen MQ: on our server and, where one is given, on Queen's."""

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from time import perf_counter
from typing import Any, Final
from uuid import uuid4

from benchmarks.bench import Bench
from benchmarks.drive import typical
from benchmarks.verdict import Figures
from tests.queen.packages import package

QUEEN_URL: Final = "QUEEN_URL"
"""The variable that names a Queen server to compare with."""
CLIENT_VERSION: Final = os.environ.get("QUEEN_CLIENT", "0.15.0")
BATCHES: Final = (1, 10, 100)
PUSHERS: Final = 16
PARTITIONS: Final = 5_000
_PAYLOAD: Final = {"text": "x" * 180, "number": 1}
_Measure = Callable[[Any], Awaitable[float]]


@asynccontextmanager
async def _sides(bench: Bench) -> AsyncIterator[Mapping[str, Any]]:
    """Clients of both servers, by whose it is."""
    async with AsyncExitStack() as stack:
        folder = stack.enter_context(bench.folder())
        urls = {"forebay": stack.enter_context(bench.forebay(f"sqlite:///{folder}/forebay.db")).url}
        if other := os.environ.get(QUEEN_URL):
            urls["queen"] = other
        make = package(CLIENT_VERSION).Queen
        yield {name: await stack.enter_async_context(make(url)) for name, url in urls.items()}


async def _compared(bench: Bench, name: str, measures: Mapping[str, _Measure]) -> Figures:
    """Rates of each measure on each side, taking turns, and their ratio where there are two sides."""
    figures: dict[str, float] = {}
    async with _sides(bench) as sides:
        with bench.part(name, len(measures) * len(sides) * bench.pace.rounds):
            for figure, measure in measures.items():
                rates: dict[str, list[float]] = {side: [] for side in sides}
                for number in range(bench.pace.rounds):
                    for side, client in sides.items():
                        with bench.note(f"{figure}, {side}, round {number + 1}"):
                            rates[side].append(await measure(client))
                figures |= {f"{side}_{figure}": typical(found) for side, found in rates.items()}
                if "queen" in rates:
                    ratios = [a / b for a, b in zip(rates["forebay"], rates["queen"], strict=True)]
                    figures[f"{figure}_ratio"] = typical(ratios)
    return figures


async def push(bench: Bench) -> Figures:
    """Pushes of 1, 10 and 100 messages."""
    seconds = bench.pace.seconds
    return await _compared(
        bench, "push", {f"batch_{size}_per_second": _pushing(size, seconds) for size in BATCHES}
    )


def _pushing(size: int, seconds: float) -> _Measure:
    async def measure(client: Any) -> float:
        queue, start, count = f"push-{uuid4().hex}", perf_counter(), 0

        async def push(number: int) -> None:
            nonlocal count
            items = [{"data": _PAYLOAD} for _ in range(size)]
            while perf_counter() - start < seconds:
                await client.queue(queue).partition(f"p{number}").push(items)
                count += size

        await asyncio.gather(*map(push, range(PUSHERS)))
        rate = count / (perf_counter() - start)
        await client.queue(queue).delete()
        return rate

    return measure


async def consume(bench: Bench) -> Figures:
    """Pops and acknowledgements of 100: of many partitions by many consumers, and of one by one, in order."""
    messages = bench.pace.queen_messages
    return await _compared(
        bench,
        "consume",
        {
            "batch_100_per_second": _consuming(messages, PUSHERS),
            "in_order_per_second": _consuming(messages, 1),
        },
    )


def _consuming(messages: int, consumers: int) -> _Measure:
    async def measure(client: Any) -> float:
        queue, seen = f"consume-{uuid4().hex}", dict[str, list[int]]()
        await _fill(client, queue, messages, consumers)
        start, done = perf_counter(), 0

        async def work() -> None:
            nonlocal done
            while done < messages:
                found = await client.queue(queue).group("bench").batch(100).wait(False).pop()
                for message in found:
                    seen.setdefault(message["partition"], []).append(message["data"]["number"])
                if found:
                    await client.ack(found, True, {"group": "bench"})
                    done += len(found)

        await asyncio.gather(*(work() for _ in range(consumers)))
        rate = done / (perf_counter() - start)
        assert all(numbers == sorted(set(numbers)) for numbers in seen.values()), "not in order, or twice"
        await client.queue(queue).delete()
        return rate

    return measure


async def _fill(client: Any, queue: str, messages: int, partitions: int) -> None:
    each = messages // partitions

    async def fill(partition: int) -> None:
        for begin in range(0, each, 1_000):
            items = [{"data": {**_PAYLOAD, "number": n}} for n in range(begin, min(begin + 1_000, each))]
            await client.queue(queue).partition(f"p{partition}").push(items)

    await asyncio.gather(*map(fill, range(partitions)))
    left = messages - each * partitions
    if left:
        await client.queue(queue).partition("rest").push([{"data": {"number": n}} for n in range(left)])


async def partitions(bench: Bench) -> Figures:
    """Five thousand partitions by one push."""
    return await _compared(bench, "partitions", {"made_per_second": _making(PARTITIONS)})


def _making(count: int) -> _Measure:
    async def measure(client: Any) -> float:
        queue = f"partitions-{uuid4().hex}"
        items = [
            {"queue": queue, "partition": f"p{n}", "payload": _PAYLOAD, "transactionId": uuid4().hex}
            for n in range(count)
        ]
        start = perf_counter()
        # The client's own builder pushes to one partition; its connection takes any.
        results = await client._http_client.post("/api/v1/push", {"items": items})  # noqa: SLF001 - see above
        rate = count / (perf_counter() - start)
        assert [result["status"] for result in results] == ["queued"] * count
        await client.queue(queue).delete()
        return rate

    return measure
