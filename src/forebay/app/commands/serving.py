"""`forebay serve`: the settings, the store behind the server, its upkeep, and how it ends."""

import argparse
import asyncio
import logging
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import uvloop

from forebay.api.context import Context
from forebay.api.gate import Gate
from forebay.api.keyring import KeyRing
from forebay.api.rate import RateLimits
from forebay.api.serving import HttpServer, listen
from forebay.api.settings import check_exposure
from forebay.app.configuring import Loaded, declare_settings, file_faults, load_from, misconfigured
from forebay.app.logs import set_up_logs
from forebay.app.opening import open_embedded
from forebay.app.settings import Settings
from forebay.model import Misconfigured, redact
from forebay.store.seam import Store
from forebay.upkeep import Upkeep

__all__ = ["declare_serve", "serve"]

logger: Final = logging.getLogger("forebay.app")
_SWITCH_SECONDS: Final = 0.0005
"""How long a thread waits for the interpreter: SQLite's asks for it several times in a commit, and whoever
pushes waits for that."""


def declare_serve(parser: argparse.ArgumentParser) -> None:
    """The arguments of `forebay serve`."""
    declare_settings(parser)


def serve(arguments: argparse.Namespace) -> int:
    """Serve until a signal; the address is printed when the port is open."""
    loaded = load_from(arguments)
    if faults := file_faults(loaded):
        raise misconfigured(faults)
    set_up_logs(loaded.settings.logging.format, loaded.settings.logging.level)
    sys.setswitchinterval(_SWITCH_SECONDS)
    uvloop.run(_serve(loaded))
    return 0


async def _serve(loaded: Loaded) -> None:
    settings = loaded.settings
    ring = KeyRing(settings.keys_file)
    check_exposure(settings.server, guarded=ring.guarded)
    context = Context(
        settings.server,
        limits=settings.limits,
        keys=Gate(ring, RateLimits(settings.keys)),
        shown={row.key: row.value for row in loaded.rows()},
    )
    sock = listen(settings.server.listen)
    server = HttpServer(context, lambda: _store(settings), sock)
    server.handle_signals()
    host, port = sock.getsockname()[:2]
    shown = f"[{host}]" if ":" in host else host
    scheme = "https" if settings.server.tls_certificate else "http"
    address = f"{scheme}://{shown}:{port}"
    print(address, flush=True)  # noqa: T201 - the command's data
    said = {"store": redact(settings.store.address), "keys": len(ring) if ring.guarded else "none needed"}
    logger.info("listening on %s; its page is %s/docs", address, address, extra=said)
    ready = asyncio.create_task(_say_when_ready(server))
    try:
        await server.run()
    finally:
        ready.cancel()
    logger.info("stopped")


async def _say_when_ready(server: HttpServer) -> None:
    await server.ready.wait()
    logger.info("ready")


@asynccontextmanager
async def _store(settings: Settings) -> AsyncIterator[Store]:
    """The store with its upkeep; the data folder is made if it isn't there."""
    section = settings.store
    _make_folder(section.data)
    async with (
        open_embedded(section.address, warm=section.warm, settings=section, limits=settings.limits) as store,
        Upkeep(store),
    ):
        yield store


def _make_folder(path: str) -> None:
    try:
        Path(path).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        text = f"the data folder {path} can't be made: {error.strerror}"
        raise Misconfigured(text, hint="name another one with --data", key="store.data") from None
