"""Blocks from their bytes: the same record batch as by way of Python's objects, or Corrupt."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import StructType

from forebay.model import Block, Compression, Corrupt, Message, decode, encode
from forebay.spark.arrow import Piece, Shape
from forebay.spark.bodies import PlainBlock, decode_plain, even_texts, small_numbers
from forebay.spark.columns import HEADERS, MESSAGE
from tests.unit.model.blocks import blocks
from tests.unit.model.test_codec import forge

SCHEMA = StructType([*MESSAGE.fields, HEADERS])
_EVEN_IDS = st.integers(1, 40).flatmap(
    lambda length: st.text("0123456789abcdefß", min_size=length, max_size=length)
)
_ALIKE = st.builds(
    lambda payloads, partitions, same: Block.of(
        [
            Message(
                payload, partitions[i % len(partitions)], None if same is None else same + chr(97 + i % 9)
            )
            for i, payload in enumerate(payloads)
        ]
    ),
    st.lists(st.binary(max_size=8) | st.just(b"x" * 300), min_size=1, max_size=40),
    st.lists(st.text("abcü", max_size=3), min_size=1, max_size=5),
    st.none() | _EVEN_IDS,
)


@given(blocks | _ALIKE, st.sampled_from(Compression), st.data())
def test_a_batch_is_the_same_from_bytes(block: Block, compression: Compression, data: st.DataObject) -> None:
    body = encode(block, compression)
    slow, fast = decode(body), decode_plain(body)
    start = data.draw(st.integers(0, len(block)))
    stop = data.draw(st.integers(start, len(block)))
    assert (fast.id, len(fast)) == (slow.id, len(slow))
    shape = Shape(SCHEMA)
    for one, other in ((slow, fast), (slow.slice(start, stop), fast.slice(start, stop))):
        if len(one):
            pieces = [[Piece("q", 7, 8, each)] * 2 for each in (one, other)]
            assert shape.batch(pieces[0]).equals(shape.batch(pieces[1]))
            assert one.headers() == other.headers()


@pytest.mark.parametrize("count", [1, 15, 16, 1_000, 65_535, 65_536])
@pytest.mark.parametrize("length", [1, 31, 32, 255])
def test_ids_of_one_length_and_few_partitions_make_no_objects(count: int, length: int) -> None:
    if count > 1_000 and length > 32:
        count //= 64
    messages = [Message(b"x", "ab"[i % 2], f"{i:0{length}}"[-length:]) for i in range(count)]
    found = decode_plain(encode(Block.of(messages)))
    assert isinstance(found, PlainBlock)
    assert found.transaction_ids is not None
    assert found.transaction_ids.to_pylist() == [message.transaction_id for message in messages]
    found.transaction_ids.validate(full=True)


@pytest.mark.parametrize(
    "rows",
    [["a", "bc"], ["a", None], [None, None], ["a", 5], ["ä", "ab"], ["", ""], ["a" * 256], [b"a", b"b"], []],
)
def test_other_texts_are_left_to_the_decoder(rows: list[object]) -> None:
    assert even_texts(msgspec.msgpack.encode(rows), len(rows)) is None
    assert even_texts(msgspec.msgpack.encode([*rows, "a"]), len(rows)) is None


@pytest.mark.parametrize("rows", [[1, 128], [1, -1], [1, None], [1, "a"], [0, 70_000], []])
def test_other_numbers_are_left_to_the_decoder(rows: list[object]) -> None:
    assert small_numbers(msgspec.msgpack.encode(rows), len(rows)) is None
    assert small_numbers(msgspec.msgpack.encode([*rows, 1]), len(rows)) is None


@given(blocks | _ALIKE, st.data())
def test_a_damaged_body_under_a_good_checksum_is_read_by_both_or_corrupt(
    block: Block, data: st.DataObject
) -> None:
    stored = bytearray(encode(block, Compression.NONE)[40:])
    for _ in range(data.draw(st.integers(1, 3))):
        stored[data.draw(st.integers(0, len(stored) - 1))] = data.draw(st.integers(0, 255))
    body = forge(bytes(stored), count=len(block))
    try:
        slow = decode(body)
    except Corrupt:
        with pytest.raises(Corrupt):
            decode_plain(body)
        return
    fast = decode_plain(body)
    shape = Shape(SCHEMA)
    if len(slow):
        assert shape.batch([Piece("q", 1, 1, slow)]).equals(shape.batch([Piece("q", 1, 1, fast)]))


@given(st.binary(max_size=200))
def test_noise_is_corrupt(noise: bytes) -> None:
    with pytest.raises(Corrupt):
        decode_plain(noise)
    with pytest.raises(Corrupt):
        decode_plain(forge(noise, count=1))


@pytest.mark.parametrize(
    ("table", "index"), [(["a"], [1]), (["a", "b"], None), ([], None), (["a", "b"], [0, 1]), (["a"], [-1])]
)
def test_an_index_that_does_not_fit_is_corrupt(table: list[str], index: list[int] | None) -> None:
    stored = msgspec.msgpack.encode(([b"x"], table, index, None, None, None, None))
    with pytest.raises(Corrupt, match="do not fit"):
        decode_plain(forge(stored, count=1))
