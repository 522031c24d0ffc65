"""Queen's numbers of queues: the snapshot says what the books of the log say."""

from __future__ import annotations

import msgspec
import pytest

from forebay.api.queen.census import counts_of
from forebay.api.queen.queen_metrics import depths
from forebay.log.values import QueueStats, Stats
from forebay.observe.document import Document
from forebay.observe.queue_families import queue_families
from forebay.store.values import FlowStats
from tests.unit.api.queen.test_census import group, queue

IDLE = group(ready=10)


@pytest.mark.parametrize(
    "found",
    [
        queue(group(ready=3, held=4, handed=2, deferred=1, done=1, dead=1)),
        queue(IDLE, group("a", done=10)),
        queue(IDLE),
        queue(
            group("a", ready=2, held=3, handed=3, done=4, dead=1),
            group("b", ready=7, held=1, handed=1, done=2),
            group(ready=1, done=8, dead=1),
        ),
    ],
    ids=["one", "unused", "idle", "several"],
)
def test_the_snapshot_has_the_counts_of_the_books(found: QueueStats) -> None:
    families = queue_families(Stats(0, [found]), FlowStats(0, [], []))
    expected = msgspec.structs.replace(counts_of(found), completed=0)
    assert depths(Document(taken_at=0, families=families)) == {"q": expected}


def test_without_queues_there_are_no_depths() -> None:
    assert depths(Document(taken_at=0, families=[])) == {}
