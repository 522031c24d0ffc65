"""What fits in a room, and what a settlement may say."""

import pytest

from forebay.log.claiming import (
    Space,
    check_mark,
    check_settlement,
    check_stage_name,
    decode_outcome,
    encode_outcome,
)
from forebay.log.values import Death, Deferral, Mark, Room, Settlement
from forebay.model import Message, Rejected, bitmap


def test_the_first_run_is_cut_to_the_messages_that_fit() -> None:
    space = Space(Room(3, 10))
    assert space.take(5, 999) == 3
    assert space.take(1, 1) == 0


def test_later_runs_come_whole_or_not_at_all() -> None:
    space = Space(Room(10, 100))
    assert space.take(4, 40) == 4
    assert space.take(7, 1) == 0
    assert space.take(6, 61) == 0
    assert space.take(6, 60) == 6
    assert space.take(1, 0) == 0


def test_a_run_that_cannot_be_cut_fits_when_it_is_the_first() -> None:
    space = Space(Room(3, 10))
    assert space.fits(5, 999)
    assert not space.fits(1, 0)


def test_runs_that_cannot_be_cut_fill_the_room() -> None:
    space = Space(Room(5, 10))
    assert space.fits(2, 4)
    assert not space.fits(4, 1)
    assert not space.fits(1, 7)
    assert space.fits(3, 6)
    assert not space.fits(1, 0)


@pytest.mark.parametrize("room", [Room(0, 5), Room(5, 0), Room(-1, -1)])
def test_no_room_is_rejected(room: Room) -> None:
    with pytest.raises(Rejected):
        Space(room)


MESSAGE = Message(b"m")


@pytest.mark.parametrize(
    "said",
    [
        {"done": bitmap.full(9)},
        {"done": bitmap.of([0, 8], 9), "expired": bitmap.of([1], 9)},
        {"deferred": (Deferral(0, 5, count=4), Deferral(4, 5, count=5))},
        {"dead": (Death(8, "r", 1, MESSAGE), Death(0, "r", 1, MESSAGE))},
        {"done": bitmap.empty(9), "expired": bitmap.of([8], 9)},
    ],
)
def test_a_settlement_may_say_this(said: dict[str, object]) -> None:
    check_settlement(Settlement(group=1, token=1, first=1, count=9, **said))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "said",
    [
        {"count": 0},
        {"done": bitmap.full(8)},
        {"done": bitmap.full(17)},
        {},
        {"done": bitmap.empty(9), "expired": bitmap.empty(9)},
        {"done": b"\x00\x02"},
        {"expired": b"\x00\x80"},
        {"deferred": (Deferral(5, 5, count=5),)},
        {"deferred": (Deferral(-1, 5),)},
        {"deferred": (Deferral(1, 5, count=0),)},
        {"dead": (Death(9, "r", 1, MESSAGE),)},
        {"done": bitmap.of([3], 9), "expired": bitmap.of([3], 9)},
        {"done": bitmap.of([3], 9), "deferred": (Deferral(2, 5, count=2),)},
        {"deferred": (Deferral(2, 5, count=2), Deferral(3, 5))},
        {"dead": (Death(2, "r", 1, MESSAGE), Death(2, "r", 1, MESSAGE))},
    ],
)
def test_a_settlement_may_not_say_this(said: dict[str, object]) -> None:
    whole = {"group": 1, "token": 1, "first": 1, "count": 9} | said
    with pytest.raises(Rejected):
        check_settlement(Settlement(**whole))  # type: ignore[arg-type]


def test_a_settlement_that_finishes_nothing_is_told_what_to_do() -> None:
    with pytest.raises(Rejected, match="finishes nothing") as caught:
        check_settlement(Settlement(group=1, token=1, first=1, count=9))
    assert "marked" in (caught.value.hint or "")


@pytest.mark.parametrize(
    "said",
    [{}, {"handed": bitmap.full(9)}, {"handed": bitmap.full(9), "returned": bitmap.of([8], 9)}],
)
def test_a_mark_may_say_this(said: dict[str, bytes]) -> None:
    check_mark(Mark(1, 1, 9, **said))


@pytest.mark.parametrize(
    "said", [{"handed": bitmap.full(8)}, {"handed": b"\x00\x02"}, {"returned": b"\x00\x80"}]
)
def test_a_mark_may_not_say_this(said: dict[str, bytes]) -> None:
    with pytest.raises(Rejected):
        check_mark(Mark(1, 1, 9, **said))


def test_a_mark_of_no_messages_is_rejected() -> None:
    with pytest.raises(Rejected):
        check_mark(Mark(1, 1, 0))


def test_an_outcome_comes_back_as_it_was_written() -> None:
    settlement = Settlement(
        group=1,
        token=2,
        first=1,
        count=9,
        done=bitmap.of([0], 9),
        expired=bitmap.of([1], 9),
        deferred=(Deferral(2, 7, 1, None, 3),),
        dead=(Death(5, "réason", 4, MESSAGE),),
        worker="w",
    )
    outcome = decode_outcome(100, 50, 9, encode_outcome(settlement))
    assert (outcome.first, outcome.at, outcome.count, outcome.worker) == (100, 50, 9, "w")
    assert (outcome.done, outcome.expired) == (settlement.done, settlement.expired)
    assert outcome.deferred == settlement.deferred
    assert outcome.dead == ((5, "réason", 4),)


@pytest.mark.parametrize("name", ["", "s" * 256])
def test_a_stage_name_has_some_length(name: str) -> None:
    with pytest.raises(Rejected):
        check_stage_name(name)
    assert check_stage_name("s") == "s"
