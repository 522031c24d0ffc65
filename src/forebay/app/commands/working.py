"""`forebay worker`: finds a worker in a module of yours, runs it until a signal, shows its numbers."""

import argparse
import asyncio
import importlib
import logging
import os
import sys
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Final

import uvloop
from aiohttp import web
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

from forebay.api.serving import listen
from forebay.app.logs import set_up_logs
from forebay.model import Misconfigured, Unavailable, cancel
from forebay.work.watching import SettingsFile
from forebay.work.worker import Worker

__all__ = ["find_worker", "work"]

logger: Final = logging.getLogger("forebay.app")
_AGAIN_SECONDS: Final = 1.0
_SWITCH_SECONDS: Final = 0.0005
"""How long a thread waits for the interpreter; see `serving`."""


def work(arguments: argparse.Namespace) -> int:
    """Run a worker until a signal; 0 when it stopped in good order."""
    set_up_logs(arguments.log_format, arguments.log_level)
    sys.setswitchinterval(_SWITCH_SECONDS)
    worker = find_worker(arguments.worker)
    if arguments.store is not None or worker.store is None:
        worker.store = arguments.store or os.environ.get("FOREBAY_STORE") or None
    worker.key = arguments.key or os.environ.get("FOREBAY_KEY") or worker.key
    if uvloop.run(_work(worker, arguments)):
        logging.shutdown()
        os._exit(0)  # a handler that won't end must not keep the process: its leases end by themselves
    return 0


def find_worker(place: str) -> Worker:
    """The worker at `module:name`, or what the function there makes; Misconfigured says what is missing."""
    module, sign, name = place.partition(":")
    if not (module and sign and name):
        raise Misconfigured(f"{place!r} names no worker", hint="write app.module:worker")
    if "" not in sys.path and str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        found = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise  # the module is there, and what it imports isn't
        hint = "run this where it can be imported from"
        raise Misconfigured(f"there is no module {module}", hint=hint) from None
    worker = getattr(found, name, None)
    if callable(worker) and not isinstance(worker, Worker):
        worker = worker()
    if not isinstance(worker, Worker):
        text = f"{name} in {module} is no worker"
        raise Misconfigured(text, hint="let it be a forebay.work.Worker, or a function that returns one")
    return worker


async def _work(worker: Worker, arguments: argparse.Namespace) -> bool:
    """Run it; tells whether handlers were left that would not end."""
    async with AsyncExitStack() as stack:
        if arguments.metrics is not None:
            await stack.enter_async_context(_Page(worker, arguments.metrics))
        worker.handle_signals()
        await _init(worker)
        if worker.told_to_stop.is_set():
            return False
        watching = None
        if arguments.config is not None:
            file = SettingsFile(Path(arguments.config), arguments.service, worker)
            file.load()
            watching = asyncio.create_task(file.watch())
        try:
            await worker.run()
        finally:
            await cancel(watching)
    return worker.is_stuck


async def _init(worker: Worker) -> None:
    """Begin as soon as the store is there, unless a signal comes first."""
    while not worker.told_to_stop.is_set():
        beginning = asyncio.create_task(worker.init())
        stopping = asyncio.create_task(worker.told_to_stop.wait())
        await asyncio.wait([beginning, stopping], return_when=asyncio.FIRST_COMPLETED)
        await cancel(stopping)
        if not beginning.done():
            await cancel(beginning)
            return
        error = beginning.exception()
        if error is None:
            return
        if not isinstance(error, Unavailable):
            raise error
        logger.warning("the store can't be opened, which is tried again: %s", error)
        with suppress(TimeoutError):
            await asyncio.wait_for(worker.told_to_stop.wait(), _AGAIN_SECONDS)


class _Page:
    """`/metrics` and `/healthz` of a worker."""

    def __init__(self, worker: Worker, address: str) -> None:
        self._worker = worker
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
        registry: CollectorRegistry = self._worker.registry
        return web.Response(
            body=generate_latest(registry), headers={"Content-Type": CONTENT_TYPE_PLAIN_0_0_4}
        )

    async def _healthz(self, _: web.Request) -> web.Response:
        trouble = self._worker.trouble
        return web.Response(text=f"{trouble or 'ok'}\n", status=200 if trouble is None else 503)
