"""What became of tasks whose settlement may have been written although its answer was lost."""

from forebay.client.doubting import Ending, endings_of, has_ended
from forebay.store.values import Attempt, GroupPlace, Ticket, Whereabouts
from forebay.warm.values import Lease


def where(*history: tuple[str, int], group: str = "workers") -> Whereabouts:
    told = [Attempt(at=i, outcome=outcome, worker="", attempts=n) for i, (outcome, n) in enumerate(history)]
    places = [GroupPlace(group="other", state="done"), GroupPlace(group=group, state="?", history=told)]
    return Whereabouts(id=1, queue="orders", sequence=1, block=None, message=None, groups=places)


def test_an_end_under_the_same_lease_is_ours() -> None:
    assert has_ended(where(("done", 0)), "workers", Ending("done", 1, 0))
    assert has_ended(where(("retried", 1), ("dead", 1)), "workers", Ending("dead", 1, 1))


def test_an_end_under_a_later_lease_is_not_ours() -> None:
    assert not has_ended(where(("retried", 1), ("done", 1)), "workers", Ending("done", 1, 0))


def test_another_end_is_not_ours() -> None:
    assert not has_ended(where(("dead", 0)), "workers", Ending("done", 1, 0))
    assert not has_ended(where(), "workers", Ending("done", 1, 0))


def test_what_another_group_says_does_not_count() -> None:
    assert not has_ended(where(("done", 0), group="audit"), "workers", Ending("done", 1, 0))


def test_endings_are_those_that_the_leases_say() -> None:
    done, dead = (Ticket(i, Lease(7, "e", 1, 1, 1, 2, attempts, 0)) for i, attempts in ((1, 0), (2, 3)))
    assert endings_of([done], [dead]) == {1: Ending("done", 7, 0), 2: Ending("dead", 7, 3)}
