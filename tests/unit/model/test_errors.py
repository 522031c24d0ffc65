"""The error tree: statuses, labels, texts, and the way through pickle."""

import pickle

import pytest

from forebay.model import (
    Conflict,
    Corrupt,
    Forbidden,
    ForebayError,
    Full,
    LeaseLost,
    Misconfigured,
    Rejected,
    TooLarge,
    TooMany,
    Unauthorized,
    Unavailable,
    UnknownGroup,
    UnknownQueue,
)

TREE = [
    (Rejected, 400, "rejected"),
    (Unauthorized, 401, "rejected"),
    (Forbidden, 403, "rejected"),
    (UnknownQueue, 404, "rejected"),
    (UnknownGroup, 404, "rejected"),
    (TooLarge, 413, "rejected"),
    (Unavailable, 503, "unavailable"),
    (TooMany, 429, "unavailable"),
    (Full, 507, "unavailable"),
    (Conflict, 409, "conflict"),
    (LeaseLost, 409, "conflict"),
    (Corrupt, 500, "corrupt"),
    (Misconfigured, None, "misconfigured"),
]


@pytest.mark.parametrize(("kind", "status", "label"), TREE)
def test_each_error_has_one_status_and_the_label_of_its_branch(
    kind: type[ForebayError], status: int | None, label: str
) -> None:
    assert (kind.status, kind.label) == (status, label)


def test_the_five_branches_are_all_there_is() -> None:
    branches = {kind for kind, _, _ in TREE if ForebayError in kind.__bases__}
    assert set(ForebayError.__subclasses__()) == branches
    assert len(branches) == 5


@pytest.mark.parametrize(
    "error",
    [
        Rejected("bad", hint="mend it"),
        TooLarge("too long"),
        Unavailable("down", hint="wait", retry_after_seconds=1.5),
        LeaseLost("gone"),
        Corrupt("damaged", hint="look", queue="orders", first=5, last=9),
        Misconfigured("no such file", hint="make it", key="file"),
        Unauthorized("no valid key", hint="show one", reason="expired"),
        Forbidden("not yours"),
        TooMany("too often", retry_after_seconds=0.25),
        Full("no space left", hint="free some", retry_after_seconds=1.0),
    ],
)
def test_errors_survive_pickling_with_all_they_carry(error: ForebayError) -> None:
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is type(error)
    assert vars(copy) == vars(error)
    assert str(copy) == str(error)


def test_the_text_is_the_message_and_then_the_hint() -> None:
    assert str(Rejected("size is '3X'", hint="write it as 3Mi")) == "size is '3X'; write it as 3Mi"
    assert str(Rejected("size is '3X'")) == "size is '3X'"


def test_corrupt_says_where_also_when_told_later() -> None:
    error = Corrupt("checksum does not match", hint="restore it")
    assert str(error) == "checksum does not match; restore it"
    error.queue, error.first, error.last = "orders", 5, 9
    assert str(error) == "checksum does not match in queue 'orders' at messages 5 to 9; restore it"
