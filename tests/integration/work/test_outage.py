"""Handlers while the log of their server is away: what they put goes to the spool, and comes back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence

import pytest

import forebay
from forebay.store.seam import Store
from forebay.store.values import Task
from forebay.work import Context, HandlerStats, Storage
from tests.integration.work.steps import binding, running, until, until_counts
from tests.servers import ForebayServer, PostgresServer, ServerUnavailableError, absent


@pytest.fixture
def cluster() -> Iterator[PostgresServer]:
    """Give a PostgreSQL to stop and start."""
    try:
        server = PostgresServer()
        server.start()
    except ServerUnavailableError as error:
        absent(str(error))
    yield server
    server.close()


@pytest.fixture
async def served(cluster: PostgresServer) -> AsyncIterator[Store]:
    """Give the client of a server whose log is in that PostgreSQL."""
    with ForebayServer(cluster.create_database()) as server:
        async with forebay.open(server.url) as store:
            yield store


async def test_a_task_that_a_handler_puts_while_the_log_is_away_has_no_id_yet_and_is_not_lost(
    cluster: PostgresServer, served: Store, queue: str
) -> None:
    after, ids, seen = f"{queue}b", list[int](), list[bytes]()

    async def first(_: Context, storage: Storage, tasks: Sequence[Task]) -> HandlerStats:
        await asyncio.to_thread(cluster.stop_immediate)
        ids.append(await storage.put_task(after, b"later"))
        await asyncio.to_thread(cluster.start)
        await storage.done_task(task.id for task in tasks)
        ids.append(await storage.put_task(after, b"now"))
        return HandlerStats(processed=len(tasks))

    async def second(_: Context, storage: Storage, tasks: Sequence[Task]) -> HandlerStats:
        seen.extend(task.data for task in tasks)
        await storage.done_task(task.id for task in tasks)
        return HandlerStats(processed=len(tasks))

    await served.create_queue(queue)
    await served.put_task(queue, b"x")
    async with running(served, binding(queue, first), binding(after, second)) as worker:
        await until(lambda: len(seen) == 2, "both tasks that the handler put")
        found = worker.report().queues[queue]
    assert ids[0] == 0
    assert sorted(seen) == [b"later", b"now"]
    assert (found.processed, found.errors) == (1, 0)
    assert (await until_counts(served, queue, lambda books: books.done == 1)).difference == 0
