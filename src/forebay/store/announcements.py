"""What a server tells the others through the shared tier: that a queue has something new.

Invariants: a writer never waits for the tier, and no fault of the tier reaches it; news of one queue that
come together are told once; what can't be told is dropped, since servers also look by themselves, twice a
second.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Final

from forebay.model import ForebayError, cancel
from forebay.warm.seam import Warm

PARTITIONS_MAX: Final = 1_000
"""Of more partitions of a queue it is only said that there is something."""


class Announcements:
    """Tells the other servers, one queue at a time, in the background."""

    def __init__(self, warm: Warm) -> None:
        self._warm = warm
        self._news: dict[int, set[str] | None] = {}
        """Partitions by queue; None where they are not known, or too many."""
        self._telling: asyncio.Task[None] | None = None

    def add(self, queue: int, partitions: Collection[str] | None) -> None:
        """Have it told that there is something new in a queue; in these partitions, if they are known."""
        known = self._news.setdefault(queue, set())
        if partitions is None or known is None or len(known) + len(partitions) > PARTITIONS_MAX:
            self._news[queue] = None
        else:
            known.update(partitions)
        if self._telling is None or self._telling.done():
            self._telling = asyncio.get_running_loop().create_task(self._tell())

    async def close(self) -> None:
        """Tell nothing more."""
        self._news.clear()
        await cancel(self._telling)

    async def _tell(self) -> None:
        try:
            while self._news:
                queue = next(iter(self._news))
                await self._warm.announce(queue, self._news.pop(queue))
        except ForebayError:
            self._news.clear()
        except Exception as error:  # noqa: BLE001 - reported; whoever wrote has nothing to do with it
            self._news.clear()
            text = "other servers can't be told of new messages"
            asyncio.get_running_loop().call_exception_handler({"message": text, "exception": error})
