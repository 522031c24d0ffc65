"""Storage: what a handler may do to its tasks, and to queues. The seam that handlers work with.

A handler needs no leases: ids are enough, since a storage knows the leases of its batch.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Protocol

from forebay.store.values import StoreStats
from forebay.work.values import RetryInfo

__all__ = ["RetryInfo", "Storage"]


class Storage(Protocol):
    """The verbs of one batch. What they are told is durable when they return.

    While the log is away that is in the spool of the server; it comes to the log before the tasks are given
    to others, unless that server is cut off, or down, for 30 seconds.

    A task whose lease was lost in the meantime is with another worker: what is said of it changes nothing, is
    counted, and the handler finds it in `Context.lost`. Rejected, and nothing is changed, where a task isn't
    of this batch, or is settled already.
    """

    async def done_task(self, task_ids: Iterable[int]) -> None:
        """Tasks are done."""
        ...

    async def retry_task(self, retries: Iterable[RetryInfo]) -> None:
        """Tasks come back, each at its time, and that counts as an attempt.

        One that has come back `retries_max` times becomes a dead letter.
        """
        ...

    async def bury_task(self, task_ids: Iterable[int], reason: str) -> None:
        """Tasks become dead letters."""
        ...

    async def put_task(
        self,
        queue: str,
        data: bytes,
        *,
        start_time: int | datetime | None = None,
        delay: float | timedelta | None = None,
        partition: str = "",
        headers: dict[str, str] | None = None,
        transaction_id: str | None = None,
    ) -> int:
        """Put a task in a queue; its id, or 0 while it is in a spool, where it is durable, too.

        With a transaction id it is put once, also when the handler runs again: it is the id of the first.
        """
        ...

    async def get_stat(self) -> StoreStats:
        """Where the tasks of all queues are."""
        ...
