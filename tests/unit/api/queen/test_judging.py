"""Operations on values, judged by what is there."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec import Raw

from forebay.api.queen.judging import Judged, KvOp, Row, judge

NOW = 1_000_000_000


def op(kind: str, key: str = "k", **more: Any) -> KvOp:
    if "value" in more:
        more["value"] = Raw(msgspec.json.encode(more["value"]))
    return KvOp(op=kind, ns="n", key=key, **more)


def row(value: Any = 1, version: int = 5, **more: Any) -> Row:
    return Row(version, NOW - 10, Raw(msgspec.json.encode(value)), **more)


def judged(*ops: KvOp, **rows: Row) -> Judged:
    return judge(ops, [op.key for op in ops], rows, NOW)


def value_of(found: Row) -> Any:
    return msgspec.json.decode(found.value)


def test_what_is_written_is_seen_by_what_comes_after_it() -> None:
    result = judged(op("get"), op("put", value=2), op("get"), k=row(1))
    assert [one.get("found", one.get("applied")) for one in result.results] == [True, True, True]
    assert [bytes(one["value"]) for one in result.results] == [b"1", b"2", b"2"]
    assert value_of(result.written["k"]) == 2


@pytest.mark.parametrize(
    ("kind", "expect", "there", "reason"),
    [
        ("put", 0, True, "exists"),
        ("put", 0, False, None),
        ("put", 5, True, None),
        ("put", 4, True, "version"),
        ("put", 5, False, "absent"),
        ("putIfAbsent", msgspec.UNSET, True, "exists"),
        ("putIfAbsent", msgspec.UNSET, False, None),
        ("delete", msgspec.UNSET, True, None),
        ("delete", msgspec.UNSET, False, "absent"),
        ("delete", 4, True, "version"),
        ("check", 5, True, None),
        ("check", 0, True, "exists"),
        ("check", 0, False, None),
        ("check", 5, False, "absent"),
    ],
)
def test_a_condition_decides(kind: str, expect: Any, there: bool, reason: str | None) -> None:  # noqa: FBT001 - a case
    rows = {"k": row()} if there else {}
    result = judged(op(kind, value=2, expect=expect), **rows)
    assert (result.results[0]["applied"], result.results[0].get("reason")) == (reason is None, reason)
    assert bool(result.written) == (reason is None and kind != "check")
    required = judged(op("put", "other", value=1), op(kind, value=2, expect=expect, required=True), **rows)
    assert (required.failed is not None) == (reason is not None)
    if required.failed is not None:
        assert (required.failed["failedIndex"], required.failed["kvReason"]) == (1, reason)
        assert required.written == {}


def test_what_has_ended_isn_t_there_and_its_versions_go_on() -> None:
    ended = row(expires_at=NOW, version=NOW + 7)
    assert judged(op("get"), k=ended).results[0]["found"] is False
    result = judged(op("putIfAbsent", value=1), k=ended)
    assert result.written["k"].version == NOW + 8
    removed = judged(op("delete"), k=row(version=NOW + 7)).written["k"]
    assert (removed.gone, removed.version) == (True, NOW + 8)
    assert judged(op("put", value=1), k=removed).written["k"].version == NOW + 9


def test_null_is_a_value() -> None:
    written = judged(op("put", value=None)).written["k"]
    kept = msgspec.json.decode(msgspec.json.encode(written), type=Row)
    assert kept.is_there(NOW)
    assert judged(op("get"), k=kept).results[0]["found"] is True


@pytest.mark.parametrize(
    ("before", "delta", "bounds", "after"),
    [
        (None, 1, {}, 1),
        (5, -2, {}, 3),
        (0.1, 0.2, {}, 0.3),
        (9, 1, {"max": 10}, 10),
        (10, 1, {"max": 10}, "limit"),
        (0, -1, {"min": 0}, "limit"),
        ("text", 1, {}, "type"),
        (None, 1e308, {"max": 5}, "limit"),
    ],
)
def test_an_increment_is_exact_and_within_its_bounds(
    before: Any, delta: Any, bounds: Any, after: Any
) -> None:
    rows = {} if before is None else {"k": row(before, expires_at=NOW + 50)}
    result = judged(op("incr", delta=delta, ttl_seconds=9, **bounds), **rows)
    if isinstance(after, str):
        assert (result.results[0]["reason"], result.written) == (after, {})
    else:
        assert value_of(result.written["k"]) == after
        assert result.written["k"].expires_at == (NOW + 9_000_000 if before is None else NOW + 50)


def test_a_number_that_would_fill_the_memory_is_none() -> None:
    huge = Row(1, NOW, Raw(b"1e999999999"))
    assert judged(op("incr", delta=1, forever=True), k=huge).results[0]["reason"] == "type"
