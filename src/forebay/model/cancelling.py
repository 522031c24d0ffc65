"""Ending asyncio's tasks, also those that run code of others."""

import asyncio
from typing import Any, Final

_PATIENCE_SECONDS: Final = 0.05


async def cancel(*tasks: "asyncio.Task[Any] | None") -> None:
    """Cancel tasks and return when they have ended, whatever they ended with.

    They are cancelled again after a while: libraries swallow a cancellation that meets the end of what they
    wait for (redis-py while it connects, `asyncio.wait_for` before Python 3.12), and their caller goes on.
    """
    while left := [task for task in tasks if task is not None and not task.done()]:
        for task in left:
            task.cancel()
        await asyncio.wait(left, timeout=_PATIENCE_SECONDS)
