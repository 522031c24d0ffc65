"""A server in this process, on a real socket, that can be stopped and started again at its port."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Any, Self

from forebay.api.context import Context
from forebay.api.serving import HttpServer
from forebay.api.settings import ServerSettings
from forebay.log.memory import MemoryLog
from forebay.log.sqlite import SqliteLog
from forebay.store.store import LogStore
from forebay.wire.port import listen


class Server:
    """Use as `async with`. The log is what lasts between one start and the next."""

    def __init__(
        self, log: MemoryLog | SqliteLog | None = None, *, keys: Any = None, **settings: Any
    ) -> None:
        self._keys = keys
        self._log = log or MemoryLog()
        self._settings = ServerSettings(**settings)
        self._running: asyncio.Task[None] | None = None
        self.port = 0
        self.store: LogStore
        self.context: Context
        self.http: HttpServer

    @property
    def url(self) -> str:
        """Where it is."""
        scheme = "http" if self._settings.tls_certificate is None else "https"
        return f"{scheme}://127.0.0.1:{self.port}"

    async def start(self) -> None:
        """Listen, at the same port as before."""
        sock = listen(f"127.0.0.1:{self.port}")
        self.port = sock.getsockname()[1]
        self.context = Context(self._settings, keys=self._keys)
        self.store = LogStore(self._log)
        self.http = HttpServer(self.context, lambda: self.store, sock)  # type: ignore[arg-type,return-value,unused-ignore]
        self._running = asyncio.create_task(self.http.run())
        await self.http.ready.wait()

    async def stop(self) -> None:
        """Stop; a second call does nothing."""
        if self._running is not None:
            self.http.stop()
            await self._running
            self._running = None

    def requests(self, path: str) -> int:
        """How many requests were answered at a path."""
        return sum(count for (_, at, _), count in self.context.counters._requests.items() if at == path)

    async def waiting(self, count: int = 1) -> None:
        """Return once so many takes wait."""
        async with asyncio.timeout(10):
            while len(self.context.waiting) != count:  # noqa: ASYNC110 - no event for it
                await asyncio.sleep(0)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.stop()
