"""Both codecs give back what they were given, and refuse everything else."""

from enum import IntEnum
from typing import Any
from uuid import UUID

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.contract import Field, Undecodable, UnknownFormat, decode, encode
from forebay.contract.values import CODECS, Codec, FieldType
from forebay.model import Rejected
from tests.unit.contract.rows import Row, rows

EMAILS = (
    Field("to", "string"),
    Field("subject", "string"),
    Field("body", "[]byte"),
    Field("user_id", "int64"),
)
NOTIFICATIONS = (Field("message", "string"), Field("target_ids", "[]int64"), Field("is_urgent", "bool"))
EMAIL = ("a@b.c", "Hi", b"\x00\xff", 42)
NOTIFICATION = ("ok", (1, -1), True)

codecs = pytest.mark.parametrize("codec", CODECS)


def one(kind: FieldType) -> tuple[Field, ...]:
    return (Field("x", kind),)


@pytest.mark.parametrize(
    ("fields", "values", "golden"),
    [
        (EMAILS, EMAIL, "050000006140622e630200000048690200000000ff2a00000000000000"),
        (NOTIFICATIONS, NOTIFICATION, "020000006f6b020000000100000000000000ffffffffffffffff01"),
    ],
)
def test_iproto_writes_and_reads_the_bytes_of_the_original(
    fields: tuple[Field, ...], values: tuple[Any, ...], golden: str
) -> None:
    assert encode("iproto", fields, values).hex() == golden
    assert decode("iproto", fields, bytes.fromhex(golden)) == values


def test_msgpack_is_an_array_in_the_order_of_the_fields() -> None:
    data = encode("msgpack", EMAILS, EMAIL)
    assert data.hex() == "94a56140622e63a24869c40200ff2a"
    assert msgspec.msgpack.decode(data) == list(EMAIL)
    assert decode("msgpack", EMAILS, data) == EMAIL


@codecs
@given(row=rows())
def test_what_is_encoded_is_decoded_as_it_was(codec: Codec, row: Row) -> None:
    fields, values = row
    found = decode(codec, fields, encode(codec, fields, values))
    assert found == values
    assert [*map(type, found)] == [*map(type, values)]


@codecs
@given(row=rows())
def test_bytes_that_were_cut_anywhere_are_refused(codec: Codec, row: Row) -> None:
    fields, values = row
    data = encode(codec, fields, values)
    for length in range(len(data)):
        with pytest.raises(Undecodable):
            decode(codec, fields, data[:length])


@codecs
@given(row=rows(), extra=st.binary(min_size=1, max_size=9))
def test_bytes_after_the_end_are_refused(codec: Codec, row: Row, extra: bytes) -> None:
    fields, values = row
    with pytest.raises(Undecodable):
        decode(codec, fields, encode(codec, fields, values) + extra)


@codecs
@given(row=rows(), data=st.binary(max_size=40))
def test_any_bytes_are_decoded_to_what_encodes_again_or_are_refused(
    codec: Codec, row: Row, data: bytes
) -> None:
    try:
        values = decode(codec, row[0], data)
    except Undecodable:
        return
    again = encode(codec, row[0], values)
    assert decode(codec, row[0], again) == values
    if codec == "iproto":  # which has one way to write a row; MessagePack has several
        assert again == data


@codecs
@pytest.mark.parametrize("kind", ["string", "[]byte", "[]int"])
def test_an_empty_value_at_the_end_decodes(codec: Codec, kind: FieldType) -> None:
    fields = (Field("id", "int"), Field("x", kind))
    empty: Any = {"string": "", "[]byte": b"", "[]int": ()}[kind]
    assert decode(codec, fields, encode(codec, fields, (7, empty))) == (7, empty)


class Colour(IntEnum):
    """A number by another name."""

    RED = 3


@codecs
@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        ("[]int", [1, 2], (1, 2)),
        ("[]int64", range(3), (0, 1, 2)),
        ("[]byte", bytearray(b"ab"), b"ab"),
        ("[]byte", memoryview(b"ab"), b"ab"),
        ("int", Colour.RED, 3),
    ],
)
def test_what_is_the_same_value_in_another_type_is_taken(
    codec: Codec, kind: FieldType, value: Any, expected: Any
) -> None:
    assert decode(codec, one(kind), encode(codec, one(kind), [value])) == (expected,)


@codecs
@pytest.mark.parametrize(
    ("kind", "value", "message"),
    [
        ("int", True, "field 'x' (int) is bool; give int"),
        ("int", 1.0, "field 'x' (int) is float; give int"),
        ("int", "1", "field 'x' (int) is str; give int"),
        ("int", None, "field 'x' (int) is NoneType; give int"),
        ("int", 1 << 63, "field 'x' (int) has a number of 64 bits"),
        ("int64", -(1 << 63) - 1, "field 'x' (int64) has a number of 64 bits"),
        ("string", b"a", "field 'x' (string) is bytes; give str"),
        ("string", UUID(int=1), "field 'x' (string) is UUID; give str"),
        ("string", "a\ud800", "a text has a lone surrogate at position 1"),
        ("bool", 1, "field 'x' (bool) is int; give bool"),
        ("[]byte", "YQ==", "field 'x' ([]byte) is str; give bytes"),
        ("[]int", {1, 2}, "field 'x' ([]int) is set; give Sequence[int]"),
        ("[]int", b"ab", "field 'x' ([]int) is bytes; give Sequence[int]"),
        ("[]int", [1, True], "field 'x' ([]int) has bool in it; give whole numbers"),
        ("[]int", ["1", 2.0], "field 'x' ([]int) has float, str in it; give whole numbers"),
        ("[]int64", [0, 1 << 63], "field 'x' ([]int64) has a number of 64 bits"),
    ],
)
def test_a_value_that_its_field_does_not_take_is_rejected(
    codec: Codec, kind: FieldType, value: Any, message: str
) -> None:
    with pytest.raises(Rejected) as caught:
        encode(codec, one(kind), [value])
    assert str(caught.value).startswith(message)


@codecs
def test_as_many_values_as_fields_are_taken(codec: Codec) -> None:
    with pytest.raises(Rejected, match="3 values are given for 4 fields; the fields are to, subject,"):
        encode(codec, EMAILS, EMAIL[:3])


@pytest.mark.parametrize(
    ("fields", "data", "message"),
    [
        (EMAILS, "", "the bytes end within field 'to' (string): 0 of 4 are there"),
        (EMAILS, "0500000061", "field 'to' (string) should have 5 bytes, and 1 bytes are left"),
        (EMAILS, "00000000" * 3, "the bytes end within field 'user_id' (int64): 0 of 8 are there"),
        (one("int"), "00" * 9, "1 bytes are left over after the last field"),
        (one("bool"), "02", "field 'x' (bool) is 2, neither 0 nor 1"),
        (one("string"), "01000000ff", "field 'x' (string) is not UTF-8 at byte 0"),
        (one("[]int"), "ffffffff", "field 'x' ([]int) should have 4294967295 numbers, and 0 bytes are left"),
        (
            (Field("a", "int"), Field("b", "bool"), Field("c", "string")),
            "00" * 8,
            "the bytes end within field 'b' (bool): 0 of 1 are there",
        ),
    ],
)
def test_iproto_says_which_field_is_wrong(fields: tuple[Field, ...], data: str, message: str) -> None:
    with pytest.raises(Undecodable) as caught:
        decode("iproto", fields, bytes.fromhex(data))
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("kind", "value", "message"),
    [
        ("int", "1", "field 'x' (int): expected int, got str"),
        ("int", True, "field 'x' (int): expected int, got bool"),
        ("int", 1 << 63, "field 'x' (int): expected int <= 9223372036854775807"),
        ("bool", 1, "field 'x' (bool): expected bool, got int"),
        ("string", b"a", "field 'x' (string): expected str, got bytes"),
        ("string", None, "field 'x' (string): expected str, got None"),
        ("[]byte", "a", "field 'x' ([]byte): expected bytes, got str"),
        ("[]int", [1, 2.5], "field 'x[1]' ([]int): expected int, got float"),
    ],
)
def test_msgpack_says_which_field_is_wrong(kind: FieldType, value: Any, message: str) -> None:
    with pytest.raises(Undecodable) as caught:
        decode("msgpack", one(kind), msgspec.msgpack.encode([value]))
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "not a row of MessagePack: Input data was truncated"),
        (b"\xc1", "not a row of MessagePack: MessagePack data is malformed"),
        (b"\x91\xa1\xff", "not a row of MessagePack: 'utf-8' codec can't decode"),
        (b"\x80", "expected array, got object"),
        (b"\x92\xa0\xa0", "expected array of length 1, got 2"),
        (b"\x90", "expected array of length 1, got 0"),
        (b"\xdd\xff\xff\xff\xff", "expected array of length 1, got 4294967295"),
    ],
)
def test_msgpack_that_is_no_row_is_refused(data: bytes, message: str) -> None:
    with pytest.raises(Undecodable) as caught:
        decode("msgpack", one("string"), data)
    assert str(caught.value).startswith(message)


def test_a_codec_that_is_not_known_is_no_reason_to_bury_a_task() -> None:
    unknown: Any = "protobuf"
    with pytest.raises(UnknownFormat, match="codec 'protobuf' isn't known here; known are msgpack, iproto"):
        decode(unknown, EMAILS, b"")
