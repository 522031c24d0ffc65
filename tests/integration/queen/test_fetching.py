"""Reading by offset and by what has changed, by plain HTTP: bounds, keys, sealed payloads."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.integration.http_wire import ask
from tests.integration.key_steps import add_key
from tests.integration.queen.calling import Caller
from tests.servers import ForebayServer


@pytest.fixture(scope="module")
def server() -> Iterator[ForebayServer]:
    """Give a server that can seal payloads."""
    with ForebayServer(variables={"QUEEN_ENCRYPTION_KEY": "ab" * 32}) as server:
        yield server


@pytest.fixture
def caller(server: ForebayServer) -> Caller:
    """Give somebody who asks it."""
    return Caller(server)


def _fetch(caller: Caller, *entries: dict[str, Any], **more: Any) -> list[Any]:
    answer: list[Any] = caller.post("/api/v1/fetch", {"entries": entries, **more})["entries"]
    return answer


def test_sealed_payloads_are_read_unsealed(caller: Caller) -> None:
    caller.post("/api/v1/configure", {"queue": "sealed", "options": {"encryptionEnabled": True}})
    caller.push("sealed", {"a": 1})
    (entry,) = _fetch(caller, {"queue": "sealed"})
    assert [record["payload"] for record in entry["records"]] == [{"a": 1}]


def test_an_answer_is_bounded_and_the_first_message_always_comes(caller: Caller) -> None:
    caller.push("large", *["x" * 100_000] * 4, partition="a")
    caller.push("large", "y", partition="b")
    first, second = (
        _fetch(
            caller,
            {"queue": "large", "partition": "a", "maxBytes": 150_000},
            {"queue": "large", "partition": "b"},
            maxBytes=ceiling,
        )
        for ceiling in (10, 1_000_000)
    )
    assert [len(entry["records"]) for entry in first] == [1, 0]
    assert [len(entry["records"]) for entry in second] == [2, 1]


def test_what_can_not_be_read_says_why(caller: Caller) -> None:
    caller.ask("PUT", "/v1/queues/free", {})
    caller.push("there", 1, partition="p")
    entries = _fetch(
        caller,
        {"queue": "nowhere"},
        {"queue": "there", "partition": "other"},
        {"queue": "there", "partition": "p", "offset": 5},
        {"queue": "there", "partition": "p", "offset": -1},
        {"queue": "free"},
    )
    unknown, past = "UNKNOWN_TOPIC_OR_PARTITION", "OFFSET_OUT_OF_RANGE"
    assert [entry["error"] for entry in entries] == [unknown, unknown, past, past, "UNORDERED_QUEUE"]
    assert all(entry["records"] == [] for entry in entries)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("fetch", {}),
        ("fetch", {"entries": [{"queue": "q"}] * 1_025}),
        ("fetch", {"entries": [{"queue": 1}]}),
        ("partitions/changed", {}),
        ("partitions/changed", {"entries": [{"queue": "q"}] * 101}),
        ("partitions/changed", {"entries": [{"queue": "q", "since": "yesterday"}]}),
    ],
)
def test_what_is_asked_wrongly_is_refused(caller: Caller, path: str, body: Any) -> None:
    assert caller.post(f"/api/v1/{path}", body, status=400)["error"]


def test_a_page_of_changes_may_show_nothing_and_leads_on(caller: Caller) -> None:
    for name in ("a", "b", None):
        caller.push("pages", 1, partition=name)
    safe = caller.post("/api/v1/partitions/changed", {"entries": [{"queue": "pages"}]})["safeTime"]
    caller.push("pages", 2, partition="b")
    after, seen, pages = None, list[str](), 0
    while pages == 0 or after is not None:
        entry = {"queue": "pages", "since": safe, "limit": 1, "after": after}
        (page,) = caller.post("/api/v1/partitions/changed", {"entries": [entry]})["entries"]
        seen += [one["name"] for one in page["partitions"]]
        after, pages = page["next"], pages + 1
    assert "b" in seen
    assert "a" not in seen
    assert pages == 4


def test_a_key_for_some_queues_reads_only_these() -> None:
    guarded = ForebayServer()
    key = add_key(guarded.data, "read", queues=("mine/",))
    with guarded:
        for path in ("fetch", "partitions/changed"):
            answers = {
                queue: ask(
                    guarded.port, "POST", f"/api/v1/{path}", {"entries": [{"queue": queue}]}, key.headers
                ).status
                for queue in ("mine/1", "other")
            }
            assert answers == {"mine/1": 200, "other": 403}
