"""`forebay manager`: shares the job processors of all workers among the queues, until a signal."""

import argparse
import asyncio
import signal

from forebay.app.commands.opened import on_store
from forebay.app.logs import set_up_logs
from forebay.store.seam import Store
from forebay.work.managing import Manager, ManagerSettings

__all__ = ["manage"]


@on_store
async def manage(store: Store, arguments: argparse.Namespace) -> int:
    """Manage until a signal; `--json` is about the logs."""
    set_up_logs("json" if arguments.json else "auto", arguments.log_level)
    settings = ManagerSettings(round_seconds=arguments.round, weights=dict(arguments.weight))
    manager = Manager(store, settings=settings)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, manager.stop)
    await manager.run()
    return 0
