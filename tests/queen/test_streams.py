"""Streams of Queen's clients: windows, gates and rate limiters count every message once, whatever happens."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from importlib import import_module
from random import Random
from typing import Any

import pytest

from tests.queen.packages import package
from tests.queen.steps import DEADLINE_SECONDS, until
from tests.servers import ForebayServer

Name = Callable[[str], str]
WORDS = ("ash", "birch", "cedar", "yew")
LEASE_SECONDS = 2


@pytest.fixture
def streams(version: str) -> Any:
    """Give the streams of that version."""
    return import_module(f"{package(version).__name__}.streams")


@asynccontextmanager
async def running(stream: Any, query: str, server: ForebayServer, **options: Any) -> AsyncIterator[Any]:
    errors: list[Any] = []
    runner = await stream.run(
        query_id=query, url=server.url, max_wait_millis=200, on_error=lambda *e: errors.append(e), **options
    )
    runner.errors = errors
    try:
        yield runner
    finally:
        await runner.stop()


async def fell(runner: Any) -> None:
    """End a runner as a crash would: in the middle of whatever it does."""
    runner._stopped = True
    for task in (runner._loop_task, runner._flush_task):
        if task is not None:
            task.cancel()


async def source(queen: Any, queue: str, count: int, seed: int = 7) -> Counter[str]:
    """A queue with words in four partitions; how many of each."""
    await queen.queue(queue).config({"lease_time": LEASE_SECONDS}).create()
    chance, words = Random(seed), Counter[str]()
    for number in range(count):
        word = chance.choice(WORDS)
        words[word] += 1
        await queen.queue(queue).partition(f"p{number % 4}").push([{"data": {"word": word, "n": number}}])
    return words


async def taken(queen: Any, queue: str, is_enough: Callable[[list[Any]], bool]) -> list[Any]:
    """What comes to a queue until it is enough."""
    found: list[Any] = []
    end = time.monotonic() + DEADLINE_SECONDS
    while not is_enough(found):
        assert time.monotonic() < end, f"waited in vain: {len(found)} came"
        batch = await queen.queue(queue).batch(500).partitions(10).wait(True).timeout_millis(500).pop()
        if batch:
            await queen.ack(batch, True)
            found += [message["data"] for message in batch]
    return found


def counted(found: list[Any]) -> Counter[str]:
    words = Counter[str]()
    for one in found:
        words[one["word"]] += one["count"]
    return words


def word_count(streams: Any, queen: Any, queue: str, sink: str) -> Any:
    return (
        streams.Stream.from_(queen.queue(queue))
        .key_by(lambda message: message["data"]["word"])
        .window_tumbling(seconds=1, idle_flush_ms=200)
        .reduce(lambda total, _: total + 1, 0)
        .map(lambda total, ctx: {"word": ctx["key"], "count": total})
        .to(queen.queue(sink))
    )


async def test_words_are_counted_exactly_although_runners_fall(
    queen: Any, name: Name, server: ForebayServer, streams: Any
) -> None:
    queue, sink = name("words"), name("counts")
    words = await source(queen, queue, 120)
    stream = word_count(streams, queen, queue, sink)
    for _ in range(3):
        async with running(stream, name("query"), server, batch_size=10) as runner:
            await until(lambda runner=runner: runner.metrics()["cyclesTotal"] > 0, "a cycle")  # type: ignore[misc]
            await fell(runner)
    async with running(stream, name("query"), server, batch_size=10):
        more = await source(queen, queue, 80, seed=8)
        total = words + more
        found = await taken(queen, sink, lambda found: counted(found).total() >= total.total())
        assert counted(found) == total


async def test_a_gate_lets_messages_through_in_order_and_the_others_come_again(
    queen: Any, name: Name, server: ForebayServer, streams: Any
) -> None:
    queue, sink = name("in"), name("out")
    await source(queen, queue, 40)
    asked = Counter[str]()

    def gate(_: Any, ctx: Any) -> bool:
        """Three at a time; a batch that begins with a refusal waits for its lease."""
        asked[ctx.partition_id] += 1
        ctx.state["n"] = ctx.state.get("n", 0) + 1
        return asked[ctx.partition_id] % 4 != 0

    stream = streams.Stream.from_(queen.queue(queue)).gate(gate).to(queen.queue(sink))
    async with running(stream, name("query"), server):
        found = await taken(queen, sink, lambda found: len(found) >= 40)
    numbers = [one["n"] for one in found]
    assert sorted(numbers) == list(range(40))
    for lane in range(4):
        mine = [number for number in numbers if number % 4 == lane]
        assert mine == sorted(mine)


async def test_what_a_limiter_refuses_for_long_is_never_a_dead_letter(
    queen: Any, name: Name, server: ForebayServer, streams: Any
) -> None:
    queue, sink = name("in"), name("out")
    # Each is refused more often than that; a lease that ends while the server is held up counts, too.
    options = {"lease_time": 1, "retry_limit": 2}
    await queen.queue(queue).config(options).create()
    await queen.queue(queue).push([{"data": {"n": n}} for n in range(6)])
    limiter = import_module(f"{streams.__name__}.helpers.rate_limiter")
    gate = limiter.token_bucket_gate(capacity=2, refill_per_sec=1)
    stream = streams.Stream.from_(queen.queue(queue)).gate(gate).to(queen.queue(sink))
    async with running(stream, name("query"), server):
        found = await taken(queen, sink, lambda found: len(found) >= 6)
    assert [one["n"] for one in found] == list(range(6))


async def test_a_query_with_another_configuration_is_refused_unless_it_is_reset(
    queen: Any, name: Name, server: ForebayServer, streams: Any
) -> None:
    queue, sink = name("words"), name("counts")
    await source(queen, queue, 4)
    async with running(word_count(streams, queen, queue, sink), name("query"), server) as runner:
        await until(lambda: runner.metrics()["cyclesTotal"] > 0, "a cycle")
    other = streams.Stream.from_(queen.queue(queue)).map(lambda m: m["data"]).to(queen.queue(name("else")))
    runtime = f"{streams.__name__}.runtime"
    http = import_module(f"{runtime}.streams_http_client").StreamsHttpClient(url=server.url)
    register = import_module(f"{runtime}.register")
    with pytest.raises(register.StreamsConfigHashMismatch):
        await register.register_query(http, name("query"), queue, config_hash="other")
    await http.close()
    async with running(other, name("query"), server, reset=True):
        await queen.queue(queue).push([{"data": {"n": 1}}])
        await taken(queen, name("else"), lambda found: {"n": 1} in found)


async def test_sessions_are_counted_exactly_too(
    queen: Any, name: Name, server: ForebayServer, streams: Any
) -> None:
    queue, sink = name("words"), name("counts")
    words = await source(queen, queue, 60)
    stream = (
        streams.Stream.from_(queen.queue(queue))
        .key_by(lambda message: message["data"]["word"])
        .window_session(gap=1, idle_flush_ms=200)
        .reduce(lambda total, _: total + 1, 0)
        .map(lambda total, ctx: {"word": ctx["key"], "count": total})
        .to(queen.queue(sink))
    )
    async with running(stream, name("query"), server, batch_size=7):
        found = await taken(queen, sink, lambda found: counted(found).total() >= words.total())
        assert counted(found) == words
