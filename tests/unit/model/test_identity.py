"""Block ids: order, time and text."""

import uuid
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.model import IdMint, ManualClock, Rejected, format_id, id_time, mint, mint_many
from forebay.model import parse_id as parse
from tests.unit.model.blocks import ids

NOW = 1_767_225_600_123_456


def test_an_id_is_a_uuid_of_version_7_that_knows_its_millisecond() -> None:
    made = IdMint(ManualClock(NOW))
    for block_id in (made.mint(), *made.mint_many(3)):
        known = uuid.UUID(bytes=block_id)
        assert (known.version, known.variant) == (7, uuid.RFC_4122)
        assert id_time(block_id) == NOW // 1000 * 1000


def test_the_fraction_of_the_millisecond_follows_the_version() -> None:
    fraction = int.from_bytes(IdMint(ManualClock(NOW)).mint()[6:8], "big") & 0xFFF
    assert fraction == 456 * 4096 // 1000


@given(st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 9000)), min_size=1, max_size=8))
def test_ids_ascend_whatever_the_clock_does(steps: list[tuple[int, int]]) -> None:
    clock = ManualClock(NOW)
    made = IdMint(clock)
    minted: list[bytes] = []
    for back, n in steps:
        clock.set(NOW - back)
        minted += made.mint_many(n)
        minted.append(made.mint())
    assert all(left < right for left, right in pairwise(minted))


def test_a_mint_that_is_out_of_ticks_borrows_from_the_next_millisecond() -> None:
    minted = IdMint(ManualClock(NOW // 1000 * 1000)).mint_many(4097)
    assert id_time(minted[4095]) == NOW // 1000 * 1000
    assert id_time(minted[4096]) == NOW // 1000 * 1000 + 1000


def test_a_clock_before_the_epoch_still_mints() -> None:
    assert id_time(IdMint(ManualClock(-5)).mint()) == 0


def test_threads_never_mint_the_same_id_and_each_sees_its_own_ascend() -> None:
    made = IdMint(ManualClock(NOW))

    def work(_: int) -> list[bytes]:
        return [block_id for _ in range(50) for block_id in (made.mint(), *made.mint_many(20))]

    with ThreadPoolExecutor(8) as pool:
        per_thread = list(pool.map(work, range(8)))
    for minted in per_thread:
        assert all(left < right for left, right in pairwise(minted))
    everything = [block_id for minted in per_thread for block_id in minted]
    assert len({block_id[:8] for block_id in everything}) == len(everything) == 8 * 50 * 21


def test_the_default_mint_serves_one_and_many() -> None:
    first, *rest = mint(), *mint_many(100), mint()
    assert sorted({first, *rest}) == [first, *rest]
    assert mint_many(0) == []


def test_other_versions_have_no_time() -> None:
    assert id_time(uuid.uuid4().bytes) is None
    assert id_time(bytes.fromhex("019b76da600070000000000000000000")) is None


@given(ids)
def test_ids_survive_the_way_through_text(block_id: bytes) -> None:
    text = format_id(block_id)
    assert text == str(uuid.UUID(bytes=block_id))
    assert parse(text) == parse(text.upper()) == parse(text.replace("-", "")) == block_id
    assert parse(block_id) == block_id


@pytest.mark.parametrize(
    "bad",
    [
        "",
        "orders",
        "019b76da-6000-7000-8000-0000000000f",
        "019b76da6000-7000-8000-0000000000ff",
        "{019b76da-6000-7000-8000-0000000000ff}",
        "019b76da-6000-7000-8000-0000000000fg",
        "019b76da-6000-7000-8000-0000000000ff\n",
        "０19b76da-6000-7000-8000-0000000000ff",  # noqa: RUF001 - a digit, but not ours
        "00000000-0000-0000-0000-000000000000",
        b"",
        b"15 bytes, or so",
        bytes(16),
    ],
)
def test_what_is_not_a_uuid_is_rejected_with_an_example(bad: str | bytes) -> None:
    with pytest.raises(Rejected, match="give a UUID such as"):
        parse(bad)


def test_only_16_bytes_are_formatted() -> None:
    with pytest.raises(Rejected, match="3 bytes long"):
        format_id(b"abc")
