"""Rules on settings, numbers and names of queues."""

import pytest

from forebay.log.registry import (
    LABELS_BYTES_MAX,
    change_settings,
    check_number,
    merge_settings,
    next_number,
    unknown_queue,
)
from forebay.log.values import QueueSettings
from forebay.model import QUEUE_NUMBER_MAX, Conflict, Rejected


def nested(depth: int) -> list[object]:
    """Lists within lists."""
    found: list[object] = []
    for _ in range(depth):
        found = [found]
    return found


def test_no_changes_leave_the_settings_alone() -> None:
    current = QueueSettings(keep_seconds=5.0)
    assert merge_settings(current, None) is current
    assert merge_settings(current, {}) is current


def test_changes_are_merged() -> None:
    merged = merge_settings(QueueSettings(keep_seconds=5.0), {"expire_seconds": 7})
    assert merged == QueueSettings(keep_seconds=5.0, expire_seconds=7.0)
    assert merge_settings(merged, {"expire_seconds": None}).expire_seconds is None


@pytest.mark.parametrize(("key", "near"), [("orderd", "ordered"), ("keep", "keep_seconds")])
def test_an_unknown_setting_names_the_nearest(key: str, near: str) -> None:
    with pytest.raises(Rejected, match=near):
        merge_settings(QueueSettings(), {key: 1})


def test_a_setting_like_no_other_lists_them_all() -> None:
    with pytest.raises(Rejected, match="ordered, dedupe_seconds, keep_seconds, expire_seconds"):
        merge_settings(QueueSettings(), {"zzz": 1})


@pytest.mark.parametrize(
    "changes",
    [
        {"keep_seconds": -1},
        {"keep_seconds": float("inf")},
        {"dedupe_seconds": 1e13},
        {"visibility_seconds": 3_153_600_001},
        {"retries_max": 1 << 31},
        {"in_memory_queue_size": 1 << 63},
        {"dedupe_seconds": float("nan")},
        {"expire_seconds": -0.1},
        {"keep_seconds": None},
        {"ordered": "yes"},
        {"keep_seconds": "5"},
        {"labels": None},
        {"labels": [1]},
        {"labels": {"a": b"bytes"}},
        {"labels": {"a": (1, 2)}},
        {"labels": {"a": {1: 2}}},
        {"labels": {"a": float("nan")}},
        {"labels": {"a": "\ud800"}},
        {"labels": {"a": ["nul\0"]}},
        {"labels": {"nul\0": 1}},
        {"labels": {"a": object()}},
        {"labels": {"a": nested(5_000)}},
    ],
)
def test_a_bad_setting_is_rejected(changes: dict[str, object]) -> None:
    with pytest.raises(Rejected):
        merge_settings(QueueSettings(), changes)


def test_labels_are_replaced_whole() -> None:
    labels = {"a": [1, 2.5, None, True, {"b": "\N{SNOWMAN}"}], "c": "d"}
    merged = merge_settings(QueueSettings(), {"labels": labels})
    assert merged.labels == labels
    assert merge_settings(merged, {"keep_seconds": 1}).labels == labels
    assert merge_settings(merged, {"labels": {"e": 1}}).labels == {"e": 1}


def test_labels_have_a_limit() -> None:
    room = LABELS_BYTES_MAX - len('{"a":""}')
    assert merge_settings(QueueSettings(), {"labels": {"a": "x" * room}}).labels
    with pytest.raises(Rejected, match="16385 bytes of JSON, over 16Ki"):
        merge_settings(QueueSettings(), {"labels": {"a": "x" * (room + 1)}})


def test_order_is_fixed_once_there_is_a_queue() -> None:
    with pytest.raises(Conflict):
        change_settings(QueueSettings(), {"ordered": True})
    assert change_settings(QueueSettings(ordered=True), {"ordered": True}).ordered


def test_numbers_have_a_range() -> None:
    assert [check_number(n) for n in (1, QUEUE_NUMBER_MAX)] == [1, QUEUE_NUMBER_MAX]
    for number in (0, -1, QUEUE_NUMBER_MAX + 1):
        with pytest.raises(Rejected):
            check_number(number)


def test_a_new_queue_follows_the_highest_number() -> None:
    assert next_number(0) == 1
    assert next_number(QUEUE_NUMBER_MAX - 1) == QUEUE_NUMBER_MAX
    with pytest.raises(Rejected):
        next_number(QUEUE_NUMBER_MAX)


def test_an_unknown_queue_names_the_nearest() -> None:
    assert "'orders'" in str(unknown_queue("order", ["invoices", "orders"]))
    assert "create it first" in str(unknown_queue("order", []))
