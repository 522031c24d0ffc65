"""What is on the shelf of a partition waits for what went back of it, also while nobody refuses it."""

import pytest

from forebay.log.seam import Unchecked
from forebay.model import NO_FLOW
from forebay.store import returned as module
from forebay.store.returned import Returned
from forebay.warm.values import Lease, Leased, Parcel


def leased(partition: str, first: int = 1) -> Leased:
    lease = Lease(1, "epoch", 1, 1, first, 2, 0, 0, None, partition)
    parcel = Parcel(1, first, 2, [0], 10, NO_FLOW, partition, 0, 0, 0, None, None)
    return Leased(lease, parcel, [0], "worker", 0, 0)


BOTH = [leased("a"), leased("b")]
LATER = [leased("a", 3), leased("b", 3)]


def test_while_the_log_is_away_a_partition_waits_for_what_went_back() -> None:
    returned = Returned()
    assert list(returned.check(BOTH, Unchecked())) == []
    returned.add([BOTH[1].lease])
    assert list(returned.check(LATER, Unchecked())) == [1]
    assert list(returned.check(LATER, Unchecked())) == [1]


def test_what_the_log_lets_out_may_go_out() -> None:
    returned = Returned()
    returned.add(piece.lease for piece in BOTH)
    assert list(returned.check(LATER, [1])) == [1]
    assert list(returned.check(LATER, Unchecked())) == [1], "the log let a out, and refused b"


def test_letting_out_what_went_back_says_nothing_of_what_comes_after_it() -> None:
    returned = Returned()
    returned.add(piece.lease for piece in LATER)
    assert list(returned.check(BOTH, [])) == []
    assert list(returned.check([leased("a", 5)], Unchecked())) == [0], "what is at 3 may still be to come"


def test_what_the_log_refuses_waits_also_when_it_is_away() -> None:
    returned = Returned()
    assert list(returned.check(BOTH, [0])) == [0]
    assert list(returned.check(BOTH, Unchecked())) == [0]
    returned.clear()
    assert list(returned.check(BOTH, Unchecked())) == []


def test_of_very_many_partitions_all_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PARTITIONS_MAX", 2)
    returned = Returned()
    returned.add(leased(partition).lease for partition in ("x", "y", "z"))
    returned.add([leased("never kept").lease])
    assert list(returned.check(BOTH, Unchecked())) == [0, 1]
