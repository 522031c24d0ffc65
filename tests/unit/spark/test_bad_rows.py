"""Rows that can't be messages: each is found, named with its reason, and kept where that is asked for."""

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

from forebay.model import Limits, Message
from forebay.spark.bad_rows import BadRowCount, side_messages
from forebay.spark.publishing import BadRows
from tests.unit.spark.sink_rows import batch, judged

LIMITS = Limits(message_bytes_max=10, headers_bytes_max=20, block_bytes_max=6000)


@pytest.mark.parametrize(
    ("column", "good", "bad", "reason"),
    [
        ("value", b"v", None, "value is null"),
        ("value", b"v", b"v" * 11, "value is 11 bytes, over 10B"),
        ("queue", "plain", None, "queue is null"),
        ("queue", "plain", "plan", "there is no queue 'plan'"),
        ("partition", "p", "p" * 256, "partition is 256 bytes long"),
        ("partition", "p", "a\nb", "control character"),
        ("partition", "p", "a\u0085b", "control character"),
        ("partition", "p", "a\u2028b", "control character"),
        ("key", "k", "", "key is empty"),
        ("key", "k", "k" * 256, "key is 256 bytes long"),
        ("headers", [("a", "b")], [("a", None)], "header 'a' is null"),
        ("headers", [("a", "b")], [("a", "b" * 20)], "headers are 21 bytes, over 20"),
        ("start_time", None, datetime(1969, 1, 1, tzinfo=UTC), "start_time is before 1970"),
    ],
)
def test_a_bad_row_is_named_and_its_neighbours_are_not(column: str, good: Any, bad: Any, reason: str) -> None:
    columns: dict[str, list[Any]] = {"value": [b"v"] * 3, "queue": ["plain"] * 3}
    columns[column] = [good, bad, good]
    _, faults = judged(batch(**columns), limits=LIMITS)
    assert list(faults) == [1]
    assert reason in faults[1]


def test_bytes_that_are_no_text_are_bad_rows() -> None:
    broken = _unchecked([b"k", b"\xff"])
    rows = pa.record_batch([pa.array([b"a", b"b"]), broken], names=["value", "key"])
    _, faults = judged(rows, queue="plain")
    assert faults == {1: "partition or key is not UTF-8"}


def test_headers_that_are_no_text_are_bad_rows() -> None:
    maps = pa.MapArray.from_arrays(
        pa.array([0, 1, 2], pa.int32()), pa.array(["a", "b"]), _unchecked([b"\xff", b"x"])
    )
    rows = pa.record_batch([pa.array([b"a", b"b"]), maps], names=["value", "headers"])
    page, faults = judged(rows, queue="plain")
    assert faults == {0: "headers are not UTF-8"}
    assert [m.headers for m in [*side_messages(page, faults, 0, Limits())]] == [
        {"error": "headers are not UTF-8", "spark_partition": "0", "row": "0"}
    ]


def test_a_good_page_with_empty_columns_has_no_faults() -> None:
    rows = batch(value=[b""], partition=[None], key=[None], headers=[None], start_time=[None])
    assert judged(rows, queue="plain")[1] == {}


def test_what_is_set_aside_says_what_came_and_what_is_wrong_with_it() -> None:
    rows = batch(value=[b"v" * 11, b"v", None], queue=["plain", "plain", None], key=["k", "k", None])
    page, faults = judged(rows, limits=LIMITS)
    assert list(side_messages(page, faults, 7, LIMITS)) == [
        Message(
            b"v" * 10,
            headers={
                "error": "value is 11 bytes, over 10B",
                "spark_partition": "7",
                "row": "0",
                "value_bytes": "11",
                "queue": "plain",
                "key": "k",
            },
        ),
        Message(b"", headers={"error": "value is null", "spark_partition": "7", "row": "2"}),
    ]


def test_an_error_names_the_first_few_and_counts_all() -> None:
    bad = BadRowCount(3)
    bad.add(0, {1: "value is null", 0: "queue is null"})
    bad.add(100, dict.fromkeys(range(10), "value is null"))
    text = str(BadRows.of(bad.count, bad.named))
    assert text.startswith("12 rows can't be messages (Spark partition 3, row 0: queue is null; ")
    assert "Spark partition 3, row 102: value is null; and 7 more)" in text
    assert "badRows" in text


def _unchecked(data: list[bytes]) -> pa.Array:
    """Bytes that claim to be text, as Spark's strings may."""
    array = pa.array(data, pa.binary())
    return pa.Array.from_buffers(pa.string(), len(array), array.buffers())
