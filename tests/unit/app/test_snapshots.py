"""The snapshot of queues: what is counted page by page is what is counted at once."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from forebay.app import snapshots
from forebay.app.snapshots import count_queues
from forebay.log.memory import MemoryLog
from forebay.log.values import Stats
from forebay.model import ManualClock, Message
from forebay.observe.queue_families import queue_families
from forebay.store.store import LogStore


class CountingLog(MemoryLog):
    """Notes how many queues each reading of the books asked for."""

    limits: list[int | None]

    async def stats(
        self, *, numbers: Sequence[int] | None = None, after: int = 0, limit: int | None = None
    ) -> Stats:
        self.limits.append(limit)
        return await super().stats(numbers=numbers, after=after, limit=limit)


@pytest.mark.parametrize("queues", [0, 1, 2, 4, 5])
async def test_pages_make_the_same_document_and_each_is_read_once(
    queues: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshots, "_PAGE_QUEUES", 2)
    clock = ManualClock(1_800_000_000_000_000)
    log = CountingLog(clock=clock)
    log.limits = []
    async with LogStore(log, clock=clock) as store:
        for number in range(queues):
            await store.create_queue(f"queue-{number}")
            messages = [Message(b"x", headers={"flow": "daily"})] * number
            if messages:
                await store.put_task(f"queue-{number}", *messages)
        expected = queue_families(await store.ledger(), await store.flow_stats())
        log.limits.clear()
        assert (await count_queues(store)).families == expected
        assert log.limits == [2] * (queues // 2 + 1)
