"""Blocks as columns, seen as messages."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.model import Block, Message, Rejected, id_time
from forebay.model.block import shape_fault
from tests.unit.model.blocks import blocks, message_lists

ID = b"0123456789abcdef"


@given(message_lists)
def test_a_block_gives_back_its_messages(messages: list[Message]) -> None:
    block = Block.of(messages)
    assert len(block) == len(messages)
    assert list(block) == messages
    assert [block.message(i) for i in range(len(block))] == messages
    assert block.partitions() == [message.partition for message in messages]
    assert [block.partition(i) for i in range(len(block))] == block.partitions()
    assert block.headers() == [message.headers for message in messages]
    assert shape_fault(block) is None


@given(message_lists, st.lists(st.binary()))
def test_bytes_are_messages_that_have_nothing_else(messages: list[Message], payloads: list[bytes]) -> None:
    mixed: list[Message | bytes] = [*messages, *payloads]
    messages = [*messages, *map(Message, payloads)]
    assert Block.of(mixed, id=bytes(16), created_at=1) == Block.of(messages, id=bytes(16), created_at=1)


@given(blocks, st.data())
def test_a_slice_is_the_block_of_its_messages(block: Block, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(block)))
    stop = data.draw(st.integers(0, len(block)))
    expected = Block.of(list(block)[start:stop], id=block.id, created_at=block.created_at)
    assert list(block.slice(start, stop)) == list(expected)
    assert shape_fault(block.slice(start, stop)) is None
    if start < stop:
        assert block.slice(start, stop) == expected


@given(blocks, st.data())
def test_what_is_left_out_is_gone(block: Block, data: st.DataObject) -> None:
    gone = data.draw(st.sets(st.integers(0, len(block) - 1)))
    left = [message for i, message in enumerate(block) if i not in gone]
    rest = block.without(gone)
    assert list(rest) == left
    assert shape_fault(rest) is None
    if left:
        assert rest == Block.of(left, id=block.id, created_at=block.created_at)


def test_leaving_out_nothing_is_free() -> None:
    block = Block.of([Message(b"a")])
    assert block.without(()) is block


def test_id_and_time_are_made_up_where_not_given() -> None:
    block = Block.of([Message(b"a")])
    made = id_time(block.id)
    assert made is not None
    assert abs(made - block.created_at) < 60_000_000


def test_the_common_case_has_no_index() -> None:
    block = Block.of([Message(b"a", "north"), Message(b"b", "north")], id=ID, created_at=1)
    assert block == Block(ID, 1, [b"a", b"b"], ["north"])


@pytest.mark.parametrize("odd", ["text", {"order": 1}, 5, None, bytearray(b"x")])
def test_what_is_no_message_is_refused_with_its_place(odd: Any) -> None:
    for fine in (b"x", Message(b"x")):
        with pytest.raises(Rejected, match=rf"message 1 is {type(odd).__name__}.*encode it"):
            Block.of([fine, odd])


def test_a_block_may_be_empty() -> None:
    block = Block.of([], id=ID, created_at=1)
    assert (len(block), list(block), shape_fault(block)) == (0, [], None)


def test_the_text_of_a_block_shows_no_payload() -> None:
    text = "<Block 30313233-3435-3637-3839-616263646566 of 1>"
    assert repr(Block.of([Message(b"secret")], id=ID)) == text


@pytest.mark.parametrize(
    ("block", "why"),
    [
        (Block(b"short", 0, [b"a"], [""]), "id is 5 bytes"),
        (Block(ID, 0, [b"a"], []), "partition_table has 0 entries"),
        (Block(ID, 0, [b"a"], ["", "b"]), "partition_table has 2 entries"),
        (Block(ID, 0, [b"a"], ["", "b"], [2]), "points outside"),
        (Block(ID, 0, [b"a"], ["", "b"], [-1]), "points outside"),
        (Block(ID, 0, [b"a"], ["", "b"], [0, 1]), "2 rows for 1"),
        (Block(ID, 0, [b"a"], [""], None, []), "transaction_ids has 0 rows"),
        (Block(ID, 0, [b"a"], [""], header_index=[0]), "header_index has no table"),
        (Block(ID, 0, [b"a"], [""], header_table=[]), "header_table has 0 entries"),
        (Block(ID, 0, [b"a"], [""], start_times=[1, 2]), "start_times has 2 rows"),
    ],
)
def test_columns_that_do_not_fit_are_found(block: Block, why: str) -> None:
    assert why in (shape_fault(block) or "")
