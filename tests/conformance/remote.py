"""The rig of a log on a server: one server for the whole run, in a thread of its own, over a log in memory.

Each rig puts a log of its own behind it. That log lives in the server's loop: whoever damages it from the
test's thread does so between requests.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

from forebay.api.context import Context
from forebay.api.serving import HttpServer
from forebay.client.log import http_log
from forebay.store.store import LogStore
from forebay.wire.port import listen
from tests.conformance.rigs import MemoryRig

if TYPE_CHECKING:
    from forebay.log.seam import Log

T = TypeVar("T")


class LogServer:
    """A server whose log can be exchanged."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="log-server", daemon=True)
        self._context: Context
        self._server: HttpServer
        self._serving: asyncio.Task[None]
        self.url = ""

    def start(self) -> None:
        """Listen at a free port."""
        self._thread.start()
        self._wait(self._start())

    async def _start(self) -> None:
        sock = listen("127.0.0.1:0")
        self.url = f"http://127.0.0.1:{sock.getsockname()[1]}"
        self._context = Context()
        self._server = HttpServer(self._context, lambda: LogStore(self._log), sock)  # type: ignore[arg-type,return-value,unused-ignore]  # see `LogStore`
        # Without the store's own rounds, which would be seen in the log.
        self._serving = asyncio.create_task(self._server._uvicorn.serve(sockets=[sock]))

    async def put(self, log: Log) -> None:
        """Serve this log from now on."""
        self._log = log
        await self._ask(self._put(log))

    async def _put(self, log: Log) -> None:
        await log.__aenter__()
        self._context.opened = LogStore(log)  # type: ignore[assignment,unused-ignore]  # likewise

    async def take_away(self) -> None:
        """Close the log."""
        self._context.opened = None
        await self._ask(self._log.__aexit__(None, None, None))

    def stop(self) -> None:
        """End the server and its thread."""
        self._wait(self._stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    async def _stop(self) -> None:
        self._server.stop()
        await self._serving

    async def _ask(self, what: Coroutine[Any, Any, T]) -> T:
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(what, self._loop))

    def _wait(self, what: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(what, self._loop).result(10)


class HttpRig(MemoryRig):
    """A log in memory behind a server; what is under test is the way to it."""

    name = "http"

    def __init__(self, server: LogServer) -> None:
        super().__init__()
        self._server = server

    async def open(self) -> None:
        await self._server.put(self._make())
        self._log = http_log(self._server.url)
        await self._log.__aenter__()
        self.is_open = True

    async def close(self) -> None:
        if self.is_open:
            await super().close()
            await self._server.take_away()
