"""Rings of messages in memory: groups, leases, bounds, and ids that are used once."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.api.queen.rings import IDLE_US, Handed, Ring, RingFull, RingOptions
from forebay.model import Rejected

_SECOND = 1_000_000


def _ring(**options: object) -> Ring:
    return Ring("life", RingOptions(**options), 0)  # type: ignore[arg-type]


def _data(handed: list[Handed]) -> list[bytes]:
    return [one.payload for one in handed]


def test_messages_come_in_order_once_for_each_group() -> None:
    ring = _ring()
    ring.push("p", [b"1", b"2", b"3"], 1)
    assert _data(ring.take("a", None, 2, 2)) == [b"1", b"2"]
    assert _data(ring.take("a", None, 2, 2)) == [b"3"]
    assert _data(ring.take("a", None, 2, 2)) == []
    assert _data(ring.take("b", None, 9, 2)) == [b"1", b"2", b"3"]


def test_what_every_group_is_done_with_is_gone() -> None:
    ring = _ring()
    ring.push("p", [b"1", b"2"], 1)
    first, second = ring.take("a", None, 2, 2), ring.take("b", None, 2, 2)
    assert [ring.settle("a", one.id, 3, done=True) for one in first] == ["acked", "acked"]
    assert ring.length == 2
    assert [ring.settle("b", one.id, 3, done=True) for one in second] == ["acked", "acked"]
    assert (ring.length, ring.bytes, ring.dropped) == (0, 0, 0)


def test_a_lease_that_is_over_brings_the_message_back_until_it_is_dropped() -> None:
    ring = _ring(lease_seconds=1, retry_limit=2)
    ring.push("p", [b"1", b"2"], 0)
    for attempts in range(3):
        now = attempts * _SECOND
        assert [(one.payload, one.attempts) for one in ring.take("g", None, 9, now)] == [
            (b"1", attempts),
            (b"2", attempts),
        ]
        assert ring.next_deadline() == now + _SECOND
    assert ring.take("g", None, 9, 3 * _SECOND) == []
    assert (ring.length, ring.dropped) == (0, 2)


def test_who_comes_too_late_changes_nothing() -> None:
    ring = _ring(lease_seconds=1)
    ring.push("p", [b"1"], 0)
    (late,) = ring.take("g", None, 1, 0)
    assert ring.settle("g", late.id, 2 * _SECOND, done=True) == "stale"
    (again,) = ring.take("g", None, 1, 2 * _SECOND)
    assert ring.settle("g", late.id, 2 * _SECOND, done=True) == "stale"
    assert ring.settle("other", again.id, 2 * _SECOND, done=True) == "unknown"
    assert ring.settle("g", again.id, 2 * _SECOND, done=False) == "redelivered"
    (third,) = ring.take("g", None, 1, 2 * _SECOND)
    assert ring.settle("g", third.id, 2 * _SECOND, done=True) == "acked"
    assert ring.settle("g", third.id, 2 * _SECOND, done=True) == "unknown"
    assert Ring("next", RingOptions(), 0).settle("g", third.id, 0, done=True) == "stale"
    for nonsense in ("", "life", "life.x.0.p", "life.1.x.p"):
        assert ring.settle("g", nonsense, 0, done=True) == "unknown"


def test_a_full_ring_refuses_or_drops_the_oldest() -> None:
    ring = _ring(max_length=3)
    ring.push("p", [b"1", b"2"], 1)
    with pytest.raises(RingFull):
        ring.push("p", [b"3", b"4"], 2)
    assert ring.length == 2
    with pytest.raises(Rejected):
        ring.push("p", [b"x"] * 4, 2)
    feed = _ring(max_length=3, policy="drop_oldest")
    for number in range(9):
        feed.push(f"p{number % 2}", [b"%d" % number], number)
    assert sorted(_data(feed.take("g", None, 9, 9))) == [b"6", b"7", b"8"]
    assert feed.dropped == 6


def test_messages_that_are_too_old_are_dropped_also_those_that_are_out() -> None:
    ring = _ring(ttl_seconds=1)
    ring.push("p", [b"1"], 0)
    (out,) = ring.take("g", None, 1, 0)
    ring.push("p", [b"2"], 2 * _SECOND)
    assert ring.settle("g", out.id, 2 * _SECOND, done=True) == "unknown"
    assert _data(ring.take("g", None, 9, 2 * _SECOND)) == [b"2"]


def test_a_partition_that_was_empty_begins_anew_and_old_ids_are_not_its() -> None:
    ring = _ring()
    ring.push("p", [b"1"], 0)
    (old,) = ring.take("g", None, 1, 0)
    assert ring.settle("g", old.id, 0, done=True) == "acked"
    ring.push("p", [b"2"], 0)
    (new,) = ring.take("g", None, 1, 0)
    assert new.payload == b"2"
    assert ring.settle("g", old.id, 0, done=True) == "unknown"
    assert ring.settle("g", new.id, 0, done=True) == "acked"


def test_one_partition_is_taken_alone_and_all_have_their_turn() -> None:
    ring = _ring()
    for name in ("a", "b", "c"):
        ring.push(name, [name.encode()] * 10, 0)
    assert {one.partition for one in ring.take("g", "b", 5, 0)} == {"b"}
    assert {one.partition for _ in range(3) for one in ring.take("g", None, 1, 0)} == {"a", "b", "c"}
    assert ring.take("g", "nothing", 1, 0) == []


def test_taking_without_a_lease_is_being_done() -> None:
    ring = _ring()
    ring.push("p", [b"1", b"2"], 0)
    assert _data(ring.take("g", None, 1, 0, leased=False)) == [b"1"]
    assert ring.length == 1
    assert ring.next_deadline() is None


def test_a_group_that_nobody_uses_holds_up_nothing() -> None:
    ring = _ring()
    ring.push("p", [b"1"], 0)
    ring.take("gone", None, 1, 0, leased=False)
    ring.push("p", [b"2"], 1)
    (one,) = ring.take("here", None, 1, IDLE_US + 2)
    assert ring.settle("here", one.id, IDLE_US + 2, done=True) == "acked"
    assert ring.length == 0


def test_leases_of_what_is_settled_are_not_remembered_for_long() -> None:
    ring = _ring(lease_seconds=86_400)
    for number in range(30_000):
        ring.push("p", [b"x"], number)
        (one,) = ring.take("g", None, 1, number)
        assert ring.settle("g", one.id, number, done=True) == "acked"
    assert len(ring._deadlines) <= 10_000


@given(
    st.lists(
        st.tuples(st.sampled_from(["push", "take", "ack", "fail", "wait"]), st.integers(0, 2)), max_size=120
    )
)
def test_nothing_is_lost_and_nothing_is_out_twice(steps: list[tuple[str, int]]) -> None:
    ring, now, pushed = _ring(lease_seconds=5, retry_limit=1_000), 0, 0
    out: dict[str, Handed] = {}
    done = Counter[bytes]()
    for step, which in steps:
        now += _SECOND
        if step == "push":
            ring.push(f"p{which}", [b"%d" % pushed], now)
            pushed += 1
        elif step == "take":
            out.update({one.id: one for one in ring.take("g", None, which + 1, now)})
        elif step == "wait":
            now += 10 * _SECOND
        elif out:
            one = out.pop(next(iter(out)))
            if ring.settle("g", one.id, now, done=step == "ack") == "acked":
                done[one.payload] += 1
    now += 10 * _SECOND
    rest = ring.take("g", None, 1_000, now)
    assert len({one.payload for one in rest}) == len(rest)
    assert done + Counter(_data(rest)) == Counter(b"%d" % number for number in range(pushed))
    assert ring.length >= len(rest)
