"""Messages go through a queue by commands alone, as a user types them, on SQLite."""

import json
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from forebay.wire.leases import parse_lease
from tests.integration.test_commands import forebay


class Commands:
    """The command on one log, in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.store = ("--store", f"sqlite:///{folder / 'log.db'}")

    def run(self, *arguments: str, given: str = "", status: int = 0) -> subprocess.CompletedProcess[str]:
        """Run a command, and see that it ends with a status."""
        done = forebay(*arguments, *self.store, cwd=self.folder, given=given)
        assert done.returncode == status, done.stdout + done.stderr
        return done

    def lines(self, *arguments: str, given: str = "", status: int = 0) -> list[Any]:
        """What a command prints, a JSON value a line."""
        done = self.run(*arguments, given=given, status=status)
        return [json.loads(line) for line in done.stdout.splitlines()]

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """Begin a command that is still running when this returns."""
        command = [sys.executable, "-m", "forebay.app.cli", *arguments, *self.store]
        pipe = subprocess.PIPE
        return subprocess.Popen(command, cwd=self.folder, stdin=pipe, stdout=pipe, stderr=pipe, text=True)


@pytest.fixture
def commands(tmp_path: Path) -> Commands:
    return Commands(tmp_path)


def test_what_is_pushed_is_peeked_taken_and_kept_in_the_log(commands: Commands) -> None:
    (pushed,) = commands.lines("push", "orders", "--json", "--batch", "2", given="a\n\nb\r\nc")
    assert pushed["pushed"] == 3
    assert [m["payload"] for m in commands.lines("peek", "orders", "--json")] == ["a", "b", "c"]
    taken = commands.lines("take", "orders", "--count", "2", "--done", "--wait", "10s")
    assert [task["payload"] for task in taken] == ["a", "b"]
    assert taken[0]["id"] == pushed["first"]
    assert parse_lease(taken[0]["lease"]).first == int(taken[0]["id"])
    assert [task["payload"] for task in commands.lines("take", "orders", "--count", "9", "--done")] == ["c"]
    assert commands.lines("take", "orders") == []
    first = int(pushed["first"])
    ids = [m["id"] for m in commands.lines("tail", "orders", "--json")]
    assert ids == [pushed["first"], str(first + 1), pushed["last"]]
    ((row,),) = commands.lines("ledger", "--json")
    assert (row["done"], row["difference"]) == (3, 0)


def test_tasks_that_are_only_looked_at_go_back_when_there_is_no_server(commands: Commands) -> None:
    commands.run("push", "orders", given="a")
    done = commands.run("take", "orders")
    assert "go back" in done.stderr
    assert [task["payload"] for task in commands.lines("take", "orders", "--done", "--wait", "10s")] == ["a"]


def test_tasks_that_would_be_taken_for_no_time_are_not_taken(commands: Commands) -> None:
    commands.run("push", "orders", given="a")
    refused = commands.run("take", "orders", "--visibility", "0s", status=3)
    assert "a lease of 0.0 seconds; give more than 0" in refused.stderr
    assert [task["payload"] for task in commands.lines("take", "orders", "--done", "--wait", "10s")] == ["a"]


def test_objects_carry_partition_headers_and_transaction_ids(commands: Commands) -> None:
    lines = [
        {"payload": {"a": 1}, "partition": "p", "transaction_id": "t", "headers": {"flow": "f"}},
        {"payload": "/w==", "encoding": "base64"},
    ]
    given = "\n".join(map(json.dumps, lines))
    commands.run("push", "orders", "--objects", "--header", "x=1", "--partition", "q", given=given)
    first, second = commands.lines("tail", "orders", "--json")
    assert (first["payload"], first["partition"], first["transaction_id"]) == ('{"a": 1}', "p", "t")
    assert first["headers"] == {"flow": "f", "x": "1"}
    assert (second["payload"], second["encoding"], second["partition"]) == ("/w==", "base64", "q")


def test_an_ordered_queue_takes_objects_of_many_partitions(commands: Commands) -> None:
    commands.run("queues", "create", "orders", "ordered=yes")
    given = "".join(json.dumps({"payload": n, "partition": "pq"[n % 2]}) + "\n" for n in range(6))
    (pushed,) = commands.lines("push", "orders", "--objects", "--json", given=given)
    assert pushed["pushed"] == 6
    found = commands.lines("tail", "orders", "--json")
    assert [m["payload"] for m in found if m["partition"] == "p"] == ["0", "2", "4"]


def test_a_delayed_push_is_not_handed_out_yet(commands: Commands) -> None:
    commands.run("push", "orders", "--delay", "1h", given="a")
    assert commands.lines("take", "orders") == []


def test_a_whole_file_is_one_message_up_to_the_limit(commands: Commands) -> None:
    file = commands.folder / "file"
    file.write_bytes(b"one\ntwo\n")
    commands.run("push", "files", "file", "--raw")
    assert [m["payload"] for m in commands.lines("tail", "files", "--json")] == ["one\ntwo\n"]
    file.write_bytes(bytes((1 << 20) + 1))
    done = commands.run("push", "files", "file", "--raw", status=3)
    assert "longer than a message may be, 1Mi" in done.stderr
    assert len(commands.lines("tail", "files", "--json")) == 1


def test_a_bad_line_keeps_what_went_in_before_it_and_is_named(commands: Commands) -> None:
    given = '{"payload": 1}\n{"payload": 2}\n{"payloat": 3}\n'
    done = commands.run("push", "orders", "--objects", "--batch", "1", given=given, status=3)
    assert "line 3: Object contains unknown field `payloat`" in done.stderr
    assert "1 message is in orders" in done.stderr
    assert "the next is line 2" in done.stderr
    assert len(commands.lines("tail", "orders", "--json")) == 1


def test_slow_input_goes_in_as_it_comes_and_an_interrupt_counts_it(commands: Commands) -> None:
    commands.run("queues", "create", "orders")
    pushing, tailing = commands.start("push", "orders"), commands.start("tail", "orders", "-f", "--json")
    assert pushing.stdin is not None
    assert tailing.stdout is not None
    for text in ("first", "second", "third"):
        pushing.stdin.write(f"{text}\n")
        pushing.stdin.flush()
        assert json.loads(tailing.stdout.readline())["payload"] == text
    for process in (pushing, tailing):
        process.send_signal(signal.SIGINT)
    _, said = pushing.communicate(timeout=60)
    assert pushing.returncode == 130
    # Of the third it may not know yet: others see it before the answer comes.
    counted = re.search(r"(\d) messages are in orders .* next is line (\d)", said)
    assert counted is not None, said
    assert counted.groups() in {("2", "3"), ("3", "4")}
    tailing.communicate(timeout=60)
    assert tailing.returncode == 130


def test_a_reader_that_has_had_enough_ends_it_quietly(commands: Commands) -> None:
    commands.run("push", "orders", given="x\n" * 50_000)
    with commands.start("tail", "orders", "--from", "earliest") as tailing:
        assert tailing.stdout is not None
        assert tailing.stderr is not None
        tailing.stdout.readline()
        tailing.stdout.close()
        assert tailing.stderr.read() == ""
        assert tailing.wait(60) == 0


def test_tail_begins_where_it_is_told(commands: Commands) -> None:
    commands.run("push", "orders", given="a\nb\nc")
    (*_, last) = commands.lines("tail", "orders", "--json")
    commands.run("push", "orders", given="d\ne")
    assert [m["payload"] for m in commands.lines("tail", "orders", "-n", "2", "--json")] == ["d", "e"]
    assert len(commands.lines("tail", "orders", "--from", "earliest", "--json")) == 5
    assert commands.lines("tail", "orders", "--from", "latest", "--json") == []
    assert len(commands.lines("tail", "orders", "--from", "1h", "--json")) == 5
    (*_, newest) = commands.lines("tail", "orders", "--json")
    moment = newest["appended_at"]
    assert last["appended_at"] < moment
    stamp = f"{moment // 1_000_000}"
    done = commands.run("tail", "orders", "--from", stamp)  # a plain number is seconds ago: long before all
    assert len(done.stdout.splitlines()) == 5


def test_a_command_works_the_tasks_and_its_failure_brings_them_back(commands: Commands) -> None:
    commands.run("push", "orders", given="good\nbad\n")
    work = 'read word; echo "$word $FOREBAY_ATTEMPTS" >> worked; test "$word" = good'
    done = commands.run("take", "orders", "--count", "2", "--done-with", work, status=1)
    assert "the command ended with 1" in done.stderr
    assert (commands.folder / "worked").read_text() == "good 0\nbad 0\n"
    (task,) = commands.lines("take", "orders", "--count", "2", "--done", "--wait", "10s")
    assert (task["payload"], task["attempts"]) == ("bad", 1)


def test_queues_are_made_changed_shown_and_deleted(commands: Commands) -> None:
    (made,) = commands.lines("queues", "create", "orders", "visibility_seconds=5m", "--json")
    assert made["settings"]["visibility_seconds"] == 300
    again = commands.run("queues", "create", "orders", "visibility_seconds=6m")
    assert "was there already" in again.stderr
    (changed,) = commands.lines("queues", "set", "orders", "retries_max=3", "--json")
    assert (changed["settings"]["retries_max"], changed["settings"]["visibility_seconds"]) == (3, 300)
    commands.run("push", "orders", given="a\nb")
    assert "yes" in commands.run("queues", "pause", "orders").stdout
    assert commands.lines("take", "orders") == []
    commands.run("queues", "resume", "orders")
    ((row,),) = commands.lines("queues", "list", "--json")
    assert (row["queue"], row["ready"], row["paused"]) == ("orders", 2, False)
    assert "visibility_seconds" in commands.run("queues", "show", "orders").stdout
    assert "did you mean 'orders'?" in commands.run("queues", "show", "order", status=3).stderr
    assert "would delete queue orders" in commands.run("queues", "delete", "orders", "--dry-run").stderr
    assert "add --yes" in commands.run("queues", "delete", "orders", status=3).stderr
    commands.run("queues", "delete", "orders", "--yes")
    assert "there is no queue" in commands.run("queues", "list").stderr


def test_groups_are_made_listed_and_deleted(commands: Commands) -> None:
    commands.run("push", "orders", given="a")
    commands.run("groups", "create", "orders", "audit", "--start", "latest")
    commands.run("push", "orders", given="b")
    (task,) = commands.lines("take", "orders", "--group", "audit", "--done", "--count", "5")
    assert task["payload"] == "b"
    (rows,) = commands.lines("groups", "list", "orders", "--json")
    assert [(row["group"], row["ready"], row["done"]) for row in rows] == [("workers", 2, 0), ("audit", 0, 1)]
    assert "add --yes" in commands.run("groups", "delete", "orders", "audit", status=3).stderr
    commands.run("groups", "delete", "orders", "audit", "--yes")
    (rows,) = commands.lines("groups", "list", "orders", "--json")
    assert len(rows) == 1


def test_dead_letters_are_redriven_purged_and_both_undone(commands: Commands) -> None:
    commands.run("queues", "create", "orders", "retries_max=0")
    commands.run("push", "orders", given="a\nb\nc")
    commands.run("take", "orders", "--count", "3", "--done-with", "exit 1", status=1)
    (letters,) = commands.lines("dead", "list", "orders", "--json")
    assert [letter["payload"] for letter in letters] == ["a", "b", "c"]
    first = letters[0]["id"]
    assert "payload" in commands.run("dead", "list", "orders").stdout
    assert "give ids" in commands.run("dead", "redrive", "orders", status=3).stderr
    dry = commands.run("dead", "redrive", "orders", "--all", "--dry-run")
    assert "3 dead letters would be redriven" in dry.stderr
    assert dry.stdout == f"{letters[0]['id']}-{letters[2]['id']}\n"

    redriven = commands.run("dead", "redrive", "orders", first)
    undoing = redriven.stderr.partition("to undo it: forebay ")[2].split()
    commands.run(*undoing)
    (letters,) = commands.lines("dead", "list", "orders", "--json")
    assert len(letters) == 3

    assert "add --yes" in commands.run("dead", "purge", "orders", "--all", status=3).stderr
    purged = commands.run("dead", "purge", "orders", "--all", "--yes", "--json")
    assert commands.lines("dead", "list", "orders", "--json") == [[]]
    (commands.folder / "undo.json").write_text(purged.stdout)
    commands.run("dead", "undo", "orders", "--ids", "undo.json")
    (letters,) = commands.lines("dead", "list", "orders", "--json")
    assert len(letters) == 3
    numbers = [int(id) for id in json.loads(purged.stdout)["ids"]]
    (commands.folder / "numbers.json").write_text(json.dumps({"ids": numbers}))
    assert commands.lines("dead", "undo", "orders", "--ids", "numbers.json", "--json", status=1) == [
        {"ids": [], "left": 3}
    ]
    (commands.folder / "bad").write_text("12\nnonsense\n")
    assert "bad: " in commands.run("dead", "undo", "orders", "--ids", "bad", status=3).stderr


def test_what_waits_is_purged_and_a_seek_brings_it_back(commands: Commands) -> None:
    commands.run("push", "orders", given="a\nb")
    (dry,) = commands.lines("queues", "purge", "orders", "--dry-run", "--json")
    assert (dry["skipped"], dry["dry_run"]) == ({"workers": 2}, True)
    assert "skip 2 messages of queue orders" in commands.run("queues", "purge", "orders", status=3).stderr
    commands.run("queues", "purge", "orders", "--yes")
    assert commands.lines("take", "orders") == []
    (moved,) = commands.lines("groups", "seek", "orders", "workers", "--to", "earliest", "--yes", "--json")
    assert moved["again"] == {"workers": 2}
    taken = commands.lines("take", "orders", "--count", "5", "--done", "--wait", "10s")
    assert [task["payload"] for task in taken] == ["a", "b"]


def test_where_says_what_became_of_a_message(commands: Commands) -> None:
    (pushed,) = commands.lines("push", "orders", "--json", given="a")
    commands.lines("take", "orders", "--done")
    (found,) = commands.lines("where", pushed["first"], "--json")
    assert (found["id"], found["block"]["first"]) == (pushed["first"], pushed["first"])
    assert (found["queue"], found["message"]) == ("orders", {"payload": "a"})
    (group,) = found["groups"]
    assert (group["group"], group["state"]) == ("workers", "done")
    assert "done" in commands.run("where", pushed["first"]).stdout
    assert "forebay: " in commands.run("where", str(int(pushed["first"]) + 7), status=3).stderr


def test_top_looks_once_for_programs(commands: Commands) -> None:
    commands.run("push", "orders", given="a\nb")
    (found,) = commands.lines("top", "--json", "--interval", "500ms")
    (row,) = found["queues"]
    assert (row["queue"], row["ready"], row["in_per_second"]) == ("orders", 2, 0)
    assert row["oldest_seconds"] > 0
    assert "orders" in commands.run("top", "--once", "--interval", "500ms").stdout


@pytest.mark.parametrize(
    "arguments",
    [
        ["push"],
        ["push", "orders", "--raw", "--lines"],
        ["take", "orders", "--wait", "soon"],
        ["queues", "set", "orders"],
        ["groups", "seek", "orders", "workers"],
        ["where", "x"],
        ["completion", "tcsh"],
        ["dead", "redrive", "orders", "1-2-3"],
    ],
)
def test_a_wrong_usage_is_status_2_and_says_what(commands: Commands, arguments: list[str]) -> None:
    done = forebay(*arguments, cwd=commands.folder)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("forebay ")
    assert "; see `forebay" in done.stderr
