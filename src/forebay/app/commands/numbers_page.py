"""`/metrics` and `/healthz` of a program of ours that isn't a server: a worker, a Manager."""

import logging
from collections.abc import Callable
from typing import Final

from aiohttp import web
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

from forebay.wire.port import listen

__all__ = ["NumbersPage"]

logger: Final = logging.getLogger("forebay.app")


class NumbersPage:
    """Served from `async with` on. `trouble` says why the program can't do its work; None if it can."""

    def __init__(self, registry: CollectorRegistry, trouble: Callable[[], str | None], address: str) -> None:
        self._registry = registry
        self._trouble = trouble
        self._socket = listen(address)
        application = web.Application(client_max_size=0)
        application.router.add_get("/metrics", self._metrics)
        application.router.add_get("/healthz", self._healthz)
        self._runner = web.AppRunner(application, access_log=None, handle_signals=False)

    async def __aenter__(self) -> None:
        await self._runner.setup()
        await web.SockSite(self._runner, self._socket).start()
        host, port = self._socket.getsockname()[:2]
        logger.info("numbers are at http://%s:%d/metrics", f"[{host}]" if ":" in host else host, port)

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()

    async def _metrics(self, _: web.Request) -> web.Response:
        body = generate_latest(self._registry)
        return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE_PLAIN_0_0_4})

    async def _healthz(self, _: web.Request) -> web.Response:
        trouble = self._trouble()
        return web.Response(text=f"{trouble or 'ok'}\n", status=200 if trouble is None else 503)
