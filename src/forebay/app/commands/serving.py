"""`forebay serve`: the settings, the store behind the server, its upkeep, and how it ends."""

import argparse
import asyncio
import logging
import os
import socket
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Final, TypeAlias

from forebay.api.context import Context
from forebay.api.gate import Gate
from forebay.api.jwt.ring import JwtRing
from forebay.api.keyring import KeyRing
from forebay.api.queen.sealing import read_seal
from forebay.api.rate import RateLimits
from forebay.api.serving import HttpServer
from forebay.api.settings import check_exposure
from forebay.app import event_loop
from forebay.app.commands.deliver import process_title
from forebay.app.configuring import Loaded, file_faults, load_from, misconfigured
from forebay.app.logs import set_up_logs
from forebay.app.opening import RETRY_SECONDS, open_embedded
from forebay.app.plugins import read_plugins
from forebay.app.settings import Settings
from forebay.app.snapshots import following, open_snapshots, refreshing
from forebay.deliver.deliveries import Deliveries
from forebay.deliver.queue_metrics import QueueDeliveryMetrics
from forebay.deliver.tester import ConfiguredTester
from forebay.disk import RealDisk
from forebay.failover.failover import Failover
from forebay.model import Misconfigured, redact
from forebay.observe.programs import programs_file, read_programs
from forebay.observe.refresher import RefreshNumbers
from forebay.store.process import SpoolPlace
from forebay.store.seam import Store
from forebay.upkeep import Upkeep
from forebay.wire.port import listen

__all__ = ["serve"]

logger: Final = logging.getLogger("forebay.app")
_SWITCH_SECONDS: Final = 0.0001
"""How long a thread waits for the interpreter: SQLite's asks for it several times in a commit, and whoever
pushes waits for that."""
_Refresh: TypeAlias = Callable[[Store], AbstractAsyncContextManager[None]]


def serve(arguments: argparse.Namespace) -> int:
    """Serve until a signal; the address is printed when the port is open."""
    loaded = load_from(arguments)
    if faults := file_faults(loaded):
        raise misconfigured(faults)
    set_up_logs(loaded.settings.logging.format, loaded.settings.logging.level)
    sys.setswitchinterval(_SWITCH_SECONDS)
    event_loop.run(_serve(loaded))
    return 0


async def _serve(loaded: Loaded) -> None:
    settings = loaded.settings
    tokens = None if settings.jwt.algorithm is None else JwtRing(settings.jwt)
    ring = KeyRing(settings.keys_file, required=tokens is not None)
    check_exposure(settings.server, guarded=ring.guarded or tokens is not None)
    plugins = read_plugins(settings.metrics)
    _make_folder(settings.store.data)
    sock = listen(settings.server.listen)
    async with AsyncExitStack() as stack:
        failover = await _failover(settings)
        if failover is not None:
            await stack.enter_async_context(failover)
        context = Context(
            settings.server,
            limits=settings.limits,
            keys=Gate(ring, RateLimits(settings.keys), tokens=tokens),
            seal=read_seal(settings.queen),
            shown={row.key: row.value for row in loaded.rows()},
            failover=failover,
            metric_names=settings.metrics.names,
        )
        owner, numbers = process_title(), RefreshNumbers()
        snapshots = await stack.enter_async_context(open_snapshots(settings))
        context.snapshot = await stack.enter_async_context(following(snapshots, settings, owner, numbers))
        context.plugins = plugins
        context.programs = partial(read_programs, programs_file(settings.store.data), os.getppid())
        refresh = partial(refreshing, snapshots, settings, owner, numbers)
        await _run(loaded, context, sock, ring, refresh)
    logger.info("stopped")


_NAMES: Final = {
    "postgresql": "PostgreSQL", "postgres": "PostgreSQL", "tarantool": "Tarantool", "sqlite": "SQLite",
}  # fmt: skip
"""What a log is called, by the scheme of its address."""


async def _failover(settings: Settings) -> Failover | None:
    """What goes on while the log is away, unless that isn't wanted."""
    if not settings.spool.enabled:
        return None
    disk = RealDisk(settings.spool_folder)
    create = settings.server.create_queues
    name = _NAMES.get(settings.store.address.partition(":")[0], "")
    return await Failover.open(disk, settings.spool, limits=settings.limits, create_queues=create, name=name)


async def _run(
    loaded: Loaded, context: Context, sock: socket.socket, ring: KeyRing, refresh: _Refresh
) -> None:
    settings = loaded.settings
    server = HttpServer(context, lambda: _store(loaded, context, refresh), sock)
    server.handle_signals()
    host, port = sock.getsockname()[:2]
    shown = f"[{host}]" if ":" in host else host
    scheme = "https" if settings.server.tls_certificate else "http"
    address = f"{scheme}://{shown}:{port}"
    print(address, flush=True)  # noqa: T201 - the command's data
    said = {
        "store": redact(settings.store.address),
        "spool": "none" if context.failover is None else str(settings.spool_folder),
        "keys": len(ring) if ring.guarded or settings.jwt.algorithm else "none needed",
        "jwt": settings.jwt.algorithm or "none taken",
    }
    logger.info("listening on %s; its page is %s/", address, address, extra=said)
    ready = asyncio.create_task(_say_when_ready(server))
    try:
        await server.run()
    finally:
        ready.cancel()


async def _say_when_ready(server: HttpServer) -> None:
    await server.ready.wait()
    logger.info("ready")


@asynccontextmanager
async def _store(loaded: Loaded, context: Context, refresh: _Refresh) -> AsyncIterator[Store]:
    """The store with its upkeep, the deliveries of its queues, and the snapshot of its numbers."""
    settings = loaded.settings
    section, failover = settings.store, context.failover
    # A log that fails is no slow log: it has to say so before whoever pushes has waited for an attempt.
    guard = spool = None
    if failover is not None:
        folder = settings.spool_folder.absolute()
        guard, spool = failover.guard, SpoolPlace(failover.spool_identity, str(folder))
    async with (
        open_embedded(
            section.address,
            warm=section.warm,
            settings=section,
            limits=settings.limits,
            guard=guard,
            spool=spool,
            retry_seconds=RETRY_SECONDS if failover is None else failover.settings.attempt_seconds / 2,
        ) as store,
        Upkeep(store) as upkeep,
        Deliveries(store, loaded.deliveries, process=process_title()) as deliveries,
        _counted(context, deliveries),
        refresh(store),
    ):
        context.tester = ConfiguredTester(loaded.deliveries)
        context.inbox_rejected = lambda: upkeep.rejected
        if failover is not None:
            failover.announce_to(store.announce)
        if store.has_shared_tier:
            context.warm_problem = lambda: store.warm_problem
        yield store


@asynccontextmanager
async def _counted(context: Context, deliveries: Deliveries) -> AsyncIterator[None]:
    """Show what is delivered among the numbers of the server."""
    if not deliveries.running:
        yield
        return
    metrics = QueueDeliveryMetrics(deliveries.running)
    context.counters.add(metrics)
    try:
        yield
    finally:
        context.counters.remove(metrics)


def _make_folder(path: str) -> None:
    try:
        Path(path).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        text = f"the data folder {path} can't be made: {error.strerror}"
        raise Misconfigured(text, hint="name another one with --data", key="store.data") from None
