"""Where a group may go, and the sums of a seek."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.log.seeking import Reckoning, kept_position, unfinished_from
from forebay.log.values import Group, Position
from forebay.model import Rejected, bitmap


def test_a_position_is_kept_within_what_there_is() -> None:
    assert [kept_position(Position(n), 4, 9) for n in (1, 4, 7, 9)] == [4, 4, 7, 9]
    with pytest.raises(Rejected, match="position 10 is past the end: the next message will be 9"):
        kept_position(Position(10), 4, 9)


@given(st.sets(st.integers(0, 19)), st.integers(-5, 25))
def test_what_is_left_of_a_claim_from_an_offset_on(done: set[int], offset: int) -> None:
    expected = sum(i >= offset for i in range(20) if i not in done)
    assert unfinished_from(bitmap.of(done, 20), 20, offset) == expected


@given(st.data(), st.integers(1, 5), st.integers(1, 15))
def test_everything_is_counted_once(data: st.DataObject, start: int, place: int) -> None:
    """Messages 1 to 12, each ready, in a claim or done for a group that began at `start`."""
    upcoming = 13
    place = min(place, upcoming)
    states = {m: data.draw(st.sampled_from(["ready", "open", "done"])) for m in range(start, upcoming)}

    def count(state: str, low: int, high: int) -> int:
        return sum(states.get(m) == state for m in range(low, high))

    found = Reckoning(
        start=start,
        place=place,
        upcoming=upcoming,
        ready=count("ready", 1, upcoming),
        claimed=count("open", place, upcoming) + count("done", place, upcoming),
        returned=count("open", place, upcoming),
        dropped=count("open", 1, place),
    )

    assert found.skipped == count("ready", 1, place) + count("open", 1, place)
    assert found.again == sum(states.get(m, "new") in {"done", "new"} for m in range(place, upcoming))
    accepted = found.earlier_change + upcoming - place
    claimed = count("open", 1, upcoming) + count("done", 1, upcoming) + found.claimed_change
    assert accepted == upcoming - start + found.again
    assert accepted - claimed == upcoming - place
    assert accepted == upcoming - place + found.skipped + count("done", 1, upcoming)


def test_a_dry_run_leaves_the_group_as_it_is() -> None:
    group = Group(1, 1, "g", 2, 5)
    sums = Reckoning(start=2, place=4, upcoming=9, ready=7, claimed=0, returned=0, dropped=0)
    assert sums.sought(group, dry_run=True).group is group
    assert sums.sought(group, dry_run=False).group == Group(1, 1, "g", 4, 6)
