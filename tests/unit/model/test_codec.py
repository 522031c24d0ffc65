"""Blocks as bytes: golden files, damage of every kind, and bounds."""

import contextlib
import struct
import zlib
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.model import (
    BLOCK_BYTES_CEILING,
    BLOCK_MESSAGES_CEILING,
    HEADER_BYTES,
    Block,
    Compression,
    Corrupt,
    Header,
    Message,
    Rejected,
    TooLarge,
    decode,
    encode,
    peek_header,
    verify,
)
from forebay.model.compression import compress
from tests.golden.make import FOLDER, GOLDEN
from tests.unit.model.blocks import blocks

ID = b"0123456789abcdef"
BODY = [[b"a", b"b"], [""], None, None, None, None, None]


def forge(
    body: bytes,
    *,
    count: int = 2,
    compression: int = 0,
    version: int = 1,
    body_bytes: int | None = None,
) -> bytes:
    """Make a block with a correct checksum around any body."""
    length = len(body) if body_bytes is None else body_bytes
    summed = struct.pack("<2sBBIq16sI", b"FB", version, compression, count, 7, ID, length)
    return summed + struct.pack("<I", zlib.crc32(summed + body)) + body


def packed(body: object) -> bytes:
    return msgspec.msgpack.encode(body)


@pytest.mark.parametrize("name", GOLDEN)
def test_golden_files_decode_to_what_was_written(name: str) -> None:
    block, compression = GOLDEN[name]
    data = (FOLDER / f"{name}.block").read_bytes()
    assert decode(data) == decode(bytearray(data)) == decode(memoryview(data)) == block
    assert verify(data) == peek_header(data[:HEADER_BYTES])
    assert verify(data).compression is compression


@pytest.mark.parametrize("name", [n for n, (_, how) in GOLDEN.items() if how is Compression.NONE])
def test_golden_files_are_written_again_to_the_byte(name: str) -> None:
    data = (FOLDER / f"{name}.block").read_bytes()
    assert encode(GOLDEN[name][0], Compression.NONE) == data


@pytest.mark.parametrize("name", GOLDEN)
def test_every_flipped_bit_is_noticed(name: str) -> None:
    data = bytearray((FOLDER / f"{name}.block").read_bytes())
    for bit in range(len(data) * 8):
        data[bit // 8] ^= 1 << bit % 8
        with pytest.raises(Corrupt):
            decode(data)
        with pytest.raises(Corrupt):
            verify(data)
        data[bit // 8] ^= 1 << bit % 8


@pytest.mark.parametrize("name", GOLDEN)
def test_every_cut_and_every_addition_is_noticed(name: str) -> None:
    data = (FOLDER / f"{name}.block").read_bytes()
    for length in range(len(data)):
        with pytest.raises(Corrupt):
            decode(data[:length])
    with pytest.raises(Corrupt):
        decode(data + b"\x00")


@given(blocks, st.sampled_from(Compression))
def test_blocks_come_back_equal(block: Block, compression: Compression) -> None:
    data = encode(block, compression)
    assert decode(data) == block
    header = verify(data)
    assert (header.count, header.id, header.created_at) == (len(block), block.id, block.created_at)


def test_an_empty_block_comes_back() -> None:
    block = Block.of([], id=ID, created_at=0)
    assert decode(encode(block)) == block


def test_the_header_tells_what_is_inside() -> None:
    data = encode(Block.of([Message(b"a" * 500)], id=ID, created_at=7))
    header = peek_header(data)
    assert header == Header(Compression.LZ4, 1, 7, ID, 512, header.checksum)
    assert header.version == 1


def test_forged_blocks_are_good_unless_told_otherwise() -> None:
    assert decode(forge(packed(BODY))) == Block(ID, 7, [b"a", b"b"], [""])


@given(st.binary(max_size=200))
def test_noise_is_corrupt(noise: bytes) -> None:
    for data in (noise, b"FB\x01\x00" + noise):
        with pytest.raises(Corrupt):
            decode(data)


@given(st.binary(max_size=60), st.sampled_from(Compression), st.integers(0, 100))
def test_noise_under_a_good_checksum_is_corrupt(
    noise: bytes, compression: Compression, body_bytes: int
) -> None:
    with pytest.raises(Corrupt):
        decode(forge(noise, compression=compression, body_bytes=body_bytes))


def broken(**changes: Any) -> bytes:
    """Make a body with some columns replaced."""
    places = [
        "payloads",
        "partitions",
        "partition_index",
        "ids",
        "headers",
        "header_index",
        "times",
    ]
    body = list(BODY)
    for name, column in changes.items():
        body[places.index(name)] = column
    return packed(body)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        packed(BODY) + b"\xc0",
        packed(BODY[:6]),
        packed([*BODY, None]),
        packed({"payloads": []}),
        broken(payloads=[b"a"]),
        broken(payloads=["a", "b"]),
        broken(payloads=None),
        broken(partitions=[]),
        broken(partitions=["a", "b"]),
        broken(partitions=[b"a"]),
        broken(partition_index=[0]),
        broken(partition_index=[0, 1]),
        broken(partition_index=[0, -1]),
        broken(partition_index=[0, 2**64 - 1]),
        broken(partition_index=[0, 0.5]),
        broken(ids=["a"]),
        broken(ids=["a", 5]),
        broken(headers=[]),
        broken(headers=[{"a": 1}]),
        broken(headers=[{}, {}]),
        broken(headers=[None]),
        broken(header_index=[0, 0]),
        broken(headers=[{}], header_index=[0, 1]),
        broken(times=[1]),
        broken(times=[1, "2"]),
        packed(BODY).replace(b"\xa0", b"\xa1\xff"),
        b"\x97\xdd\xff\xff\xff\xff",
        b"\x97\x92\xc6\xff\xff\xff\xff",
        b"\x91" * 5000,
        b"\x97\xd4\x00\x00",
    ],
)
@pytest.mark.parametrize("compression", Compression)
def test_a_body_that_does_not_fit_is_corrupt(body: bytes, compression: Compression) -> None:
    done, stored = compress(body, compression)
    with pytest.raises(Corrupt):
        decode(forge(bytes(stored), compression=done, body_bytes=len(body)))


@given(st.data())
def test_a_damaged_body_under_a_good_checksum_never_raises_anything_else(
    data: st.DataObject,
) -> None:
    body = bytearray(encode(GOLDEN["rich"][0], Compression.NONE)[HEADER_BYTES:])
    for _ in range(data.draw(st.integers(1, 4))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(Corrupt):
        assert len(list(decode(forge(bytes(body), count=4)))) == 4


def test_a_newer_version_is_told_from_damage() -> None:
    with pytest.raises(Corrupt, match="a newer Forebay wrote it"):
        decode(forge(packed(BODY), version=2))


def test_an_unknown_compression_is_corrupt() -> None:
    with pytest.raises(Corrupt, match="unknown compression 4"):
        decode(forge(packed(BODY), compression=4))


@pytest.mark.parametrize("compression", Compression)
def test_lengths_are_bounded_before_anything_is_allocated(compression: Compression) -> None:
    with pytest.raises(Corrupt, match="too many"):
        decode(forge(b"", compression=compression, body_bytes=BLOCK_BYTES_CEILING + 1))
    with pytest.raises(Corrupt, match="too many"):
        decode(forge(b"", compression=compression, count=BLOCK_MESSAGES_CEILING + 1))


def test_columns_are_bounded_whatever_the_count_says() -> None:
    body = packed([[b""] * 2, [""], None, None, [{}] * (BLOCK_MESSAGES_CEILING + 1), [0, 0], None])
    with pytest.raises(Corrupt, match="length <= 100000"):
        decode(forge(body))


def test_nothing_is_written_that_could_not_be_read() -> None:
    with pytest.raises(TooLarge, match="more than a block holds"):
        encode(Block.of([Message(bytes(BLOCK_BYTES_CEILING))]))
    with pytest.raises(TooLarge, match="more than a block holds"):
        encode(Block.of([Message(b"")] * (BLOCK_MESSAGES_CEILING + 1)))
    with pytest.raises(AssertionError, match="2 entries"):
        encode(Block(ID, 0, [b"a"], ["", "b"]))


@pytest.mark.parametrize(
    "block",
    [
        Block.of([Message(b"a", "\ud800")]),
        Block.of([Message(b"a", start_time=1 << 70)]),
        Block.of([Message(b"a")], created_at=1 << 63),
        Block.of([Message(object())]),  # type: ignore[arg-type]
    ],
)
def test_what_should_not_have_passed_the_gate_is_rejected(block: Block) -> None:
    with pytest.raises(Rejected, match="check_block"):
        encode(block)
