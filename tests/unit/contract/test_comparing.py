"""What may change in a contract while tasks are in flight, and what may not: a table."""

import pytest

from forebay.contract import Change, Contract, compare, parse_contract

BASE = {"to": "string", "body": "[]byte", "user_id": "int"}


def contract(
    fields: dict[str, str] | None = None,
    *,
    id: int = 1,
    name: str = "emails",
    version: str = "",
    settings: str = "{}",
    other: bool = False,
) -> Contract:
    listed = ", ".join(f'{{name: {field}, type: "{kind}"}}' for field, kind in (fields or BASE).items())
    more = "  - {id: 9, name: other, fields: [{name: x, type: int}]}\n" if other else ""
    return parse_contract(
        f"version: {version}\nqueues:\n"
        f"  - {{id: {id}, name: {name}, fields: [{listed}], settings: {settings}}}\n{more}"
    )


def renamed(**names: str) -> dict[str, str]:
    return {names.get(field, field): kind for field, kind in BASE.items()}


@pytest.mark.parametrize(
    ("old", "new", "breaks", "messages"),
    [
        (contract(), contract(), False, []),
        (
            contract(),
            contract({**BASE, "urgent": "bool"}),
            False,
            ["queue 'emails': field 'urgent' (bool) is appended"],
        ),
        (
            contract(),
            contract({**BASE, "a": "bool", "b": "int"}),
            False,
            ["queue 'emails': field 'a' (bool) is appended", "queue 'emails': field 'b' (int) is appended"],
        ),
        (
            contract(),
            contract({"to": "string", "user_id": "int", "body": "[]byte"}),
            True,
            ["queue 'emails': the order of the fields was to, body, user_id, and is to, user_id, body"],
        ),
        (
            contract(),
            contract({**BASE, "user_id": "string"}),
            True,
            ["queue 'emails': field 'user_id' was int, and is string"],
        ),
        (
            contract(),
            contract({**BASE, "user_id": "int64"}),
            True,
            ["queue 'emails': field 'user_id' was int, and is int64"],
        ),
        (
            contract(),
            contract({"to": "string", "body": "[]byte"}),
            True,
            ["queue 'emails': field 'user_id' is gone"],
        ),
        (
            contract(),
            contract({"body": "[]byte", "user_id": "int"}),
            True,
            ["queue 'emails': field 'to' is gone"],
        ),
        (
            contract(),
            contract({"cc": "string", **BASE}),
            True,
            ["queue 'emails': field 'cc' is new, and not at the end"],
        ),
        (
            contract(),
            contract(renamed(to="recipient")),
            True,
            [
                "queue 'emails': field 'to' is gone, and 'recipient' is in its place",
                "queue 'emails': field 'recipient' is new, and not at the end",
            ],
        ),
        (
            contract(),
            contract({"to": "string", "body": "[]byte", "urgent": "bool"}),
            True,
            [
                "queue 'emails': field 'user_id' is gone",
                "queue 'emails': field 'urgent' is new, and not at the end",
            ],
        ),
        (contract(), contract(other=True), False, ["queue 'other' is new"]),
        (contract(other=True), contract(), True, ["queue 'other' is gone"]),
        (
            contract(),
            contract(name="mails"),
            True,
            ["queue 'emails' is gone; its id, 1, has queue 'mails' now", "queue 'mails' is new"],
        ),
        (contract(), contract(id=2), True, ["queue 'emails': the id was 1, and is 2"]),
        (contract(), contract(version="1"), False, ["the version is 1, after none"]),
        (contract(version="1"), contract(version="1.1"), False, ["the version is 1.1, after 1"]),
        (contract(version="2"), contract(version="1"), True, ["the version goes back from 2 to 1"]),
        (contract(version="2"), contract(), False, ["the version, 2, is gone"]),
        (
            contract(),
            contract(settings="{batch_size: 5, visibility_seconds: 90}"),
            False,
            [
                "queue 'emails': visibility_seconds was default, and is 90",
                "queue 'emails': batch_size was default, and is 5",
            ],
        ),
        (
            contract(settings="{backoff: {factor: 3}}"),
            contract(settings="{backoff: {factor: 3, jitter: 0}}"),
            False,
            ["queue 'emails': backoff was factor 3, and is factor 3, jitter 0"],
        ),
        (
            contract(),
            contract(settings="{codec: iproto}"),
            True,
            ["queue 'emails': codec was msgpack, and is iproto"],
        ),
        (
            contract(),
            contract(settings="{ordered: true}"),
            True,
            ["queue 'emails': ordered was false, and is true"],
        ),
    ],
)  # fmt: skip
def test_a_change_is_named_and_judged(
    old: Contract,
    new: Contract,
    breaks: bool,  # noqa: FBT001 - a column of a table
    messages: list[str],
) -> None:
    changes = compare(old, new)
    assert [change.message for change in changes] == messages
    assert any(change.breaks for change in changes) is breaks


def test_every_change_that_breaks_says_what_to_do() -> None:
    old = contract(version="2", other=True)
    changed = {"body": "string", "to": "string"}
    new = contract(changed, id=3, version="1", settings="{codec: iproto, ordered: true}")
    broken = [change for change in compare(old, new) if change.breaks]
    assert len(broken) == 8
    assert all(change.hint for change in broken)


def test_a_change_names_its_queue_and_field() -> None:
    (change,) = compare(contract(), contract({**BASE, "user_id": "bool"}))
    assert change == Change(
        message="queue 'emails': field 'user_id' was int, and is bool",
        breaks=True,
        queue="emails",
        field="user_id",
        hint="append a field of the new type",
    )


def test_the_order_of_queues_means_nothing() -> None:
    ours = contract(other=True)
    assert compare(ours, Contract(None, ours.queues[::-1])) == []
