"""Pushes to a server that starts: they wait until it knows whether the log is there."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from forebay.api import context as api_context
from forebay.api.context import Context
from forebay.disk import RealDisk
from forebay.failover.failover import Failover
from forebay.log.memory import MemoryLog
from forebay.model import Block, Message
from forebay.store.store import LogStore

TURNS = 100
"""Of the event loop, in which a push that waits for nothing has long come to the spool's disk."""


@pytest.fixture
async def context(tmp_path: Path) -> AsyncIterator[Context]:
    """Give what a server has before it has tried to open its store."""
    async with await Failover.open(RealDisk(tmp_path)) as failover:
        yield Context(failover=failover)


def block() -> Block:
    return Block.of([Message(b"first", "p")])


async def test_a_push_while_the_server_starts_is_in_the_log_when_that_is_there(context: Context) -> None:
    assert context.failover is not None
    pushing = asyncio.create_task(context.append("orders", block()))
    for _ in range(TURNS):
        await asyncio.sleep(0)
    assert not pushing.done()
    async with LogStore(context.failover.guard(MemoryLog())) as store:
        context.opened = store
        context.tried.set()
        assert (await pushing).where == "log"


async def test_a_push_while_the_server_starts_is_spooled_when_the_log_is_away(context: Context) -> None:
    pushing = asyncio.create_task(context.append("orders", block()))
    context.tried.set()
    assert (await pushing).where == "spool"


async def test_a_push_waits_no_longer_than_its_time_for_a_log_that_swallows_everything(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api_context, "START_SECONDS", 0.01)
    assert (await context.append("orders", block())).where == "spool"
