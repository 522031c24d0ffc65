"""Running the server: the port is open at once, the store as soon as it can be; stopping in order.

Invariants: a store that is away at the start is tried again, and requests are told so meanwhile; the first
signal ends waiting and lets requests finish within their deadline, the second hurries; what was answered is
durable whatever comes first.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import Final

import uvicorn

from forebay.api.application import Application
from forebay.api.context import Context
from forebay.api.protocol import bounded
from forebay.api.routes import ROUTES
from forebay.model import Unavailable, cancel
from forebay.store.seam import Store
from forebay.wire.port import BACKLOG, raise_files_limit

logger: Final = logging.getLogger("forebay.api")
_AGAIN_SECONDS: Final = 1.0


class _Uvicorn(uvicorn.Server):
    """uvicorn without its signal handlers: ours know what is to be ended first."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave the signals alone."""
        yield


class HttpServer:
    """A server on a socket. `ready` is set once the store is open."""

    def __init__(
        self,
        context: Context,
        make_store: Callable[[], AbstractAsyncContextManager[Store]],
        sock: socket.socket,
    ) -> None:
        self.context = context
        self.ready = asyncio.Event()
        self._make_store = make_store
        self._socket = sock
        limits, settings = context.settings.limits, context.settings
        raise_files_limit(limits.connections_max)
        self._uvicorn = _Uvicorn(
            uvicorn.Config(
                Application(context, ROUTES),
                http=bounded(limits, context.counters),  # type: ignore[arg-type]
                ws="none",
                loop="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                backlog=BACKLOG,
                timeout_keep_alive=limits.idle_seconds,  # type: ignore[arg-type]  # fractions do as well
                timeout_graceful_shutdown=limits.shutdown_seconds,  # type: ignore[arg-type]  # likewise
                ssl_certfile=settings.tls_certificate,
                ssl_keyfile=settings.tls_key,
            )
        )

    def stop(self) -> None:
        """Stop in order; asked again, at once."""
        if self.context.draining.is_set():
            self._uvicorn.force_exit = True
        self.context.drain()
        self._uvicorn.should_exit = True

    async def run(self) -> None:
        """Serve until `stop`."""
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self.context.desk.samples)
            maintenance = self.context.desk.maintenance
            maintenance.begin()
            watching = asyncio.create_task(maintenance.watch(), name="forebay-maintenance")
            firing = asyncio.create_task(self.context.desk.firing.watch(), name="forebay-timers")
            opening = asyncio.create_task(self._open(stack))
            serving = asyncio.create_task(self._uvicorn.serve(sockets=[self._socket]))
            try:
                await asyncio.wait([opening, serving], return_when=asyncio.FIRST_COMPLETED)
                if opening.done() and opening.exception() is not None:
                    self.stop()
                await serving
            finally:
                await cancel(serving, opening, watching, firing)
                await self.context.merger.close()
                await self._end_requests()
                self.context.opened = None
                self.context.reason = "the server is stopping"
        if not opening.cancelled() and (error := opening.exception()) is not None:
            raise error

    async def _end_requests(self) -> None:
        """Whoever is still served when the time is over is told so, and cut off."""
        state = self._uvicorn.server_state
        await cancel(*state.tasks)
        for connection in list(state.connections):
            connection.transport.abort()
        while state.connections:  # noqa: ASYNC110 - it takes them a turn or two to notice
            await asyncio.sleep(0)

    async def _open(self, stack: AsyncExitStack) -> None:
        """Open the store; again and again while it is away."""
        while True:
            try:
                store = await stack.enter_async_context(self._make_store())
            except Unavailable as error:
                self.context.tried.set()
                self.context.reason = f"the store can't be opened: {error.message}"
                logger.warning("%s; it is tried again", self.context.reason)
                await asyncio.sleep(_AGAIN_SECONDS)
            else:
                self.context.opened = store
                await self.context.desk.maintenance.look()
                self.context.tried.set()  # until now pushes would have been held back
                self.ready.set()
                return

    def handle_signals(self) -> None:
        """Let SIGTERM and SIGINT stop the server."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.stop)
