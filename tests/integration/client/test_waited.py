"""Pushes that waited in a spool of their caller: they were accepted then, by the server's clock."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from forebay.client import Client
from forebay.model import Block, Message, SystemClock
from tests.integration.client.serving import Server
from tests.integration.http_wire import Answer, ask

HOUR = 3_600_000_000
MESSAGES = "/v1/queues/orders/messages"


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    """Give a server whose queue compares for an hour."""
    async with Server() as server:
        await server.store.create_queue("orders", {"dedupe_seconds": 3600})
        yield server


async def asked(server: Server, body: Any, headers: dict[str, str]) -> Answer:
    """Push by hand."""
    return await asyncio.to_thread(ask, server.port, "POST", MESSAGES, body, headers)


def named(hours_ago: float, *names: str) -> Block:
    """Messages that are called by their transaction ids, made some time ago."""
    messages = [Message(name.encode(), "", name) for name in names]
    return Block.of(messages, created_at=SystemClock().now() - int(hours_ago * HOUR))


async def test_a_block_that_waited_was_accepted_then(server: Server) -> None:
    async with Client(server.url) as client:
        assert (await client.append("orders", named(0, "t1"))).count == 1
        near = await client.append("orders", named(0.5, "t1", "t2"), replayed=True)
        assert (near.count, set(near.duplicates)) == (1, {0})
        far = await client.append("orders", named(2, "t1", "t3"), replayed=True)
        assert far.count == 2
        now = SystemClock().now()
        ages = [round((now - task.created_at) / HOUR, 1) for task in await client.get_task("orders", 10)]
        assert ages == [0, 0.5, 2, 2]


async def test_the_clock_of_a_client_that_pushes_directly_says_nothing(server: Server) -> None:
    """A device that thinks that it is 1970, and one that is ahead."""
    async with Client(server.url) as client:
        begin = SystemClock().now()
        for hours_ago in (400_000, -48):
            await client.append("orders", named(hours_ago, f"t{hours_ago}"))
        tasks = await client.get_task("orders", 10)
        end = SystemClock().now()
        assert [begin <= task.created_at <= end for task in tasks] == [True, True]


@pytest.mark.parametrize("text", ["soon", "-1", "nan", "inf", "", "1e300"])
async def test_a_wait_that_is_none_is_refused(server: Server, text: str) -> None:
    answer = await asked(server, [{"payload": 1}], {"Forebay-Waited-Seconds": text})
    assert "Forebay-Waited-Seconds" in answer.problem(400)["detail"]


@pytest.mark.parametrize("lines", [False, True])
async def test_messages_that_waited_were_accepted_then(server: Server, *, lines: bool) -> None:
    headers = {"Forebay-Waited-Seconds": "7200.5"}
    if lines:
        headers["Content-Type"] = "application/x-ndjson"
    body = b'{"payload":1,"transaction_id":"t"}\n' if lines else [{"payload": 1, "transaction_id": "t"}]
    for _ in range(2):  # it is compared with its own time
        assert (await asked(server, body, headers)).status == 201
    async with Client(server.url) as client:
        (task,) = await client.get_task("orders", 10)
        assert round((SystemClock().now() - task.created_at) / HOUR, 1) == 2
