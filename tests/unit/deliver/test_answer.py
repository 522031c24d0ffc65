"""Answers are parsed as their bytes come, however they are cut."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.deliver.http.answer import AnswerParser, BadAnswerError
from forebay.deliver.values import ANSWER_BYTES_KEPT

HEAD = b"HTTP/1.1 429 Slow\r\nretry-AFTER: 12\r\nTransfer-Encoding: chunked\r\n\r\n"
CHUNKED = HEAD + b"3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"


@given(cuts=st.lists(st.integers(1, len(CHUNKED) - 1), max_size=20))
def test_an_answer_is_the_same_however_it_is_cut(cuts: list[int]) -> None:
    parser = AnswerParser(1_000, 1_000)
    places = [0, *sorted(set(cuts)), len(CHUNKED)]
    for begin, end in pairwise(places):
        assert not parser.is_complete
        parser.feed(CHUNKED[begin:end])
    assert parser.is_complete
    assert (parser.status, parser.retry_after, parser.body) == (429, b"12", b"abcde")
    assert parser.is_kept
    assert not parser.is_dirty


def test_one_parser_takes_one_answer_after_another() -> None:
    parser = AnswerParser(1_000, 1_000)
    for _ in range(3):
        parser.feed(CHUNKED)
        assert (parser.is_complete, parser.body) == (True, b"abcde")
        parser.reset()
        assert (parser.is_complete, parser.has_head, parser.body, parser.retry_after) == (
            False,
            False,
            b"",
            None,
        )


@given(data=st.binary(max_size=500))
def test_no_bytes_do_harm(data: bytes) -> None:
    parser = AnswerParser(100, 100)
    try:
        parser.feed(data)
    except BadAnswerError:
        return
    assert len(parser.body) <= ANSWER_BYTES_KEPT


def test_what_follows_an_answer_makes_it_dirty_and_changes_nothing() -> None:
    parser = AnswerParser(1_000, 1_000)
    parser.feed(CHUNKED + b"HTTP/1.1 200 OK\r\nretry-after: 99\r\nContent-Length: 1\r\n\r\nX")
    assert parser.is_dirty
    assert (parser.status, parser.retry_after, parser.body) == (429, b"12", b"abcde")


def test_garbage_that_follows_an_answer_makes_it_dirty() -> None:
    parser = AnswerParser(1_000, 1_000)
    parser.feed(CHUNKED + b"\x00\x01garbage")
    assert parser.is_dirty
    assert parser.status == 429


def test_a_head_over_its_limit_is_refused() -> None:
    parser = AnswerParser(100, 100)
    with pytest.raises(BadAnswerError, match="head"):
        parser.feed(b"HTTP/1.1 200 OK\r\nX: " + b"y" * 200)


def test_a_body_over_its_limit_is_over() -> None:
    parser = AnswerParser(1_000, 3)
    parser.feed(CHUNKED)
    assert parser.is_over
