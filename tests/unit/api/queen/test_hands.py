"""What is out with Queen's clients, and what isn't any more."""

from __future__ import annotations

from collections.abc import Sequence

from forebay.api.queen.hands import Hands, place_of
from forebay.api.queen.lapsing import Lapsing
from forebay.model import SystemClock
from forebay.store.values import Task, Ticket
from forebay.warm.values import Lease


def task(id: int, queue: int = 1, partition: str = "p") -> Task:
    lease = Lease(1, "epoch", 1, 1, id, 1, 0, 0, None, partition)
    return Task(id, queue, b"", 0, 0, 0, None, lease, 100, partition, f"t{id}")


def test_what_is_out_of_a_group_is_forgotten_by_group_and_partition() -> None:
    hands = Hands()
    hands.give("l1", "g", [task(1), task(2, partition="other")])
    hands.give("l2", "h", [task(3)])
    hands.give("l3", "g", [task(4, queue=2)])
    hands.forget(1, "g", "p")
    assert not hands.is_out(place_of(task(1), "g"))
    assert hands.is_out(place_of(task(2, partition="other"), "g"))
    hands.forget(1, "g")
    assert hands.hand("l1") is None
    assert hands.is_out(place_of(task(3), "h"))
    assert hands.is_out(place_of(task(4, queue=2), "g"))


def test_leases_that_are_settled_leave_nothing_behind() -> None:
    hands = Hands()
    for id in range(20_000):
        hands.give(f"l{id}", "g", [task(id + 1)])
        hands.extended(f"l{id}", 1_000)
        hands.settled([place_of(task(id + 1), "g")])
    assert len(hands) == len(hands.leases) == 0
    assert len(hands._deadlines) < 2_000


def test_a_lease_that_is_kept_is_found_in_time_among_many_that_are_settled() -> None:
    hands = Hands()
    hands.give("kept", "g", [task(1)])
    for id in range(5_000):
        hands.give(f"l{id}", "g", [task(id + 2)])
        hands.settled([place_of(task(id + 2), "g")])
    hands.prune(100)
    assert hands.hand("kept") is not None
    hands.prune(60_000_102)
    assert hands.hand("kept") is None


async def test_streams_that_settle_in_time_leave_nothing_behind() -> None:
    async def release(_: Sequence[Task | Ticket]) -> None:
        """Nothing comes back."""

    hands = Hands()
    lapsing = Lapsing(hands, release, SystemClock())
    for id in range(5_000):
        hands.give(f"l{id}", "streams.s", [task(id + 1)])
        lapsing.given(f"l{id}", "streams.s")
        hands.settled([place_of(task(id + 1), "streams.s")])
    assert len(lapsing._leases) < 2_000
