"""`/metrics` and `/healthz` of a program of ours that isn't a server: a worker, a Manager."""

import logging
from collections.abc import Callable, Sequence
from typing import Final

from aiohttp import web
from prometheus_client import CollectorRegistry
from prometheus_client.registry import Collector

from forebay.observe.metrics_page import MetricsPage
from forebay.wire.port import listen

__all__ = ["NumbersPage"]

logger: Final = logging.getLogger("forebay.app")


class NumbersPage:
    """Served from `async with` on. `trouble` says why the program can't do its work; None if it can."""

    def __init__(
        self,
        numbers: Sequence[Collector | CollectorRegistry],
        trouble: Callable[[], str | None],
        address: str,
    ) -> None:
        self._page = MetricsPage(*numbers)
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

    async def _metrics(self, request: web.Request) -> web.Response:
        text, media = self._page.answer(request.headers.get("Accept", ""))
        return web.Response(body=text.encode(), headers={"Content-Type": media})

    async def _healthz(self, _: web.Request) -> web.Response:
        trouble = self._trouble()
        return web.Response(text=f"{trouble or 'ok'}\n", status=200 if trouble is None else 503)
