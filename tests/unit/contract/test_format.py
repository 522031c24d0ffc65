"""Tasks as messages: older ones are read, newer ones are left for those who know them."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.contract import Codec, Field, Format, QueueContract, Undecodable, UnknownFormat, WorkSettings
from forebay.contract.format import array_length
from forebay.contract.values import CODECS, FieldType
from forebay.contract.versions import is_newer, is_version
from forebay.model import Rejected
from tests.unit.contract.rows import Row, rows

NAMES = ("to", "userId", "tags", "body", "urgent", "note")
TYPES: tuple[FieldType, ...] = ("string", "int64", "[]int", "[]byte", "bool", "string")
FIELDS = tuple(Field(name, kind) for name, kind in zip(NAMES, TYPES, strict=True))
VALUES = ("a@b.c", 42, (1, 2), b"\x00", True, "n")
ZEROS = ("", 0, (), b"", False, "")

codecs = pytest.mark.parametrize("codec", CODECS)


def made(codec: Codec = "msgpack", count: int = 6, version: str | None = None) -> Format:
    settings = WorkSettings(codec=codec)
    return Format(QueueContract(1, "emails", FIELDS[:count], settings), version)


@pytest.mark.parametrize(
    ("codec", "version", "headers"),
    [
        ("msgpack", None, {"codec": "msgpack"}),
        ("msgpack", "1.4", {"codec": "msgpack", "contract": "1.4"}),
        ("iproto", "2", {"codec": "iproto", "contract": "2", "fields": "6"}),
    ],
)
def test_headers_say_how_a_task_is_written(
    codec: Codec, version: str | None, headers: dict[str, str]
) -> None:
    assert made(codec, version=version).headers == headers


@codecs
@pytest.mark.parametrize("count", range(1, 7))
def test_a_task_that_was_put_before_fields_were_appended_has_their_zero_values(
    codec: Codec, count: int
) -> None:
    old, new = made(codec, count, "1"), made(codec, version="2")
    data = old.encode(VALUES[:count])
    assert new.decode(data, old.headers) == VALUES[:count] + ZEROS[count:]
    assert new.unfamiliar(data, old.headers) is None


def test_msgpack_says_itself_how_many_fields_it_has() -> None:
    assert made().decode(made(count=2).encode(VALUES[:2])) == VALUES[:2] + ZEROS[2:]


def test_iproto_without_headers_has_all_fields() -> None:
    data = made("iproto").encode(VALUES)
    assert made("iproto").decode(data) == VALUES
    with pytest.raises(Undecodable, match="the bytes end within field 'note'"):
        made("iproto").decode(made("iproto", 5).encode(VALUES[:5]))


@codecs
@given(row=rows(), seen=st.data())
def test_a_task_that_was_cut_is_never_taken_for_an_older_one(
    codec: Codec, row: Row, seen: st.DataObject
) -> None:
    fields, values = row
    form = Format(QueueContract(1, "q", fields, WorkSettings(codec=codec)), "1")
    data = form.encode(values)
    cut = data[: seen.draw(st.integers(0, len(data) - 1))]
    for headers in (None, form.headers, {**form.headers, "trace": "x"}):
        with pytest.raises(Undecodable):
            form.decode(cut, headers)


@codecs
def test_a_task_of_a_newer_version_is_left_for_those_who_know_it(codec: Codec) -> None:
    ours, theirs = made(codec, version="1.9"), made(codec, version="1.10")
    data = theirs.encode(VALUES)
    with pytest.raises(UnknownFormat, match=r"version '1\.10' of the contract is after ours, 1\.9"):
        ours.decode(data, theirs.headers)
    assert ours.unfamiliar(data, theirs.headers) is not None


@codecs
def test_a_task_with_more_fields_is_left_for_those_who_know_them(codec: Codec) -> None:
    ours, theirs = made(codec, 3), made(codec)
    data = theirs.encode(VALUES)
    with pytest.raises(UnknownFormat, match="it has 6 fields, and the contract here has 3; work it"):
        ours.decode(data, theirs.headers)
    assert ours.unfamiliar(data, theirs.headers) == "it has 6 fields, and the contract here has 3"


@pytest.mark.parametrize(
    "data",
    [
        b"\x9f garbage",
        b"\xdd\xff\xff\xff\xff",
        made().encode(VALUES)[:-1],
        made().encode(VALUES) + b"\0",
        b"\x9f" + b"\x91" * 100_000,
    ],
)
def test_bytes_that_are_no_row_are_not_taken_for_a_newer_one(data: bytes) -> None:
    ours = made("msgpack", 3)
    for headers in (None, ours.headers, {"flow": "f"}):
        with pytest.raises(Undecodable) as caught:
            ours.decode(data, headers)
        assert not isinstance(caught.value, UnknownFormat)
    assert len(ours._others) == 1


@pytest.mark.parametrize(
    ("headers", "reason"),
    [
        ({"codec": "protobuf"}, "codec 'protobuf' isn't known here"),
        ({"codec": "msgpack", "contract": "next"}, "version 'next' of the contract is after ours, 1"),
    ],
)
def test_what_is_not_known_is_unknown_and_not_undecodable(headers: dict[str, str], reason: str) -> None:
    form = made(version="1")
    assert form.unfamiliar(b"\x90", headers) == reason
    with pytest.raises(UnknownFormat) as caught:
        form.decode(b"\x90", headers)
    assert caught.value.message == reason


def test_headers_name_the_codec_and_others_are_left_alone() -> None:
    row = made("iproto", version="1").encode(VALUES)
    headers = {**made("iproto", version="1").headers, "traceparent": "00-1", "flow": "f"}
    assert made("msgpack", version="1").decode(row, headers) == VALUES
    assert made("msgpack").decode(made().encode(VALUES), {"flow": "f"}) == VALUES


@pytest.mark.parametrize("text", ["0", "x", "-1", "99999", "", "٣"])
def test_a_header_of_fields_that_is_no_count_is_refused(text: str) -> None:
    headers = {"codec": "iproto", "fields": text}
    with pytest.raises(Undecodable):
        made("iproto").decode(made("iproto").encode(VALUES), headers)


def test_an_array_without_fields_is_refused() -> None:
    with pytest.raises(Undecodable, match="it has no fields"):
        made().decode(b"\x90")


class Email:
    """Anything with these attributes."""

    to, user_id, tags, body, urgent, note = VALUES


def test_a_task_is_serialized_from_attributes_and_from_keys() -> None:
    fields: dict[str, Any] = dict(
        zip(("to", "user_id", "tags", "body", "urgent", "note"), VALUES, strict=True)
    )
    assert made().serialize(Email()) == made().serialize(fields) == made().encode(VALUES)


def test_a_task_of_one_field_is_serialized() -> None:
    assert made(count=1).serialize(Email()) == made(count=1).serialize({"to": "a@b.c"}) == b"\x91\xa5a@b.c"


@pytest.mark.parametrize(
    ("change", "message"),
    [({"userId": 1}, "field 'userId' isn't in the contract"), ({"note": None}, "field 'note' is missing")],
)
def test_keys_must_be_the_fields(change: dict[str, Any], message: str) -> None:
    fields = dict(zip(("to", "user_id", "tags", "body", "urgent", "note"), VALUES, strict=True)) | change
    given_fields = {name: value for name, value in fields.items() if value is not None}
    with pytest.raises(Rejected, match=message):
        made().serialize(given_fields)


@pytest.mark.parametrize(
    ("data", "length"),
    [
        (b"", None),
        (b"\x93", 3),
        (b"\xa1a", None),
        (b"\xdc\x01\x02", 258),
        (b"\xdc\x01", None),
        (b"\xdd\0\0\0\5", 5),
    ],
)
def test_the_length_of_an_array_is_read_off_its_first_bytes(data: bytes, length: int | None) -> None:
    assert array_length(data) == length


@pytest.mark.parametrize(
    ("theirs", "ours", "newer"),
    [
        ("2", "1", True),
        ("1", "2", False),
        ("1.10", "1.9", True),
        ("1.0", "1", False),
        ("1", "1.0", False),
        ("1.0.1", "1", True),
        ("x", "1", True),
        (None, "1", False),
        ("1", None, False),
    ],
)
def test_versions_are_compared_number_by_number(
    theirs: str | None,
    ours: str | None,
    newer: bool,  # noqa: FBT001 - a column of a table
) -> None:
    assert is_newer(theirs, ours) is newer


@pytest.mark.parametrize("text", ["", ".", "1.", "v1", "1.2.3.4.5", "-1", "1e3", "٣", "1234567890"])
def test_what_is_no_version(text: str) -> None:
    assert not is_version(text)
