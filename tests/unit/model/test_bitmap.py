"""Bitmaps agree with sets."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.model import bitmap

sizes = st.integers(0, 300)


@st.composite
def pairs(draw: st.DrawFn) -> tuple[int, set[int], set[int]]:
    n = draw(st.integers(1, 300))
    members = st.sets(st.integers(0, n - 1))
    return n, draw(members), draw(members)


@given(pairs())
def test_operations_agree_with_those_of_sets(pair: tuple[int, set[int], set[int]]) -> None:
    n, left, right = pair
    one, other = bitmap.of(left, n), bitmap.of(right, n)
    assert len(one) == (n + 7) // 8
    assert bitmap.indexes(one) == sorted(left)
    assert bitmap.count(one) == len(left)
    assert bitmap.is_full(one, n) == (len(left) == n)
    assert bitmap.union(one, other) == bitmap.of(left | right, n)
    assert bitmap.minus(one, other) == bitmap.of(left - right, n)
    assert bitmap.overlap(one, other) == bitmap.of(left & right, n)
    assert bitmap.minus(bitmap.full(n), one) == bitmap.of(set(range(n)) - left, n)


@given(sizes)
def test_empty_and_full(n: int) -> None:
    assert bitmap.empty(n) == bitmap.of([], n)
    assert bitmap.full(n) == bitmap.of(range(n), n)
    assert bitmap.is_full(bitmap.full(n), n)
    assert bitmap.indexes(bitmap.full(n)) == list(range(n))


def test_bit_0_is_the_lowest_of_the_first_byte() -> None:
    assert bitmap.of([0, 9], 10) == b"\x01\x02"


def test_no_bytes_are_no_messages_of_any_block() -> None:
    some = bitmap.of([3], 20)
    assert bitmap.union(some, b"") == bitmap.union(b"", some) == bitmap.minus(some, b"") == some
    assert bitmap.overlap(some, b"") == bitmap.minus(b"", some) == bitmap.empty(20)


@pytest.mark.parametrize("index", [-1, 10])
def test_an_index_outside_is_a_mistake(index: int) -> None:
    with pytest.raises(IndexError):
        bitmap.of([index], 10)


def test_bitmaps_over_other_blocks_do_not_mix() -> None:
    with pytest.raises(AssertionError, match="same messages"):
        bitmap.union(bitmap.empty(8), bitmap.empty(9))
