"""The newest blocks of queues, without a gap and within bounds."""

from __future__ import annotations

from forebay.store.tail import MESSAGE_BYTES, Tail, Tails
from tests.unit.store.claims import block_of


def test_blocks_that_follow_each_other_are_kept() -> None:
    tail, one, two = Tail(1_000), block_of(b"a", b"b"), block_of(b"c")
    tail.add(5, one)
    tail.add(7, two)
    assert (tail.known, tail.get(5), tail.get(7), tail.get(6)) == (5, one, two, None)


def test_a_gap_forgets_what_was_before_it() -> None:
    tail = Tail(1_000)
    tail.add(5, block_of(b"a"))
    tail.add(9, block_of(b"b"))
    assert (tail.known, tail.get(5)) == (9, None)


def test_what_comes_late_is_left_out() -> None:
    tail = Tail(1_000)
    tail.add(9, block_of(b"b"))
    tail.add(5, block_of(b"a"))
    assert (tail.known, tail.get(5)) == (9, None)


def test_the_oldest_go_when_there_are_too_many_bytes() -> None:
    tail = Tail(2 * MESSAGE_BYTES + 10)
    for first in range(1, 6):
        tail.add(first, block_of(bytes(4)))
    assert (tail.known, tail.get(5) is not None) == (4, True)
    tail.add(6, block_of(bytes(MESSAGE_BYTES + 11)))
    assert tail.known is None
    tail.add(7, block_of(bytes(MESSAGE_BYTES + 10)))
    assert tail.known == 7


def test_messages_without_a_payload_are_bounded_too() -> None:
    tail = Tail(10 * MESSAGE_BYTES)
    for first in range(1, 100):
        tail.add(first, block_of(b""))
    assert (tail.known, tail.bytes) == (90, 10 * MESSAGE_BYTES)


def test_all_tails_together_stay_within_a_bound_and_the_longest_unused_goes_first() -> None:
    block = block_of(bytes(100 - MESSAGE_BYTES))
    tails = Tails(1_000, 300)
    one, two, three = map(tails.of, (1, 2, 3))
    tails.add(1, 1, block)
    tails.add(2, 1, block)
    tails.add(1, 2, block)
    tails.add(4, 1, block)  # nobody takes from it
    tails.add(3, 1, block)
    assert (one.bytes, two.bytes, three.bytes) == (200, 0, 100)
    tails.drop(1)
    assert tails.of(1).known is None
    tails.add(2, 2, block)
    tails.add(2, 3, block)
    assert (two.known, three.known) == (2, 1)
    tails.add(2, 4, block_of(bytes(400)))
    assert (two.bytes, three.bytes) == (0, 0)


def test_an_empty_tail_knows_nothing() -> None:
    tail = Tail(1_000)
    assert tail.known is None
    tail.add(1, block_of(b"a"))
    tail.clear()
    assert tail.get(1) is None


def test_a_tail_tells_how_far_it_goes_on_from_a_message() -> None:
    tail = Tail(1_000)
    assert tail.end_after(5) == 5
    tail.add(5, block_of(b"a", b"b"))
    tail.add(7, block_of(b"c"))
    assert [tail.end_after(first) for first in (4, 5, 7, 8)] == [4, 8, 8, 8]
