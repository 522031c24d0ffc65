"""What is spooled counts as accepted, and the books go on to balance."""

import msgspec

from forebay.failover.books import with_answered, with_spooled
from forebay.log.values import Group, GroupStats, Queue, QueueSettings, QueueStats, Stats

WORKERS = GroupStats(
    group=Group(1, 1, "workers", 1),
    accepted=9, ready=2, held=1, deferred=1, done=3, dead=2, purged=0, expired=0, corrupt=0, handed=0, due=0,
)  # fmt: skip
AUDIT = msgspec.structs.replace(WORKERS, group=Group(2, 1, "audit", 1), ready=3, dead=1)
ORDERS = QueueStats(queue=Queue(1, "orders", QueueSettings(), 0), next=10, floor=1, groups=[WORKERS, AUDIT])
STATS = Stats(7, [ORDERS])


def test_every_group_will_see_what_is_spooled() -> None:
    (books,) = with_spooled(STATS, {"orders": 5}).queues
    assert (books.spooled, books.next) == (5, 10)
    for group in books.groups:
        assert (group.accepted, group.spooled, group.difference) == (14, 5, 0)


def test_a_queue_that_is_only_in_the_spool_has_books_too() -> None:
    first, later, last = with_spooled(STATS, {"b": 2, "a": 1}).queues
    assert first == ORDERS
    assert [(books.queue.name, books.queue.number, books.spooled) for books in (later, last)] == [
        ("a", 0, 1),
        ("b", 0, 2),
    ]
    (group,) = last.groups
    assert (group.group.name, group.accepted, group.spooled, group.difference) == ("workers", 2, 2, 0)


def test_what_is_missing_stays_missing() -> None:
    lost = msgspec.structs.replace(WORKERS, accepted=10)
    stats = Stats(7, [msgspec.structs.replace(ORDERS, groups=[lost])])
    (books,) = with_spooled(stats, {"orders": 5}).queues
    assert books.groups[0].difference == 1


def test_without_anything_in_the_spool_the_books_are_the_log_s() -> None:
    assert with_spooled(STATS, {}) == with_spooled(STATS, {"orders": 0, "gone": 0}) == STATS


def test_what_was_answered_moves_from_what_the_log_counts_as_held() -> None:
    (books,) = with_answered(STATS, {("orders", "workers"): 1, ("other", "workers"): 3}).queues
    workers, audit = books.groups
    assert (workers.answered, workers.held, workers.ready, workers.difference) == (1, 0, 2, 0)
    assert audit == AUDIT


def test_books_of_before_it_was_taken_count_what_was_answered_as_ready() -> None:
    (books,) = with_answered(STATS, {("orders", "workers"): 100}).queues
    (workers, _) = books.groups
    assert (workers.answered, workers.held, workers.ready, workers.deferred) == (4, 0, 0, 0)
    assert workers.difference == 0
