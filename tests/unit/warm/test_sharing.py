"""Fair sharing: all is handed out that can be, and what is out becomes as even as can be."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from forebay.warm.sharing import share

flows = st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)), max_size=8)
counts = st.integers(0, 200)


def split(some: list[tuple[int, int]], count: int) -> tuple[list[int], list[int], list[int]]:
    out, ready = [o for o, _ in some], [r for _, r in some]
    return out, ready, share(out, ready, count)


@given(flows, counts)
def test_as_much_is_shared_as_there_is(some: list[tuple[int, int]], count: int) -> None:
    _, ready, shares = split(some, count)
    assert sum(shares) == min(count, sum(ready))


@given(flows, counts)
def test_nobody_gets_more_than_is_ready(some: list[tuple[int, int]], count: int) -> None:
    _, ready, shares = split(some, count)
    assert len(shares) == len(ready)
    assert all(0 <= given <= there for given, there in zip(shares, ready, strict=True))


@given(flows, counts)
def test_whoever_gets_something_is_not_ahead_of_whoever_could_have_more(
    some: list[tuple[int, int]], count: int
) -> None:
    out, ready, shares = split(some, count)
    after = [o + s for o, s in zip(out, shares, strict=True)]
    served = [after[i] for i in range(len(some)) if shares[i]]
    could = [after[i] for i in range(len(some)) if shares[i] < ready[i]]
    if served and could:
        assert max(served) <= min(could) + 1


@given(flows, counts, counts)
def test_two_shares_are_as_good_as_one(some: list[tuple[int, int]], first: int, second: int) -> None:
    out, ready, shares = split(some, first)
    again = share(
        [o + s for o, s in zip(out, shares, strict=True)],
        [r - s for r, s in zip(ready, shares, strict=True)],
        second,
    )
    once = share(out, ready, first + second)
    assert sorted(a + b + o for a, b, o in zip(shares, again, out, strict=True)) == sorted(
        a + o for a, o in zip(once, out, strict=True)
    )


def test_a_flow_alone_gets_everything() -> None:
    assert share([7], [100], 30) == [30]
    assert share([], [], 30) == []
    assert share([0, 0], [0, 5], 0) == [0, 0]
