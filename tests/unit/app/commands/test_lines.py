"""Input is cut into lines in bounded memory, and a bad line is named by its number."""

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.app.commands.lines import Input, Lines, parse_object
from forebay.model import Message, Rejected, TooLarge


@given(data=st.text(alphabet="ab\n\r", max_size=40).map(str.encode), cuts=st.lists(st.integers(0, 40)))
def test_lines_are_the_same_however_the_input_is_cut(data: bytes, cuts: list[int]) -> None:
    lines, found, begin = Lines(), list[tuple[int, bytes]](), 0
    for end in [*sorted(cuts), len(data)]:
        if chunk := data[begin:end]:
            found += lines.feed(chunk)
        begin = max(begin, end)
    found += lines.end()
    whole = [line.removesuffix(b"\r") for line in data.split(b"\n")]
    assert [pair for pair in found if pair[1]] == [(n, line) for n, line in enumerate(whole, 1) if line]


def test_a_line_that_is_too_long_is_refused_before_it_is_whole() -> None:
    lines = Lines(bytes_max=10)
    assert lines.feed(b"0123456789\n012345") == [(1, b"0123456789")]
    with pytest.raises(TooLarge, match="line 2 is longer than 10B"):
        lines.feed(b"67890")


async def test_input_is_read_to_its_end_in_order() -> None:
    reading, writing = os.pipe()
    source = Input(reading)
    os.write(writing, b"one")
    assert await source.chunk() == b"one"
    os.write(writing, b"two")
    assert await source.chunk() == b"two"
    os.close(writing)
    assert await source.chunk() == b""
    os.close(reading)


async def test_input_that_can_t_be_read_is_rejected(tmp_path: object) -> None:
    folder = os.open(str(tmp_path), os.O_RDONLY)
    with pytest.raises(Rejected, match="can't be read"):
        await Input(folder).chunk()
    os.close(folder)


def test_an_object_says_what_it_says_and_the_rest_is_the_default() -> None:
    default = Message(b"", "p", None, {"flow": "a", "x": "1"})
    assert parse_object(1, b'{"payload": {"a": [1, 2]}}', default) == Message(
        b'{"a": [1, 2]}', "p", None, {"flow": "a", "x": "1"}
    )
    line = b'{"payload": "text", "partition": "", "transaction_id": "t", "headers": {"x": "2"}}'
    assert parse_object(1, line, default) == Message(b"text", "", "t", {"flow": "a", "x": "2"})


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (b"{", "line 7: "),
        (b"[1]", "line 7: Expected `object`"),
        (b'{"partition": "p"}', "missing required field `payload`"),
        (b'{"payload": 1, "header": {}}', "unknown field `header`"),
        (b'{"payload": 1, "headers": {"a": 1}}', "headers"),
        (b'{"payload": "x", "encoding": "hex"}', "encoding is 'hex'"),
        (b'{"payload": "!", "encoding": "base64"}', "no base64"),
        (b'{"payload": 5, "encoding": "base64"}', "payload is no string"),
        (b'{"payload": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "nested too deeply"),
        (b'{"payload": "\xff"}', "line 7: "),
        (b'{"payload": "\\ud800"}', "line 7: "),
    ],
)
def test_a_bad_object_is_named_by_its_line(line: bytes, words: str) -> None:
    with pytest.raises(Rejected, match="line 7") as caught:
        parse_object(7, line, Message(b""))
    assert words in str(caught.value)
