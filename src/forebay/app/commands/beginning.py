"""How a program begins that runs for long: as soon as its store is there, unless a signal comes first."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, Final, TypeVar

from forebay.model import Unavailable, cancel

__all__ = ["begun"]

logger: Final = logging.getLogger("forebay.app")
_AGAIN_SECONDS: Final = 1.0
T = TypeVar("T")


async def begun(begin: Callable[[], Coroutine[Any, Any, T]], stopping: asyncio.Event) -> T | None:
    """What `begin` returns, tried again while the store is away; None if `stopping` is set before that."""
    said = ""
    while not stopping.is_set():
        beginning = asyncio.create_task(begin())
        ending = asyncio.create_task(stopping.wait())
        await asyncio.wait([beginning, ending], return_when=asyncio.FIRST_COMPLETED)
        await cancel(ending)
        if not beginning.done():
            await cancel(beginning)
            return None
        error = beginning.exception()
        if error is None:
            return beginning.result()
        if not isinstance(error, Unavailable):
            raise error
        if str(error) != said:
            said = str(error)
            logger.warning("the store can't be opened, which is tried again: %s", said)
        with suppress(TimeoutError):
            await asyncio.wait_for(stopping.wait(), _AGAIN_SECONDS)
    return None
