"""What tests do with the clients again and again."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any, Final

DEADLINE_SECONDS: Final = 30.0


async def until(condition: Callable[[], bool], what: str, seconds: float = DEADLINE_SECONDS) -> None:
    """Wait for something that must come."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"waited in vain: {what}"
        await asyncio.sleep(0)


async def pop_all(queue: Any, count: int) -> list[Any]:
    """Pop until so many messages have come."""
    found: list[Any] = []
    end = time.monotonic() + DEADLINE_SECONDS
    while len(found) < count:
        assert time.monotonic() < end, f"only {len(found)} of {count} messages came"
        found += await queue().wait(True).timeout_millis(2000).pop()
    return found


def datas(messages: list[Any]) -> list[Any]:
    """What was pushed."""
    return [message["data"] for message in messages]
