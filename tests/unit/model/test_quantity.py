"""Sizes and durations as text, both ways."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.model import Rejected, format_bytes, format_seconds, parse_bytes, parse_seconds


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("0", 0),
        ("1048576", 1 << 20),
        ("1B", 1),
        ("512Ki", 512 << 10),
        ("256Mi", 256 << 20),
        ("1.5Gi", 3 << 29),
        ("2Ti", 2 << 40),
        ("10k", 10_000),
        ("10M", 10**7),
        ("3G", 3 * 10**9),
        ("1T", 10**12),
    ],
)
def test_sizes_are_read(text: str, size: int) -> None:
    assert parse_bytes(text) == size


@given(st.integers(0, 2**63 - 1) | st.integers(0, 2**20).map(lambda n: n << 20))
def test_sizes_survive_the_way_through_text(size: int) -> None:
    assert parse_bytes(format_bytes(size)) == parse_bytes(size) == size


def test_the_largest_size_is_that_of_an_int64() -> None:
    assert parse_bytes("9223372036854775807B") == parse_bytes(2**63 - 1) == 2**63 - 1
    assert parse_bytes(1e6) == 1_000_000
    for bad in (
        "9223372036854775808B",
        2**63,
        10**400,
        1.5,
        math.nan,
        math.inf,
        "1.0000000000000000001Ti",
    ):
        with pytest.raises(Rejected):
            parse_bytes(bad)


def test_sizes_are_written_in_the_largest_unit_that_fits() -> None:
    sizes = [0, 1, 1023, 1024, 1000, 256 << 20, 1_500_000]
    assert list(map(format_bytes, sizes)) == ["0B", "1B", "1023B", "1Ki", "1k", "256Mi", "1500k"]


@pytest.mark.parametrize(
    "bad",
    [
        "",
        "Mi",
        "1 Mi",
        "-1",
        "1mi",
        "1KB",
        "1e6",
        "0.3B",
        "1.",
        "1,5Mi",
        "٣Mi",
        "1\n",
        -1,
        True,
        "9" * 18 + "Ti",
    ],
)
def test_what_is_no_size_is_rejected_with_examples(bad: str | int) -> None:
    with pytest.raises(Rejected, match="256Mi") as caught:
        parse_bytes(bad)
    assert repr(bad) in str(caught.value)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("30s", 30),
        ("1h30m", 5400),
        ("250ms", 0.25),
        ("7d", 604_800),
        ("1.5s", 1.5),
        ("10us", 0.00001),
        ("1d2h3m4s5ms6us", 93_784.005006),
        ("0.5h", 1800),
        ("45", 45),
        ("0.1", 0.1),
        ("0s", 0),
    ],
)
def test_durations_are_read(text: str, seconds: float) -> None:
    assert parse_seconds(text) == seconds


@given(st.integers(0, 36_500 * 86_400 * 10**6))
def test_durations_survive_the_way_through_text(microseconds: int) -> None:
    seconds = microseconds / 1_000_000
    assert parse_seconds(format_seconds(seconds)) == parse_seconds(seconds) == seconds


def test_durations_are_written_in_few_parts() -> None:
    durations = [0, 30, 90, 5400, 604_800, 0.25, 0.000_01, 1.5, 61.25, 86_401]
    written = ["0s", "30s", "1m30s", "1h30m", "7d", "250ms", "10us", "1.5s", "1m1.25s", "1d1s"]
    assert list(map(format_seconds, durations)) == written


@pytest.mark.parametrize(
    "bad",
    [
        "",
        "s",
        "5 s",
        "-1s",
        "30m1h",
        "1s1s",
        "1w",
        "1e3s",
        "5M",
        "٣s",
        "1s\n",
        "36501d",
        -0.5,
        math.nan,
        math.inf,
        10**400,
        True,
    ],
)
def test_what_is_no_duration_is_rejected_with_examples(bad: str | float) -> None:
    with pytest.raises(Rejected, match="1h30m") as caught:
        parse_seconds(bad)
    assert repr(bad) in str(caught.value)
