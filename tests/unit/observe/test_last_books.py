"""Books as a snapshot has them say the same as those that were counted."""

import msgspec

from forebay.log.values import Group, GroupStats, Queue, QueueSettings, QueueStats, Stats
from forebay.observe.document import Document
from forebay.observe.last_books import last_books
from forebay.observe.queue_families import queue_families
from forebay.store.values import FlowStats

WORKERS = GroupStats(
    group=Group(1, 1, "workers", 1),
    accepted=39, ready=2, held=7, deferred=5, done=9, dead=3, purged=1, expired=4, corrupt=6, handed=4, due=2,
    delayed=2,
)  # fmt: skip
ORDERS = QueueStats(queue=Queue(1, "orders", QueueSettings(), 0), next=40, floor=1, groups=[WORKERS])
LOST = msgspec.structs.replace(
    ORDERS,
    queue=Queue(2, "lost", QueueSettings(), 0),
    groups=[msgspec.structs.replace(WORKERS, accepted=42)],
)


def known(*queues: QueueStats, series_max: int = 100) -> Document:
    """A snapshot of these queues."""
    families = queue_families(Stats(7, queues), FlowStats(7, [], [], None), series_max=series_max)
    return Document(taken_at=1.5, families=families)


def test_every_place_is_there_and_the_difference_stays() -> None:
    found = last_books(known(ORDERS, LOST))
    assert (found.at, found.is_last_known) == (1_500_000, True)
    lost, orders = found.queues
    assert [books.queue.name for books in found.queues] == ["lost", "orders"]
    (workers,) = orders.groups
    assert (workers.accepted, workers.ready, workers.held, workers.deferred) == (39, 7, 4, 5)
    assert (workers.done, workers.dead, workers.purged, workers.expired, workers.corrupt) == (9, 3, 1, 4, 6)
    assert (workers.difference, lost.groups[0].difference) == (0, 3)


def test_one_queue_and_none_that_was_folded() -> None:
    assert [books.queue.name for books in last_books(known(ORDERS, LOST), "lost").queues] == ["lost"]
    assert [books.queue.name for books in last_books(known(ORDERS, LOST, series_max=1)).queues] == []
