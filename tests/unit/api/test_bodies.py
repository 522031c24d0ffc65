"""Bodies: unpacked in parts that fit in memory, and never more than the limit; the budget is given back."""

import gzip
from collections.abc import Callable

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from forebay.api.bodies import FRAME_BYTES_LEAST, FRAMES_FREE, Budget, Unpacker
from forebay.model import Rejected, TooLarge, Unavailable

PACKERS: dict[str, Callable[[bytes], bytes]] = {"gzip": gzip.compress, "zstd": zstandard.compress}


def unpacked(encoding: str, pieces: list[bytes], bytes_max: int = 1 << 30) -> bytes:
    unpacker = Unpacker(encoding, bytes_max)
    out = b"".join(part for piece in pieces for part in unpacker.feed(piece))
    unpacker.finish()
    return out


@given(
    st.sampled_from(sorted(PACKERS)),
    st.lists(st.binary(max_size=2_000), min_size=1, max_size=4),
    st.integers(1, 500),
)
def test_parts_that_were_packed_one_by_one_are_one_body(encoding: str, parts: list[bytes], step: int) -> None:
    packed = b"".join(PACKERS[encoding](part) for part in parts)
    pieces = [packed[at : at + step] for at in range(0, len(packed), step)]
    assert unpacked(encoding, pieces) == b"".join(parts)


@given(st.sampled_from(sorted(PACKERS)), st.binary(min_size=1, max_size=500), st.data())
def test_a_body_that_was_cut_is_not_used(encoding: str, body: bytes, data: st.DataObject) -> None:
    packed = PACKERS[encoding](body)
    cut = data.draw(st.integers(1, len(packed) - 1))
    with pytest.raises(Rejected):
        unpacked(encoding, [packed[:cut]])


@pytest.mark.parametrize("encoding", sorted(PACKERS))
def test_what_unpacks_to_much_comes_in_parts(encoding: str) -> None:
    packed = PACKERS[encoding](bytes(100 << 20))
    largest = max(len(part) for part in Unpacker(encoding, 1 << 30).feed(packed))
    assert largest <= 40 << 20
    with pytest.raises(TooLarge):
        unpacked(encoding, [packed], bytes_max=50 << 20)


def test_the_budget_is_shared_and_given_back() -> None:
    budget = Budget(100)
    budget.take(60)
    with pytest.raises(Unavailable):
        budget.take(41)
    budget.take(40)
    budget.give(100)
    assert budget.used == 0


EMPTY = {"gzip": gzip.compress(b""), "zstd": b"\x50\x2a\x4d\x18\x00\x00\x00\x00"}
"""The shortest that there is: a member without content, a frame to be skipped."""


@pytest.mark.parametrize("encoding", EMPTY)
def test_very_many_empty_parts_are_refused_before_they_cost_anything(encoding: str) -> None:
    bomb = EMPTY[encoding] * ((31 << 20) // len(EMPTY[encoding]))
    unpacker = Unpacker(encoding, 1 << 25)
    with pytest.raises(Rejected, match=r"10,001 parts .* next to empty"):
        list(unpacker.feed(bomb))


@pytest.mark.parametrize("encoding", PACKERS)
def test_many_parts_are_fine_where_something_is_in_them_or_they_come_one_by_one(encoding: str) -> None:
    pack = PACKERS[encoding]
    unpacker, part = Unpacker(encoding, 1 << 40), pack(b"x" * FRAME_BYTES_LEAST)
    assert len(b"".join(unpacker.feed(part * (2 * FRAMES_FREE)))) == 2 * FRAMES_FREE * FRAME_BYTES_LEAST
    line = pack(b"{}")
    for _ in range(2 * FRAMES_FREE):
        assert b"".join(unpacker.feed(line)) == b"{}"
    unpacker.finish()
