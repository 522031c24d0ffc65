"""Limits and the rules for names."""

from collections.abc import Callable
from typing import Any

import pytest

from forebay.model import (
    BLOCK_BYTES_CEILING,
    Limits,
    Misconfigured,
    Rejected,
    TooLarge,
    check_group_name,
    check_partition,
    check_queue_name,
)

NAMES = [check_queue_name, check_group_name]


@pytest.mark.parametrize("check", NAMES)
@pytest.mark.parametrize(
    "name",
    [
        "a",
        "orders",
        "team/orders.v2",
        "50 % off",
        "größe",
        "注文",
        "...",
        "a" * 255,
        "é" * 127,
        "-",
        "\u200dx",
    ],
)
def test_good_names_pass(check: Callable[[str], str], name: str) -> None:
    assert check(name) == name


@pytest.mark.parametrize("check", NAMES)
@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("", "is empty"),
        (" \u3000", "is empty"),
        (" a", "whitespace"),
        ("a\u00a0", "whitespace"),
        ("a\nb", "control character at position 1"),
        ("a\x00", "control character"),
        ("a\x7f", "control character"),
        ("\x9fa", "control character"),
        ("a\u2028b", "control character"),
        ("a\ud800", "UTF-8"),
        (".", "URL"),
        ("..", "URL"),
        (7, "is int, not text"),
    ],
)
def test_bad_names_are_rejected(check: Callable[[Any], str], name: object, why: str) -> None:
    with pytest.raises(Rejected, match=why):
        check(name)


@pytest.mark.parametrize("check", [*NAMES, check_partition])
@pytest.mark.parametrize("name", ["a" * 256, "é" * 128])
def test_the_length_of_a_name_counts_in_bytes(check: Callable[[str], str], name: str) -> None:
    with pytest.raises(TooLarge, match="256 bytes"):
        check(name)


def test_partitions_may_be_empty_or_padded_but_hold_no_control_characters() -> None:
    assert check_partition("") == ""
    assert check_partition(" a ") == " a "
    with pytest.raises(Rejected, match="control character"):
        check_partition("a\tb")


def test_an_error_shows_only_the_start_of_a_long_name() -> None:
    with pytest.raises(Rejected) as caught:
        check_queue_name("a" * 200 + "\n")
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize(
    "wrong",
    [
        {"message_bytes_max": 0},
        {"block_messages_max": -1},
        {"block_messages_max": 100_001},
        {"block_bytes_max": BLOCK_BYTES_CEILING + 1},
        {"partition_bytes_max": 256},
        {"transaction_id_bytes_max": 256},
        {"block_bytes_max": 1 << 20},
        {"message_bytes_max": 16 << 20},
    ],
)
def test_limits_that_cannot_be_kept_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(Misconfigured, match="set it"):
        Limits(**wrong)
