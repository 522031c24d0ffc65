"""From claims to parcels: what is handed out alike, what waits, what counts, what is given up."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.log.values import Claim, Deferral, QueueSettings
from forebay.model import Block, Flow, Message, bitmap
from forebay.store.unpacking import PARCEL_BYTES_MAX, Unpacked, defer, pick, unpack
from tests.unit.store.claims import FIRST, NOW, block_of, claim_of

SECOND = 1_000_000
PLAIN, ORDERED = QueueSettings(), QueueSettings(ordered=True)


def unpacked(claim: Claim, block: Block, settings: QueueSettings = PLAIN, most: int = 5_000) -> Unpacked:
    return unpack(claim, block, NOW, settings, most=most)


def test_a_plain_block_is_one_parcel() -> None:
    block = block_of(b"a", b"bc", b"d")
    (parcel,) = unpacked(claim_of(block), block).parcels
    assert (list(parcel.offsets), parcel.size, parcel.flow) == ([0, 1, 2], 4, Flow())
    assert (parcel.claim, parcel.first, parcel.count, parcel.start_time) == (7, FIRST, 3, NOW)
    assert parcel.block == block


def test_flows_are_parcels_of_their_own() -> None:
    f, g = {"flow": "f"}, {"flow": "g"}
    block = block_of(
        Message(b"0", headers=f), Message(b"1", headers=g), Message(b"2", headers=f), Message(b"3")
    )
    parcels = unpacked(claim_of(block), block).parcels
    assert {p.flow.name: list(p.offsets) for p in parcels} == {"f": [0, 2], "g": [1], "": [3]}
    assert [list(p.block.payloads) for p in parcels if p.block] == [[b"0", b"2"], [b"1"], [b"3"]]


def test_an_ordered_run_is_never_split_by_flow() -> None:
    block = block_of(Message(b"0", "p", headers={"flow": "f"}), Message(b"1", "p", headers={"flow": "g"}))
    (parcel,) = unpacked(claim_of(block), block, ORDERED).parcels
    assert (list(parcel.offsets), parcel.flow.name, parcel.partition) == ([0, 1], "f", "p")


def test_what_starts_later_is_deferred_and_what_began_says_when() -> None:
    times = [None, NOW + SECOND, NOW - 5, NOW + SECOND, NOW + 2 * SECOND]
    block = block_of(*[Message(b"%d" % i, start_time=at) for i, at in enumerate(times)])
    found = unpacked(claim_of(block, start_time=NOW - 9), block)
    assert {p.start_time: list(p.offsets) for p in found.parcels} == {NOW - 9: [0], NOW - 5: [2]}
    assert found.deferred == (
        Deferral(1, NOW + SECOND), Deferral(3, NOW + SECOND), Deferral(4, NOW + 2 * SECOND),
    )  # fmt: skip


def test_in_order_what_comes_after_a_later_start_waits_along() -> None:
    times = [None, NOW + 2 * SECOND, NOW + SECOND, None]
    block = block_of(*[Message(b"%d" % i, "p", start_time=at) for i, at in enumerate(times)])
    found = unpacked(claim_of(block), block, ORDERED)
    assert [list(p.offsets) for p in found.parcels] == [[0]]
    assert found.deferred == (Deferral(1, NOW + 2 * SECOND, count=3),)


def test_in_order_nothing_became_available_before_what_precedes_it() -> None:
    times = [NOW - 30, NOW - 10, NOW - 20, None]
    block = block_of(*[Message(b"%d" % i, "p", start_time=at) for i, at in enumerate(times)])
    parcels = unpacked(claim_of(block, start_time=NOW - 40), block, ORDERED).parcels
    assert [(p.start_time, list(p.offsets)) for p in parcels] == [(NOW - 30, [0]), (NOW - 10, [1, 2, 3])]


def test_a_retried_claim_keeps_its_own_start_time() -> None:
    block = block_of(Message(b"0", start_time=NOW + SECOND))
    found = unpacked(claim_of(block, attempts=1, start_time=NOW - 1, prev_start_time=NOW - 9), block)
    (parcel,) = found.parcels
    assert (parcel.attempts, parcel.start_time, parcel.prev_start_time) == (1, NOW - 1, NOW - 9)
    assert not found.deferred


def test_what_was_out_counts_an_attempt_and_the_rest_is_handed_out() -> None:
    block = block_of(*[b"%d" % i for i in range(6)])
    found = unpacked(claim_of(block, handed=[1, 2, 4], start_time=NOW - 5), block)
    assert found.deferred == (
        Deferral(1, NOW, 1, NOW - 5, 2, "no answer"), Deferral(4, NOW, 1, NOW - 5, 1, "no answer"),
    )  # fmt: skip
    (parcel,) = found.parcels
    assert list(parcel.offsets) == [0, 3, 5]


def test_in_order_all_goes_back_and_only_what_was_out_counts() -> None:
    block = block_of(*[Message(b"%d" % i, "p") for i in range(4)])
    found = unpacked(claim_of(block, done=[0], handed=[0, 1], start_time=NOW - 5), block, ORDERED)
    assert found.deferred == (
        Deferral(1, NOW, 1, NOW - 5, 1, "no answer"), Deferral(2, NOW, 0, None, 2),
    )  # fmt: skip
    assert not found.parcels


def test_what_was_out_for_the_last_time_is_given_up() -> None:
    block = block_of(Message(b"0", headers={"a": "b"}, start_time=NOW - 3), b"1")
    settings = QueueSettings(retries_max=0)
    found = unpacked(claim_of(block, handed=[0]), block, settings)
    (death,) = found.dead
    assert (death.offset, death.attempts) == (0, 1)
    assert death.reason == "failed once: no answer"
    assert death.message == Message(b"0", headers={"a": "b"})
    assert not found.deferred
    assert [list(p.offsets) for p in found.parcels] == [[1]]


def test_holes_are_left_out() -> None:
    block = block_of(*[b"%d" % i for i in range(8)])
    (parcel,) = unpacked(claim_of(block, begin=1, count=6, done=[1, 4]), block).parcels
    assert list(parcel.offsets) == [0, 2, 3, 5]
    assert parcel.block is not None
    assert parcel.block.payloads == [b"1", b"3", b"4", b"6"]
    assert parcel.size == 4


def test_nothing_left_is_nothing() -> None:
    block = block_of(b"0")
    assert unpacked(claim_of(block, done=[0]), block) == Unpacked([], (), ())


def test_parcels_are_cut_by_count() -> None:
    block = block_of(*[b"x"] * 600)
    assert [len(p) for p in unpacked(claim_of(block), block, most=250).parcels] == [250, 250, 100]
    assert {len(p) for p in unpacked(claim_of(block), block, most=7).parcels} == {7, 600 % 7}


def test_parcels_are_cut_by_bytes() -> None:
    block = block_of(*[bytes(400_000)] * 5)
    parcels = unpacked(claim_of(block), block).parcels
    assert [(list(p.offsets), p.size) for p in parcels] == [
        ([0, 1], 800_000), ([2, 3], 800_000), ([4], 400_000),
    ]  # fmt: skip
    assert all(p.size <= PARCEL_BYTES_MAX for p in parcels)


def test_runs_are_deferred_together() -> None:
    assert defer([0, 1, 4, 6, 7], NOW, 2, None) == (
        Deferral(0, NOW, 2, None, 2), Deferral(4, NOW, 2, None), Deferral(6, NOW, 2, None, 2),
    )  # fmt: skip


@pytest.mark.parametrize("offsets", [[0], [2], [0, 1, 2], [1, 3], [0, 1, 2, 3]])
def test_messages_are_picked_from_a_block(offsets: list[int]) -> None:
    block = block_of(b"-", b"0", b"1", b"2", b"3")
    assert pick(block, 1, offsets).payloads == [b"%d" % o for o in offsets]


messages = st.builds(
    Message,
    st.binary(max_size=3),
    st.just("p"),
    headers=st.sampled_from([None, {"flow": "f"}, {"flow": "g"}]),
    start_time=st.sampled_from([None, NOW - 7, NOW, NOW + 5, NOW + 9]),
)
bits = st.sets(st.integers(0, 11), max_size=6)


@given(
    some=st.lists(messages, min_size=1, max_size=12),
    done=bits,
    handed=bits,
    attempts=st.integers(0, 2),
    settings=st.builds(QueueSettings, ordered=st.booleans(), retries_max=st.sampled_from([None, 1])),
    most=st.integers(1, 5),
)
def test_every_unfinished_message_ends_in_one_place(
    *,
    some: list[Message],
    done: set[int],
    handed: set[int],
    attempts: int,
    settings: QueueSettings,
    most: int,
) -> None:
    block = block_of(*some)
    claim = claim_of(
        block,
        done=[o for o in done if o < len(some)],
        handed=[o for o in handed if o < len(some)],
        attempts=attempts,
    )
    found = unpacked(claim, block, settings, most)
    ready = [o for p in found.parcels for o in p.offsets]
    back = [o for d in found.deferred for o in range(d.offset, d.offset + d.count)]
    dead = [d.offset for d in found.dead]
    left = bitmap.indexes(bitmap.minus(bitmap.full(len(some)), claim.done))
    assert sorted(ready + back + dead) == left
    for p in found.parcels:
        assert p.block is not None
        assert p.block.payloads == [some[o].payload for o in p.offsets]
        assert p.size == sum(map(len, p.block.payloads))
        assert len(p) <= most
    if settings.ordered:
        assert ready == sorted(ready)
        assert not ready or not back or max(ready) < min(back)
        due = {o: d.due_at for d in found.deferred for o in range(d.offset, d.offset + d.count)}
        assert all(due[a] <= due[b] for a, b in pairwise(sorted(due)))
