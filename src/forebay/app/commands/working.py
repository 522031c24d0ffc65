"""`forebay worker`: finds a worker in a module of yours, runs it until a signal, shows its numbers."""

import argparse
import asyncio
import importlib
import inspect
import logging
import os
import sys
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any, Final, NoReturn

from forebay.app import event_loop
from forebay.app.commands.beginning import begun
from forebay.app.commands.numbers_page import NumbersPage
from forebay.app.logs import set_up_logs
from forebay.model import Misconfigured, cancel
from forebay.work.watching import SettingsFile
from forebay.work.worker import Worker

__all__ = ["find_worker", "work"]

_SWITCH_SECONDS: Final = 0.0005
"""How long a thread waits for the interpreter; see `serving`. Longer here, since handlers compute, too."""


def work(arguments: argparse.Namespace) -> int:
    """Run a worker until a signal; 0 when it stopped in good order."""
    set_up_logs(arguments.log_format, arguments.log_level)
    sys.setswitchinterval(_SWITCH_SECONDS)
    worker = find_worker(arguments.worker)
    if arguments.store is not None or worker.store is None:
        worker.store = arguments.store or os.environ.get("FOREBAY_STORE") or None
    worker.key = arguments.key or os.environ.get("FOREBAY_KEY") or worker.key
    event_loop.run(_work(worker, arguments))
    return 0


def find_worker(place: str) -> Worker:
    """The worker at `module:name`, or what the function there makes; Misconfigured says what is missing."""
    module, sign, name = place.partition(":")
    if not (module and sign and name) or module.startswith("."):
        raise Misconfigured(f"{place!r} names no worker", hint="write app.module:worker")
    if "" not in sys.path and str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        found = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise  # the module is there, and what it imports isn't
        is_file = "/" in module or module.endswith(".py")
        hint = "write app.module:worker" if is_file else "run this where it can be imported from"
        raise Misconfigured(f"there is no module {module}", hint=hint) from None
    worker = getattr(found, name, None)
    if callable(worker) and not isinstance(worker, Worker):
        _check_callable(worker, name, module)
        worker = worker()
    if not isinstance(worker, Worker):
        text = f"{name} in {module} is no worker"
        raise Misconfigured(text, hint="let it be a forebay.work.Worker, or a function that returns one")
    return worker


def _check_callable(made_by: Callable[..., Any], name: str, module: str) -> None:
    """Refuse what can't be called without arguments, before its own TypeError looks like a fault of ours."""
    try:
        inspect.signature(made_by).bind()
    except (TypeError, ValueError):  # it takes some, or, being written in C, doesn't say
        text = f"{name} in {module} is no worker, and can't be called without arguments to make one"
        raise Misconfigured(text, hint="name a forebay.work.Worker, or a function that returns one") from None


async def _work(worker: Worker, arguments: argparse.Namespace) -> None:
    """Run it."""
    async with AsyncExitStack() as stack:
        if arguments.metrics is not None:
            page = NumbersPage([worker.registry], lambda: worker.trouble, arguments.metrics)
            await stack.enter_async_context(page)
        worker.handle_signals()
        await begun(worker.init, worker.told_to_stop)
        if worker.told_to_stop.is_set():
            return
        watching = None
        if arguments.config is not None:
            file = SettingsFile(Path(arguments.config), arguments.service, worker)
            file.load()
            watching = asyncio.create_task(file.watch())
        try:
            await worker.run()
        finally:
            await cancel(watching)
    if worker.is_stuck:
        _leave()


def _leave() -> NoReturn:
    """End here and now: the loop would wait for handlers that won't end. Their leases end by themselves."""
    logging.shutdown()
    with suppress(OSError, ValueError):  # nobody listens any more
        sys.stdout.flush()
    os._exit(0)
