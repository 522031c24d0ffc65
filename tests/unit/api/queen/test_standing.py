"""How a message stands, in Queen's words."""

from __future__ import annotations

import pytest

from forebay.api.queen.standing import is_deleted, shown_mode, shown_status, status_of


@pytest.mark.parametrize(
    ("states", "queue_mode", "status"),
    [
        ({"workers": "cold"}, False, "pending"),
        ({"workers": "delayed"}, True, "pending"),
        ({"workers": "leased"}, True, "processing"),
        ({"workers": "done"}, True, "completed"),
        ({"workers": "dead"}, True, "dead_letter"),
        ({"workers": "cold", "g": "done"}, False, "completed"),
        ({"workers": "cold", "g": "done"}, True, "pending"),
        ({"workers": "cold", "g": "done", "h": "warm"}, False, "pending"),
        ({"workers": "cold", "g": "done", "h": "leased"}, False, "processing"),
        ({"workers": "done", "g": "dead"}, True, "dead_letter"),
    ],
)
def test_a_message_stands_as_its_groups_have_it(
    states: dict[str, str], status: str, *, queue_mode: bool
) -> None:
    assert shown_status(states, queue_mode)["status"] == status


def test_groups_that_are_done_are_counted_apart_from_queue_mode() -> None:
    shown = shown_status({"workers": "cold", "g": "done", "h": "dead", "i": "cold"}, has_queue_mode=True)
    assert shown["queueStatus"] == "pending"
    assert shown["busStatus"] == {"consumedBy": 2, "totalGroups": 3}


def test_whatever_ends_otherwise_is_completed() -> None:
    assert {status_of(state) for state in ("done", "purged", "expired", "skipped", "dropped")} == {
        "completed"
    }


@pytest.mark.parametrize(
    ("states", "deleted"),
    [
        ({"workers": "purged", "g": "done"}, True),
        ({"workers": "purged", "g": "cold"}, False),
        ({"workers": "purged", "g": "dead"}, False),
        ({"workers": "done"}, False),
        ({}, False),
    ],
)
def test_a_message_is_deleted_when_somebody_gave_it_up_and_nobody_has_it(
    states: dict[str, str], *, deleted: bool
) -> None:
    assert is_deleted(states) is deleted


def test_modes_are_told_apart() -> None:
    kinds = [shown_mode(*pair)["type"] for pair in ((True, 0), (False, 2), (True, 2), (False, 0))]
    assert kinds == ["queue", "bus", "hybrid", "none"]
