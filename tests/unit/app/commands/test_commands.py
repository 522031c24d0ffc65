"""Commands on a store that answers as it is told: what they ask, print, retry and refuse."""

import json
import socket
from pathlib import Path
from typing import Any, cast

import pytest

from forebay.app.cli import main
from forebay.app.commands import pushing
from forebay.app.commands.opened import shown_url
from forebay.app.commands.queues import parse_settings
from forebay.app.commands.tailing import find_time
from forebay.app.commands.top import _look, _Watch
from forebay.app.opening import open_embedded, open_store
from forebay.client import Client
from forebay.model import ManualClock, Message, Misconfigured, Rejected, Unavailable
from forebay.store.seam import Store
from tests.unit.app.commands.stub import FIRST, StubStore


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> StubStore:
    """Put a stub in the place of every store that a command opens."""
    stub = StubStore()
    monkeypatch.setattr("forebay.app.commands.opened.open_store", lambda *_, **__: stub)
    monkeypatch.setattr(pushing, "PAUSE_SECONDS", 0.0)
    monkeypatch.setenv("FOREBAY_STORE", "memory://")
    return stub


def lines(tmp_path: Path, *texts: str) -> str:
    """A file of lines."""
    path = tmp_path / "lines"
    path.write_text("".join(f"{text}\n" for text in texts))
    return str(path)


def pushes(store: StubStore) -> list[tuple[Any, ...]]:
    """The pushes that the store was asked for."""
    return [call for call in store.calls if call[0] == "put"]


def test_a_push_is_repeated_under_the_same_id_while_the_store_is_away(
    store: StubStore, tmp_path: Path
) -> None:
    store.failures = [Unavailable("away"), Unavailable("away", retry_after_seconds=0.001)]
    assert main(["push", "orders", lines(tmp_path, "a", "b", "c"), "--batch", "2", "--delay", "5s"]) == 0
    first, second, third, fourth = pushes(store)
    assert first == second == third
    assert first[1:4] == ("orders", (Message(b"a"), Message(b"b")), 5.0)
    assert fourth[2] == (Message(b"c"),)
    assert fourth[4] != first[4]


def test_a_push_that_gives_up_says_how_many_are_in_and_where_to_go_on(
    store: StubStore, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store.failures = [Unavailable("away")]
    assert main(["push", "orders", lines(tmp_path, "a"), "--retry-for", "0", "--store", "memory://"]) == 3
    said = capsys.readouterr().err
    assert "0 messages are in orders" in said
    assert "the next is line 1" in said
    assert "forebay: away" in said


def test_what_the_server_spools_is_counted_without_ids(
    store: StubStore, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store.spooled = {"orders": 1}
    assert main(["push", "orders", lines(tmp_path, "a", "b", "c"), "--batch", "2", "--json"]) == 0
    pushed = json.loads(capsys.readouterr().out)
    assert (pushed["pushed"], pushed["spooled"], pushed["first"], pushed["last"]) == (3, 3, None, None)
    assert main(["push", "orders", lines(tmp_path, "a", "b")]) == 0
    said = capsys.readouterr().err
    assert "2 messages are in orders" in said
    assert "2 of them in the server's spool" in said


def test_objects_of_several_partitions_are_apart_when_nobody_can_say_whether_the_queue_is_ordered(
    store: StubStore, tmp_path: Path
) -> None:
    objects = [json.dumps({"payload": n, "partition": name}) for n, name in enumerate("aba")]
    store.spooled = {"orders": 1}
    assert main(["push", "orders", lines(tmp_path, *objects), "--objects"]) == 0
    assert [[message.partition for message in put[2]] for put in pushes(store)] == [["a", "a"], ["b"]]


def test_queues_and_the_ledger_show_what_is_spooled(
    store: StubStore, capsys: pytest.CaptureFixture[str]
) -> None:
    store.spooled = {"orders": 5, "new": 2}
    assert main(["queues", "list", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [(row["queue"], row["messages"], row["spooled"], row["ready"]) for row in rows] == [
        ("orders", 8, 5, 2),
        ("new", 2, 2, 0),
    ]
    assert main(["queues", "show", "new", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["spooled"] == 2
    assert main(["ledger", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [(row["accepted"], row["spooled"], row["difference"]) for row in rows] == [(8, 5, 0), (2, 2, 0)]


def test_a_rejected_block_is_named_by_its_lines(
    store: StubStore, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store.failures = [Rejected("message 1: payload is odd", hint="mend it")]
    assert main(["push", "orders", lines(tmp_path, "a", "", "b")]) == 3
    assert "forebay: lines 1 to 3: message 1: payload is odd; mend it" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments", [["queues", "purge", "orders"], ["groups", "seek", "orders", "workers", "--to", "latest"]]
)
def test_what_can_t_be_taken_back_needs_yes_where_nobody_can_be_asked(
    store: StubStore, arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 3
    assert "add --yes" in capsys.readouterr().err
    assert [call for call in store.calls if call[-1] is not True] == []
    assert main([*arguments, "--yes"]) == 0
    assert store.calls[-1] in [("purge", "orders", None, False), ("seek", "orders", "workers", "latest")]


def test_a_dry_run_asks_nothing_and_changes_nothing(
    store: StubStore, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["queues", "purge", "orders", "--group", "workers", "--dry-run", "--json"]) == 0
    assert store.calls == [("purge", "orders", "workers", True)]
    assert json.loads(capsys.readouterr().out) == {"skipped": {"workers": 2}, "again": {}, "dry_run": True}


def test_seek_refuses_a_group_that_is_not_there(store: StubStore, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["groups", "seek", "orders", "audit", "--to", "earliest", "--yes"]) == 3
    assert "has no group 'audit'; it has workers" in capsys.readouterr().err
    assert store.calls == []


def test_where_prints_the_whole_path(store: StubStore, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["where", str(FIRST)]) == 0
    shown = capsys.readouterr().out
    for word in ("orders", "b1, 3 messages", "base64:/w==", "leased", "w2", "retried", "timeout"):
        assert word in shown
    assert main(["where", str(FIRST), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["message"] == {"payload": "/w==", "encoding": "base64", "partition": "p"}
    assert found["groups"][0]["history"][0]["outcome"] == "retried"
    assert store.calls == []


def test_a_server_that_is_not_there_is_said_so_at_once_with_what_to_do(
    store: StubStore, capsys: pytest.CaptureFixture[str]
) -> None:
    store.failures = [AssertionError("it was asked")]
    assert main(["ledger", "--store", "http://user:secret@127.0.0.1:1"]) == 3
    said = capsys.readouterr().err
    assert "there is no Forebay server at http://127.0.0.1:1; start one with `forebay serve`" in said
    assert "--store sqlite:///" in said
    assert "secret" not in said


def test_a_server_that_goes_away_is_said_so_too(store: StubStore, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}"

        def leave() -> Unavailable:
            server.close()
            return Unavailable("the connection was lost")

        store.leaving = leave
        assert main(["ledger", "--store", url]) == 3
    assert f"there is no Forebay server at {url}" in capsys.readouterr().err


def test_a_server_that_is_there_but_busy_says_so_itself(
    store: StubStore, capsys: pytest.CaptureFixture[str]
) -> None:
    store.failures = [Unavailable("the server is busy", hint="try again")]
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert main(["ledger", "--store", f"http://127.0.0.1:{server.getsockname()[1]}"]) == 3
    assert capsys.readouterr().err == "forebay: the server is busy; try again\n"


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://me:p@ss@host:5432/db?password=x", "postgresql://host:5432/db"),
        ("sqlite:////data/x@y.db", "sqlite:////data/x@y.db"),
        ("sqlite:///x.db", "sqlite:///x.db"),
        ("http://a:b@[::1]:6632", "http://[::1]:6632"),
        ("memory://", "memory://"),
        ("nonsense", "nonsense"),
    ],
)
def test_an_address_is_shown_without_secrets(url: str, shown: str) -> None:
    assert shown_url(url) == shown


def test_an_http_address_opens_the_client_with_the_key() -> None:
    opened = open_store("http://127.0.0.1:6632", key="k")
    assert isinstance(opened, Client)
    assert opened._caller._headers["Authorization"] == "Bearer k"


def test_what_only_a_log_can_be_told_is_refused_for_a_server() -> None:
    with pytest.raises(Misconfigured, match="its own warm tier"):
        open_store("http://127.0.0.1:6632", warm="valkey://x")


async def test_top_goes_on_when_the_store_is_away_for_a_while(store: StubStore) -> None:
    watch = _Watch(cast("Store", store), 1.0)
    assert await _look(watch) == ""
    store.failures = [Unavailable("the server is away")]
    assert await _look(watch) == "the server is away"
    assert [row.queue for row in watch.rows] == ["orders"]
    assert await _look(watch) == ""


async def test_a_time_is_found_in_a_log_of_many_blocks() -> None:
    clock = ManualClock(1_000_000)
    async with open_embedded("memory://", clock=clock) as store:
        await store.create_queue("orders")
        for size in (3, 1, 4, 1, 5, 9, 2, 6):
            await store.put_task("orders", *[b"x"] * size)
            clock.advance(seconds=1)
        (books,) = (await store.ledger()).queues
        times = [second * 1_000_000 for second in range(10)]
        found = [await find_time(cast("Store", store), "orders", books, time) for time in times]
    assert found == [1, 1, 4, 5, 9, 10, 15, 24, 26, 32]


def test_settings_are_written_as_people_write_them() -> None:
    pairs = [("visibility_seconds", "5m"), ("in_memory_queue_bytes", "1Mi"), ("ordered", "yes")]
    assert parse_settings([*pairs, ("retries_max", "3"), ("expire_seconds", "none")]) == {
        "visibility_seconds": 300.0, "in_memory_queue_bytes": 1 << 20, "ordered": True, "retries_max": 3,
        "expire_seconds": None,
    }  # fmt: skip


def test_labels_are_written_as_json() -> None:
    assert parse_settings([("labels", '{"team": "blue", "none": null}')]) == {
        "labels": {"team": "blue", "none": None}
    }


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("ordred", "yes", "did you mean ordered?"),
        ("zzz", "1", "there are ordered, dedupe_seconds"),
        ("visibility_seconds", "soon", "not a duration"),
        ("retries_max", "many", "give a number"),
        ("labels", "{blue}", "give an object of JSON"),
    ],
)
def test_a_bad_setting_is_named(name: str, value: str, words: str) -> None:
    with pytest.raises(Rejected) as caught:
        parse_settings([(name, value)])
    assert words in str(caught.value)
