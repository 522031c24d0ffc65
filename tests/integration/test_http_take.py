"""Takes over HTTP: what a server does between leasing tasks and answering them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import aiohttp

from forebay.api.context import Context
from forebay.api.serving import HttpServer
from forebay.log.memory import MemoryLog
from forebay.log.values import Mark, Queue
from forebay.model import Block, Message
from forebay.store.store import LogStore
from forebay.wire.port import listen


class SpokenLog(MemoryLog):
    """A log that remembers whether it was asked for queues after something was handed out."""

    def __init__(self) -> None:
        super().__init__()
        self.is_out = False
        self.asked_late = False

    async def mark(self, marks: Sequence[Mark]) -> Sequence[int]:
        self.is_out = True
        return await super().mark(marks)

    async def queues(
        self, *, numbers: Sequence[int] | None = None, after: int = 0, limit: int | None = None
    ) -> list[Queue]:
        self.asked_late = self.asked_late or self.is_out
        return await super().queues(numbers=numbers, after=after, limit=limit)


async def test_the_log_isnt_asked_for_anything_while_leases_run_and_the_answer_waits() -> None:
    log = SpokenLog()
    store = LogStore(log)
    sock = listen("127.0.0.1:0")
    url = f"http://127.0.0.1:{sock.getsockname()[1]}"
    context = Context()
    server = HttpServer(context, lambda: store, sock)  # type: ignore[arg-type,return-value,unused-ignore]  # see `LogStore`
    serving = asyncio.create_task(server._uvicorn.serve(sockets=[sock]))
    async with store, aiohttp.ClientSession() as session:
        context.opened = store  # type: ignore[assignment,unused-ignore]  # likewise
        await store.create_queue("orders")
        await store.append("orders", Block.of([Message(b"1")]))
        async with session.post(f"{url}/v1/queues/orders/take", json={"wait_seconds": 30}) as answer:
            (task,) = (await answer.json())["tasks"]
        assert (task["queue"], log.is_out, log.asked_late) == ("orders", True, False)
        server._uvicorn.should_exit = True
        await serving
