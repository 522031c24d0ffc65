"""What acknowledgements commit, and what goes back with what comes back."""

from __future__ import annotations

from forebay.api.queen.commits import HELD_UP, AckItem, Found, gaps, hold_up, judge, rest
from forebay.api.queen.directory import Partition
from forebay.api.queen.hands import Hands, place_of
from forebay.log.values import Queue, QueueSettings
from forebay.store.values import Task
from forebay.warm.values import Lease

ORDERED = Queue(1, "q", QueueSettings(ordered=True), 0)
UNORDERED = Queue(1, "q", QueueSettings(), 0)


def task(id: int, partition: str = "p", attempts: int = 0) -> Task:
    lease = Lease(1, "epoch", 1, 1, id, 1, attempts, 0, None, partition)
    return Task(id, 1, b"", 0, 0, 0, None, lease, 100, partition, f"t{id}")


def said(one: Task, status: str, queue: Queue = ORDERED) -> Found:
    place = place_of(one, "g")
    return Found(AckItem(one.transaction_id, "id", status), Partition(1, one.partition), queue, place, one)


def out(*tasks: Task) -> Hands:
    hands = Hands()
    hands.give("lease", "g", tasks)
    return hands


def judged(*found: Found) -> list[Found]:
    judge(found, lambda _: 3)
    hold_up(found)
    return list(found)


def ids(found: list[Found]) -> list[int]:
    return [one.task.id for one in found if one.task is not None]


def test_an_ack_takes_along_what_is_before_it_in_its_partition_and_lease() -> None:
    hands = out(task(1), task(2, "other"), task(3), task(4), task(5))
    assert ids(gaps(hands, judged(said(task(4), "completed")))) == [1, 3]
    assert ids(gaps(hands, judged(said(task(1), "dlq"), said(task(4), "completed")))) == [3]
    assert gaps(hands, judged(said(task(4), "failed"))) == []
    assert gaps(hands, judged(said(task(4), "completed", UNORDERED))) == []


def test_nothing_is_committed_past_what_comes_back_and_the_rest_goes_back() -> None:
    hands = out(*(task(id) for id in range(1, 8)))
    found = judged(
        *(said(task(i), s) for i, s in [(6, "dlq"), (4, "completed"), (3, "failed"), (5, "retry")])
    )
    assert [one.error for one in found] == [HELD_UP, HELD_UP, None, None]
    assert gaps(hands, found) == []
    assert sorted(one.id for one in rest(hands, found).values()) == [4, 6, 7]


def test_an_ack_before_what_comes_back_is_committed_with_its_gap() -> None:
    hands = out(*(task(id) for id in range(1, 6)))
    found = judged(said(task(2), "completed"), said(task(4), "retry"))
    assert [one.error for one in found] == [None, None]
    assert ids(gaps(hands, found)) == [1]
    assert [one.id for one in rest(hands, found).values()] == [5]


def test_what_fails_for_the_last_time_holds_up_nothing() -> None:
    hands = out(task(1, attempts=3), task(2))
    found = judged(said(task(1, attempts=3), "failed"), said(task(2), "completed"))
    assert [(one.error, one.buried) for one in found] == [(None, True), (None, False)]
    assert rest(hands, found) == {}


def test_many_acks_in_order_look_at_few_messages() -> None:
    hands = out(*(task(id) for id in range(1, 10_001)))
    for id in range(1, 10_001):
        (one,) = judged(said(task(id), "completed"))
        assert gaps(hands, [one]) == []
        assert one.place is not None
        hands.settled([one.place])
    assert len(hands) == 0
