"""Message ids: packing, order, bounds and text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.model import (
    MESSAGE_ID_MAX,
    QUEUE_NUMBER_MAX,
    SEQUENCE_MAX,
    Rejected,
    pack,
    parse_message_id,
    parse_message_ids,
    queue_of,
    sequence_of,
    unpack,
)

queues = st.integers(1, QUEUE_NUMBER_MAX)
sequences = st.integers(1, SEQUENCE_MAX)


@given(queues, sequences)
def test_what_is_packed_comes_out_again(queue: int, sequence: int) -> None:
    packed = pack(queue, sequence)
    assert 0 < packed <= MESSAGE_ID_MAX == 2**63 - 1
    assert unpack(packed) == (queue_of(packed), sequence_of(packed)) == (queue, sequence)
    assert parse_message_id(packed) == parse_message_id(str(packed)) == packed


@given(queues, sequences, sequences)
def test_ids_of_a_queue_sort_by_sequence(queue: int, left: int, right: int) -> None:
    assert (pack(queue, left) < pack(queue, right)) == (left < right)


@pytest.mark.parametrize(
    ("queue", "sequence"),
    [(0, 1), (QUEUE_NUMBER_MAX + 1, 1), (1, 0), (1, SEQUENCE_MAX + 1), (-1, 1), (1, -1)],
)
def test_numbers_out_of_range_are_rejected(queue: int, sequence: int) -> None:
    with pytest.raises(Rejected, match="run from 1 to"):
        pack(queue, sequence)


@pytest.mark.parametrize(
    "bad",
    [
        "",
        "x",
        "-1",
        "+1",
        " 1",
        "1_0",
        "1.0",
        "٣",
        "9" * 19,
        "9" * 5000,
        "0",
        "1",
        0,
        -1,
        1 << 63,
        5,
    ],
)
def test_what_is_no_message_id_is_rejected(bad: str | int) -> None:
    with pytest.raises(Rejected, match="give the number that came with the message"):
        parse_message_id(bad)


def test_an_id_without_a_sequence_number_is_rejected() -> None:
    with pytest.raises(Rejected, match="out of range"):
        unpack(7 << 45)


@pytest.mark.parametrize(
    "values",
    [[], ["35184372088833"], ["35184372088833", "9223372036854775807"], [35184372088833, "35184372088834"]],
)
def test_many_ids_are_read_like_one(values: list[str | int]) -> None:
    assert parse_message_ids(values) == [parse_message_id(value) for value in values]


@pytest.mark.parametrize(
    "bad", ["", " 35184372088833", "1", "35184372088832", "9223372036854775808", "٣", "-1", "1" * 4_400]
)
def test_a_bad_one_among_many_is_refused_like_alone(bad: str) -> None:
    with pytest.raises(Rejected) as alone:
        parse_message_id(bad)
    with pytest.raises(Rejected) as among:
        parse_message_ids(["35184372088833", bad])
    assert str(among.value) == str(alone.value)
