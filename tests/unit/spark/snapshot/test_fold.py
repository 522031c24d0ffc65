"""The fold: whatever happened, and in whatever steps it was seen, it says what the log says."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

from forebay.log.memory import MemoryLog
from forebay.log.values import Append, Queue, StoredBlock
from forebay.model import ManualClock
from forebay.observe.labels import LabelSettings
from forebay.spark.snapshot import image, recompute, slice_fold, survey
from forebay.spark.snapshot.counts import Counts
from tests.rich_history import SECOND, History, asked

LABELS = LabelSettings(project_name="queue")


def _by_group(counts: Counts) -> Counter[tuple[str, str, str]]:
    found: Counter[tuple[str, str, str]] = Counter()
    for (_, queue, group, status, *_), number in counts.deliveries.items():
        if number and not status.startswith("passed"):
            found[queue, group, status] += number
    return found


@pytest.mark.parametrize("drawn", range(40))
async def test_a_fold_in_steps_is_the_same_as_one_from_nothing(
    seed: int, drawn: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (image, survey, slice_fold):
        monkeypatch.setattr(module, "SLICE", 16)
    for module in (survey,):
        monkeypatch.setattr(module, "BLOCK_MESSAGES_CEILING", 8)
    rng = random.Random(seed * 1_000 + drawn)
    clock = ManualClock(1_000_000 * SECOND)
    async with MemoryLog(clock=clock) as log:
        history = History(log, rng, clock.now)
        await history.begin()
        known = None
        for _ in range(25):
            await history.steps(rng.choice((1, 3, 10)))
            clock.advance(seconds=rng.choice((0, 0, 1, 20)))
            known = await recompute.recompute(log, LABELS, before=known)
            whole = await recompute.recompute(log, LABELS)
            assert known.counts == whole.counts
            asked_for = await asked(log)
            assert {k: n for k, n in _by_group(whole.counts).items() if k in asked_for} == asked_for
            await _check_books(log, whole.counts)


async def _check_books(log: MemoryLog, counts: Counts) -> None:
    for queue in (await log.stats()).queues:
        for group in queue.groups:
            mine = {
                status: counts.books.get((str(group.group.number), status), 0)
                for status in ("ready", "leased", "delayed", "dead")
            }
            theirs = {
                "ready": group.ready + group.held - group.handed + group.due,
                "leased": group.handed,
                "delayed": group.delayed + group.deferred - group.due,
                "dead": group.dead,
            }
            assert mine == theirs, f"{queue.queue.name} {group.group.name}"


class Meanwhile:
    """A log to which somebody pushes whenever blocks are read."""

    def __init__(self, log: MemoryLog, queue: Queue) -> None:
        self._log = log
        self._queue = queue

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)

    async def read(self, *arguments: Any, **options: Any) -> list[StoredBlock]:
        """Push, then read."""
        await self._log.commit([Append.of(self._queue, [b"meanwhile"])])
        return await self._log.read(*arguments, **options)


async def test_what_is_pushed_while_a_slice_is_folded_is_found_by_the_next_fold() -> None:
    async with MemoryLog() as log:
        queue = await log.create_queue("q")
        await log.create_group(queue, "g")
        await log.commit([Append.of(queue, [b"a", b"b"])])
        known = await recompute.recompute(Meanwhile(log, queue), LABELS)
        assert known.counts.events == {("q", "", "ready"): 2}
        known = await recompute.recompute(log, LABELS, before=known)
        assert known.counts == (await recompute.recompute(log, LABELS)).counts
        assert known.counts.events == {("q", "", "ready"): 3}
