"""`forebay manager`: shares the job processors of all workers among the queues, until a signal."""

import argparse
import asyncio
import os
import signal
from contextlib import AsyncExitStack

from prometheus_client import CollectorRegistry

from forebay.app.commands.beginning import begun
from forebay.app.commands.numbers_page import NumbersPage
from forebay.app.commands.opened import answers, nobody_there, store_url
from forebay.app.logs import set_up_logs
from forebay.app.opening import is_server, open_store
from forebay.store.seam import Store
from forebay.work.managing import Manager, ManagerSettings

__all__ = ["manage"]


def manage(arguments: argparse.Namespace) -> int:
    """Manage until a signal; `--json` is about the logs."""
    set_up_logs("json" if arguments.json else "auto", arguments.log_level)
    settings = ManagerSettings(round_seconds=arguments.round, weights=dict(arguments.weight))
    asyncio.run(_manage(arguments, settings))
    return 0


async def _manage(arguments: argparse.Namespace, settings: ManagerSettings) -> None:
    registry, stopping = CollectorRegistry(), asyncio.Event()
    manager: Manager | None = None

    def trouble() -> str | None:
        return "the Manager hasn't begun" if manager is None else manager.trouble

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    async with AsyncExitStack() as stack:
        if arguments.metrics is not None:
            await stack.enter_async_context(NumbersPage([registry], trouble, arguments.metrics))
        store = await begun(lambda: _opened(stack, arguments), stopping)
        if store is None:
            return
        manager = Manager(store, settings=settings, registry=registry)
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, manager.stop)
        await manager.run()


async def _opened(stack: AsyncExitStack, arguments: argparse.Namespace) -> Store:
    """The store, which is closed with the stack; Unavailable if it isn't there."""
    url = store_url(arguments)
    if is_server(url) and not await answers(url):
        raise nobody_there(url)
    key = arguments.key or os.environ.get("FOREBAY_KEY") or None
    return await stack.enter_async_context(open_store(url, key=key))
