"""What a function of rows may return, and what becomes of it."""

from typing import Any

import pytest

pytest.importorskip("pyarrow")

import pyarrow as pa

from forebay.model import Unavailable
from forebay.spark.flows import rowwise
from forebay.spark.flows.halving import DeadRow, TooManyDead

SCHEMA = pa.schema(
    [
        ("seq", pa.int64()),
        ("key", pa.string()),
        ("value", pa.binary()),
        ("headers", pa.map_(pa.string(), pa.string())),
        ("total", pa.float64()),
    ]
)
ROW: dict[str, Any] = {"seq": 7, "key": "k", "value": b"v", "headers": {"a": "b"}}


class Failures:
    """Takes what an accumulator would."""

    def __init__(self) -> None:
        self.value: list[DeadRow] = []

    def add(self, rows: list[DeadRow]) -> None:
        self.value += rows


def run(
    monkeypatch: pytest.MonkeyPatch, call: Any, count: int = 1
) -> tuple[list[dict[str, Any]], list[DeadRow]]:
    monkeypatch.setattr(rowwise, "function", lambda _: call)
    failures = Failures()
    given = [{**ROW, "seq": number, "headers": [("a", "b")], "total": None} for number in range(1, count + 1)]
    batch = pa.RecordBatch.from_pylist(given, schema=SCHEMA)
    mapped = rowwise.Rowwise("act", "m:f", SCHEMA, 3, failures)  # type: ignore[arg-type]  # what is used of it
    return [row for made in mapped([batch]) for row in made.to_pylist()], failures.value


def test_what_is_not_returned_stays_as_it_was() -> None:
    (made,) = rowwise.made_of({"total": 2.5}, ROW, SCHEMA.names)
    assert made == {"seq": 7, "key": "k", "value": b"v", "headers": [("a", "b")], "total": 2.5}


@pytest.mark.parametrize(
    ("value", "payload"), [(b"x", b"x"), ("é", "é".encode()), ({"a": [1]}, b'{"a":[1]}'), (7, b"7")]
)
def test_a_value_is_bytes_text_or_json(value: Any, payload: bytes) -> None:
    (made,) = rowwise.made_of({"value": value}, ROW, SCHEMA.names)
    assert made["value"] == payload


def test_none_leaves_a_row_out_and_several_get_keys_of_their_own() -> None:
    assert rowwise.made_of(None, ROW, SCHEMA.names) == []
    several = rowwise.made_of([{}, {"key": "mine"}, {}], ROW, SCHEMA.names)
    assert [made["key"] for made in several] == ["k-0", "mine", "k-2"]


def test_a_column_that_nobody_knows_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    _, (dead,) = run(monkeypatch, lambda _: {"totl": 1})
    assert dead.error.startswith("RowError: there is no column 'totl'; name it in the action's schema")


def test_a_row_is_tried_again_in_place_before_it_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    tries: list[int] = []

    def shaky(row: dict[str, Any]) -> dict[str, Any]:
        tries.append(row["seq"])
        if row["seq"] == 2 or len(tries) < 3:
            raise ValueError("not now\nnor later")
        return row

    rows, dead = run(monkeypatch, shaky, 3)
    assert [row["seq"] for row in rows] == [1, 3]
    assert dead == [DeadRow(2, "act", "ValueError: not now nor later", 3)]
    assert tries == [1, 1, 1, 2, 2, 2, 3]


def test_one_value_of_a_wrong_type_harms_no_other_row(monkeypatch: pytest.MonkeyPatch) -> None:
    rows, dead = run(monkeypatch, lambda row: {"total": "much" if row["seq"] == 2 else 1.0}, 3)
    assert [row["seq"] for row in rows] == [1, 3]
    assert [row.seq for row in dead] == [2]


def test_when_very_many_rows_fail_the_task_does(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(TooManyDead, match="over 1,000 rows of one batch fail"):
        run(monkeypatch, lambda _: 1 / 0, 1001)


@pytest.mark.parametrize("error", [Unavailable("the log is away"), ImportError("no module 'x'")])
def test_what_is_no_fault_of_a_row_gives_none_up(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def call(_: dict[str, Any]) -> None:
        raise error

    with pytest.raises(type(error)):
        run(monkeypatch, call)
