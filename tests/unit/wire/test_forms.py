"""Receipts say what is in the log, and what isn't yet."""

import json

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from forebay.log.values import Appended, Where
from forebay.wire.forms import Push, Pushed, PushReceipt, pushed_forms


def told(appended: Appended) -> list[Pushed]:
    """What a client reads."""
    return msgspec.json.decode(msgspec.json.encode(pushed_forms(appended)), type=list[Pushed])


@pytest.mark.parametrize(("where", "status"), [("spool", "spooled"), ("buffered", "buffered")])
@pytest.mark.parametrize("count", [1, 3])
def test_what_is_not_in_the_log_has_no_id(where: Where, status: str, count: int) -> None:
    results = told(Appended(0, count, where=where))
    assert [(result.id, result.status) for result in results] == [(None, status)] * count


def test_what_is_in_the_log_has_one() -> None:
    assert [(result.id, result.status) for result in told(Appended(7, 2))] == [
        ("7", "accepted"),
        ("8", "accepted"),
    ]
    assert [(result.id, result.status) for result in told(Appended(7, 1, {0: 3}))] == [
        ("3", "duplicate"),
        ("7", "accepted"),
    ]


@given(st.integers(1, 1 << 62), st.integers(1, 3_000))
@example(1_000, 1_000)
@example(999, 2)
@example(10**15 - 1, 1_002)
def test_ids_that_follow_each_other_are_written_as_they_are(first: int, count: int) -> None:
    assert [result.id for result in told(Appended(first, count))] == [
        str(id) for id in range(first, first + count)
    ]


def test_a_receipt_says_null_rather_than_nothing() -> None:
    receipt = PushReceipt(block=None, durable="buffered", results=[Pushed(id=None, status="buffered")])
    assert json.loads(msgspec.json.encode(receipt)) == {
        "block": None,
        "durable": "buffered",
        "results": [{"id": None, "status": "buffered"}],
    }


@pytest.mark.parametrize("where", ["log", "spool", "buffered"])
def test_a_push_for_programs_reads_back_as_it_was_written(where: Where) -> None:
    push = Push(None if where == "buffered" else b"0" * 16, where, Appended(0, 2, where=where))
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(push), type=Push) == push
