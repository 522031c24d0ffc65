"""A server on a thread of its own, for tests that have no event loop."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from types import TracebackType
from typing import Self

from forebay.log.sqlite import SqliteLog
from tests.integration.client.serving import Server


class ServerThread:
    """Use as `with`."""

    def __init__(self, path: Path, *, port: int = 0) -> None:
        self._path = path
        self._port = port
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="server")
        self._server: Server

    @property
    def url(self) -> str:
        """Where it is."""
        return self._server.url

    def all_waiting(self, count: int) -> None:
        """Return once so many takes wait."""
        asyncio.run_coroutine_threadsafe(self._server.waiting(count), self._loop).result(20)

    def __enter__(self) -> Self:
        self._thread.start()
        self._server = Server(SqliteLog(self._path))
        self._server.port = self._port
        asyncio.run_coroutine_threadsafe(self._server.start(), self._loop).result(20)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        asyncio.run_coroutine_threadsafe(self._server.stop(), self._loop).result(30)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
