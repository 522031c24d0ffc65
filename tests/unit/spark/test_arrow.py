"""Blocks as record batches: every column, whatever the blocks look like."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import StructType

from forebay.model import Block, Message, to_datetime
from forebay.spark import arrow
from forebay.spark.arrow import Piece, Shape, gather
from forebay.spark.columns import HEADERS, MESSAGE
from forebay.spark.filters import PartitionFilter

SCHEMA = StructType([*MESSAGE.fields, HEADERS])
_MESSAGES = st.builds(
    Message,
    st.binary(max_size=20),
    st.sampled_from(["", "a", "ab", "b"]),
    st.none() | st.text(max_size=5),
    st.none() | st.dictionaries(st.sampled_from("xyz"), st.text(max_size=3), min_size=1),
)
_BLOCKS = st.lists(st.lists(_MESSAGES, min_size=1, max_size=12), min_size=1, max_size=6)


def _pieces(blocks: list[list[Message]]) -> list[Piece]:
    pieces, first = [], 1
    for i, messages in enumerate(blocks):
        pieces.append(Piece("orders", first, 1_000 * i, Block.of(messages)))
        first += len(messages)
    return pieces


@given(_BLOCKS)
def test_a_batch_has_every_message_as_it_was(blocks: list[list[Message]]) -> None:
    rows = Shape(SCHEMA).batch(_pieces(blocks)).to_pylist()
    messages = [message for block in blocks for message in block]
    times = [to_datetime(1_000 * i) for i, block in enumerate(blocks) for _ in block]
    assert [row["seq"] for row in rows] == list(range(1, len(messages) + 1))
    assert [row["value"] for row in rows] == [each.payload for each in messages]
    assert [row["partition"] for row in rows] == [each.partition for each in messages]
    assert [row["key"] for row in rows] == [each.transaction_id for each in messages]
    assert [row["headers"] and dict(row["headers"]) for row in rows] == [each.headers for each in messages]
    assert [row["created_at"] for row in rows] == times


@given(_BLOCKS, st.sampled_from(["", "a", "b", "none"]), st.booleans())
def test_rows_are_kept_by_their_partition(blocks: list[list[Message]], name: str, prefix: bool) -> None:  # noqa: FBT001 - drawn
    chosen = PartitionFilter(None, name) if prefix else PartitionFilter(name, None)
    found = [
        seq for b in Shape(MESSAGE).batches(_pieces(blocks), chosen.keep) for seq in b["seq"].to_pylist()
    ]
    messages = [message for block in blocks for message in block]
    right = [m.partition.startswith(name) if prefix else m.partition == name for m in messages]
    assert found == [i + 1 for i, is_right in enumerate(right) if is_right]


def test_batches_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrow, "BATCH_ROWS_MAX", 10)
    pieces = _pieces([[Message(b"x")] * count for count in (25, 3, 4, 9, 1)])
    groups = list(gather(pieces))
    assert [sum(len(piece.block) for piece in group) for group in groups] == [10, 10, 8, 4, 10]
    assert [piece.first for group in groups for piece in group] == [1, 11, 21, 26, 29, 33, 42]
