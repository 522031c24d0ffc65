"""The gate: what passes can be written and read back, what does not is named."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.model import (
    TIME_MAX,
    Block,
    Compression,
    Limits,
    Message,
    Rejected,
    TooLarge,
    body_bytes,
    check_block,
    decode,
    encode,
    peek_header,
)
from tests.unit.model.blocks import blocks

GOOD = Message(b"good", "north", "t-0", {"flow": "orders"}, 5)
LIMITS = Limits(message_bytes_max=100, headers_bytes_max=20, block_messages_max=4)


@given(blocks)
def test_what_passes_comes_back_equal_and_is_no_larger_than_reckoned(block: Block) -> None:
    check_block(block, Limits())
    data = encode(block, Compression.NONE)
    assert decode(data) == block
    assert peek_header(data).body_bytes <= body_bytes(block)


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        (Message(b"a" * 101), "message 2: payload is 101 bytes, over 100B"),
        (Message(b"a", "p" * 256), "message 2: partition is 256 bytes"),
        (Message(b"a", transaction_id="t" * 256), "message 2: transaction id is 256 bytes"),
        (Message(b"a", transaction_id="é" * 128), "message 2: transaction id is 256 bytes"),
        (Message(b"a", headers={"k": "v" * 20}), "message 2: headers are 21 bytes, over 20B"),
        (Message(b"a", headers={"k": "é" * 10}), "message 2: headers are 21 bytes"),
    ],
)
def test_what_is_too_large_is_named(bad: Message, why: str) -> None:
    with pytest.raises(TooLarge, match=why):
        check_block(Block.of([GOOD, GOOD, bad, bad]), LIMITS)


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        ({"payload": "text"}, "payload is str, not bytes"),
        ({"payload": bytearray(b"a")}, "payload is bytearray, not bytes"),
        ({"partition": "a\nb"}, "partition 'a.nb' has a control character"),
        ({"partition": 5}, "partition is int"),
        ({"partition": "\ud800"}, "partition .* UTF-8"),
        ({"transaction_id": ""}, "transaction id is empty"),
        ({"transaction_id": "a\x00"}, "transaction id .* control character"),
        ({"transaction_id": "\x85"}, "transaction id .* control character"),
        ({"transaction_id": 5}, "transaction id is int"),
        ({"transaction_id": "\udfff"}, "transaction id .* UTF-8"),
        ({"headers": {"k": 5}}, "headers are not text"),
        ({"headers": {5: "v"}}, "headers are not text"),
        ({"headers": {"k": "\ud800"}}, "headers are not text"),
        ({"start_time": -1}, "start_time is -1"),
        ({"start_time": TIME_MAX + 1}, "start_time is"),
        ({"start_time": 1.5}, "start_time is 1.5"),
        ({"start_time": True}, "start_time is True"),
    ],
)
def test_what_is_wrong_is_named(bad: dict[str, Any], why: str) -> None:
    message = Message(**{"payload": b"a", **bad})
    with pytest.raises(Rejected, match=f"message 1: {why}"):
        check_block(Block.of([GOOD, message, GOOD]), LIMITS)
    with pytest.raises(Rejected, match=f"message 0: {why}"):
        check_block(Block.of([message]), LIMITS)


def test_headers_may_be_large_together() -> None:
    each = [Message(b"a", headers={"k": f"{i} of twenty bytes"}) for i in range(4)]
    check_block(Block.of(each), LIMITS)


def test_a_block_has_messages_but_not_too_many() -> None:
    with pytest.raises(Rejected, match="no messages"):
        check_block(Block.of([]), LIMITS)
    with pytest.raises(TooLarge, match="5 messages, over the limit of 4"):
        check_block(Block.of([GOOD] * 5), LIMITS)


def test_a_block_is_bounded_as_a_whole() -> None:
    limits = Limits(message_bytes_max=4000, headers_bytes_max=1, block_bytes_max=8200)
    check_block(Block.of([Message(bytes(4000))] * 2), limits)
    with pytest.raises(TooLarge, match="raise block_bytes_max"):
        check_block(Block.of([Message(bytes(4000))] * 3), limits)


@given(st.integers(max_value=-1) | st.integers(min_value=TIME_MAX + 1))
def test_the_time_of_a_block_is_on_the_calendar(created_at: int) -> None:
    with pytest.raises(Rejected, match="created_at"):
        check_block(Block.of([GOOD], created_at=created_at), LIMITS)


def test_columns_that_do_not_fit_are_a_bug_and_not_an_error() -> None:
    with pytest.raises(AssertionError, match="2 entries"):
        check_block(Block(b"0123456789abcdef", 0, [b"a"], ["", "b"]), LIMITS)
