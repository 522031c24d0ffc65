"""The server over HTTP, loaded from this process; beside it the same store called directly."""

import asyncio
from collections.abc import Awaitable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from time import perf_counter
from typing import Final

import msgspec

from benchmarks.bench import Bench
from benchmarks.drive import Turn, append_rate, interleave, ratios, turns_of, typical
from benchmarks.httpload import HttpConnection, connections, request
from benchmarks.payloads import BATCH, PUSHERS, Batch, batches
from benchmarks.verdict import Figures
from benchmarks.workload import QUEUE, WORKERS, percentile
from forebay.app.opening import open_embedded

SINGLES: Final = 64
"""Connections that push one message at a time."""
POLLS: Final = 1_000
"""Takers that wait on a queue where nothing comes."""
_PUSH: Final = f"/v1/queues/{QUEUE}/messages"
_TAKE: Final = request(f"/v1/queues/{QUEUE}/take", b'{"count":100,"wait_seconds":5}')
_CREATED: Final = 201


class _Ticket(msgspec.Struct):
    id: str
    lease: str


class _Tasks(msgspec.Struct):
    tasks: list[_Ticket]


_tasks: Final = msgspec.json.Decoder(_Tasks)


async def push(bench: Bench) -> Figures:
    """Pushes of 100, on SQLite and on PostgreSQL, over HTTP and directly."""
    pace, turns = bench.pace, dict[str, Turn]()
    async with AsyncExitStack() as stack:
        for name, url in [
            ("sqlite", _sqlite(stack.enter_context(bench.folder()))),
            ("postgres", await stack.enter_async_context(bench.database())),
        ]:
            port = stack.enter_context(bench.forebay(url)).port
            turns[f"{name}_http"] = await _pushing(port)
            turns[f"{name}_direct"] = await _putting(stack, url)
        with bench.part("push", turns_of(len(turns), pace.rounds)):
            rates = await interleave(turns, pace.rounds, pace.seconds, bench.note)
    figures = {f"{name}_per_second": typical(rates[name]) for name in rates}
    for name in ("sqlite", "postgres"):
        figures[f"{name}_ratio"] = sorted(ratios(rates, f"{name}_http", f"{name}_direct"))[pace.rounds // 2]
    return figures


async def _pushing(port: int) -> Turn:
    bodies = [_body(batch) for batch in batches()]
    pushers = await connections(port, PUSHERS)

    async def push(number: int, turn: int) -> None:
        await pushers[number].ask(bodies[turn % len(bodies)], _CREATED)

    return lambda seconds: append_rate(push, seconds)


async def _putting(stack: AsyncExitStack, url: str) -> Turn:
    pushes = batches()
    store = await stack.enter_async_context(open_embedded(url))
    await store.create_queue("direct")

    async def put(_: int, turn: int) -> None:
        await store.put_task("direct", *pushes[turn % len(pushes)].payloads)

    return lambda seconds: append_rate(put, seconds)


def _body(batch: Batch, messages: int = BATCH) -> bytes:
    items = b",".join(b'{"payload":%b}' % payload for payload in batch.payloads[:messages])
    return request(_PUSH, b"[%b]" % items)


async def take(bench: Bench) -> Figures:
    """Take and done at batch 100, in JSON, on SQLite."""
    pace, rates = bench.pace, list[float]()
    with bench.folder() as folder, bench.forebay(_sqlite(folder)) as server, bench.part("take", pace.rounds):
        for number in range(pace.rounds):
            with bench.note(f"round {number + 1} of {pace.rounds}"):
                await _fill(server.port, pace.http_messages + 2 * WORKERS * BATCH)
                rates.append(await _take_rate(server.port, pace.http_messages))
    return {"json_per_second": typical(rates)}


async def _fill(port: int, messages: int) -> None:
    bodies, left = [_body(batch) for batch in batches()], messages // BATCH

    async def push(connection: HttpConnection) -> None:
        nonlocal left
        while left > 0:
            left -= 1
            await connection.ask(bodies[left % len(bodies)], _CREATED)
        connection.close()

    await asyncio.gather(*map(push, await connections(port, PUSHERS)))


async def _take_rate(port: int, messages: int) -> float:
    done, start = 0, perf_counter()

    async def work(connection: HttpConnection) -> None:
        nonlocal done
        while done < messages:
            found = _tasks.decode(await connection.ask(_TAKE))
            done += len(found.tasks)
            await connection.ask(request("/v1/done", msgspec.json.encode(found)))
        connection.close()

    await asyncio.gather(*map(work, await connections(port, WORKERS)))
    return done / (perf_counter() - start)


async def single(bench: Bench) -> Figures:
    """One message a push, from many connections: as many as go, then half as many, evenly."""
    pace, rates, found = bench.pace, list[float](), list[float]()
    with (
        bench.folder() as folder,
        bench.forebay(_sqlite(folder)) as server,
        bench.part("single", 2 * pace.rounds),
    ):
        for number in range(pace.rounds):
            with bench.note(f"as many as go, round {number + 1}"):
                rates.append(await _single_rate(server.port, pace.seconds))
        for number in range(pace.rounds):
            with bench.note(f"half as many, round {number + 1}"):
                found += await _delays(server.port, typical(rates) / 2, pace.seconds)
    found.sort()
    return {
        "per_second": typical(rates),
        "half_rate_ms_p50": percentile(found, 0.5),
        "half_rate_ms_p99": percentile(found, 0.99),
    }


async def _single_rate(port: int, seconds: float) -> float:
    bodies, count, start = _singles(), 0, perf_counter()

    async def push(connection: HttpConnection) -> None:
        nonlocal count
        while perf_counter() - start < seconds:
            await connection.ask(bodies[count % len(bodies)], _CREATED)
            count += 1
        connection.close()

    await asyncio.gather(*map(push, await connections(port, SINGLES)))
    return count / (perf_counter() - start)


def _singles() -> Sequence[bytes]:
    return [_body(batch, 1) for batch in batches()]


async def _delays(port: int, rate: float, seconds: float) -> list[float]:
    """Milliseconds from when a push was to be sent, whether it could be or not, to its answer."""
    bodies, found = _singles(), list[float]()
    free: asyncio.Queue[HttpConnection] = asyncio.Queue()
    for connection in await connections(port, SINGLES):
        free.put_nowait(connection)

    async def push(due: float, body: bytes) -> None:
        connection = await free.get()
        await connection.ask(body, _CREATED)
        found.append(1_000 * (perf_counter() - due))
        free.put_nowait(connection)

    start = perf_counter()
    async with asyncio.TaskGroup() as tasks:
        for number in range(int(rate * seconds)):
            due = start + number / rate
            ahead = due - perf_counter()
            if ahead > 0:
                await asyncio.sleep(ahead)
            tasks.create_task(push(due, bodies[number % len(bodies)]))
    while not free.empty():
        free.get_nowait().close()
    return found


async def polls(bench: Bench) -> Figures:
    """Pushes of 100 and of one while a thousand takers wait on a queue where nothing comes."""
    pace = bench.pace
    with bench.folder() as folder, bench.forebay(_sqlite(folder)) as server:
        await _fill(server.port, BATCH)
        idle, push = await HttpConnection.open(server.port), await _pushing(server.port)
        await idle.ask(request("/v1/queues/idle/messages", b'[{"payload":1}]'), _CREATED)
        await idle.ask(request("/v1/queues/idle/take"))
        waiting = request("/v1/queues/idle/take", b'{"wait_seconds":60}')

        def beside(turn: Turn, count: int) -> Turn:
            return lambda seconds: _beside(server.port, waiting, count, turn(seconds))

        async def one_by_one(seconds: float) -> float:
            return await _single_rate(server.port, seconds)

        turns = {
            "push": push, "push_beside": beside(push, POLLS),
            "single": one_by_one, "single_beside": beside(one_by_one, POLLS),
        }  # fmt: skip
        with bench.part("polls", turns_of(len(turns), pace.rounds)):
            rates = await interleave(turns, pace.rounds, pace.seconds, bench.note)
        idle.close()
    return {
        f"{name}_ratio": sorted(ratios(rates, f"{name}_beside", name))[pace.rounds // 2]
        for name in ("push", "single")
    }


async def _beside(port: int, waiting: bytes, count: int, turn: Awaitable[float]) -> float:
    """Let others wait meanwhile."""
    takers = await connections(port, count)
    waits = [asyncio.ensure_future(taker.ask(waiting)) for taker in takers]
    await asyncio.sleep(0.5)
    try:
        return await turn
    finally:
        assert not any(wait.done() for wait in waits), "somebody did not wait"
        for taker, wait in zip(takers, waits, strict=True):
            wait.cancel()
            taker.close()


async def memory(bench: Bench) -> Figures:
    """What the server holds while many messages wait, some of them warm."""
    messages = bench.pace.http_pending
    with bench.folder() as folder, bench.forebay(_sqlite(folder)) as server:
        with bench.part("memory", 1), bench.note(f"{messages:,} messages"):
            await _fill(server.port, messages)
            await _take_rate(server.port, BATCH * WORKERS)
        return {"rss_mb": round(server.rss_mb, 1), "pending": float(messages)}


def _sqlite(folder: Path) -> str:
    return f"sqlite:///{folder / 'log.db'}"
