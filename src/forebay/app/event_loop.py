"""Programs run on uvloop, and end also where it doesn't close.

Closing the loop waits until the system has let go of every socket. Rarely that never comes, after connections
were reset at the wrong moment. By then the program has done all that it had to: the process ends without.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

import uvloop

__all__ = ["run"]

T = TypeVar("T")

CLOSE_SECONDS: Final = 10.0
logger: Final = logging.getLogger("forebay.app")


def run(
    main: Coroutine[Any, Any, T],
    *,
    loop_factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop,
    close_seconds: float = CLOSE_SECONDS,
) -> T:
    """Run a program to its end."""
    runner, is_done = asyncio.Runner(loop_factory=loop_factory), False
    try:
        result = runner.run(main)
        is_done = True
        return result
    finally:
        status = 0 if is_done else 1
        watchdog = threading.Timer(close_seconds, _end_process, [status, close_seconds, sys.exc_info()[1]])
        watchdog.daemon = True
        watchdog.start()
        runner.close()
        watchdog.cancel()


def _end_process(status: int, seconds: float, error: BaseException | None) -> None:
    text = "the event loop hasn't closed for %g seconds; the program is done, and its process ends"
    logger.warning(text, seconds, exc_info=error)
    logging.shutdown()
    os._exit(status)
