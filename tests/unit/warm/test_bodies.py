"""Bodies that are kept for the next part of their parcel."""

from forebay.model import NO_FLOW, Block, Message
from forebay.warm.valkey.bodies import Bodies
from forebay.warm.values import Lease, Leased, Parcel, Shelf

SHELF = Shelf(1, 2, "q/g")


def leased(claim: int, *places: int, size: int = 10, epoch: str = "e") -> Leased:
    """Some of the three messages of a parcel."""
    block = Block.of([Message(b"x")] * 3)
    parcel = Parcel(claim, claim * 100, 3, range(3), size, NO_FLOW, None, 0, 1, 1, None, block)
    return Leased(Lease(2, epoch, claim, claim, claim * 100, 3, 0, 1), parcel, places, "worker", 1, 2)


def test_a_body_is_kept_until_the_last_of_its_parcel_goes_out() -> None:
    bodies = Bodies()
    first = leased(1, 0)
    bodies.keep(first)
    assert bodies.known(SHELF, "e") == {"1.0": first.parcel.block}
    assert bodies.known(SHELF, "another") == bodies.known(Shelf(1, 3, "q/h"), "e") == {}
    bodies.keep(leased(1, 1, 2))
    assert bodies.known(SHELF, "e") == {}


def test_what_goes_out_whole_is_not_kept() -> None:
    bodies = Bodies()
    bodies.keep(leased(1, 0, 1, 2))
    assert bodies.known(SHELF, "e") == {}


def test_no_more_than_so_many_parcels_are_kept() -> None:
    bodies = Bodies(parcels_max=2)
    for claim in (1, 2, 1, 3):
        bodies.keep(leased(claim, 0))
    assert list(bodies.known(SHELF, "e")) == ["1.0", "3.0"]


def test_no_more_than_so_many_bytes_are_kept() -> None:
    bodies = Bodies(bytes_max=100)
    for claim, size in ((1, 60), (2, 40), (3, 1), (4, 101)):
        bodies.keep(leased(claim, 0, size=size))
    assert list(bodies.known(SHELF, "e")) == ["2.0", "3.0"]
