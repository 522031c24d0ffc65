"""Commands on a real server: with its keys, without it, in a pipe and on a terminal."""

import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.integration.http_wire import Wire, ask
from tests.integration.key_steps import KeyForTest, add_key
from tests.integration.terminal import Terminal
from tests.servers import ForebayServer, environment


class Shell:
    """The command on one server, with a key in its environment."""

    def __init__(self, server: ForebayServer, key: KeyForTest, folder: Path) -> None:
        self.server = server
        self.folder = folder
        self.key = key
        self.variables = {**environment(), "FOREBAY_STORE": server.url, "FOREBAY_KEY": key.text}

    def run(
        self, *arguments: str, given: str = "", status: int = 0, **variables: str
    ) -> subprocess.CompletedProcess[str]:
        """Run a command, and see that it ends with a status."""
        done = subprocess.run(
            [sys.executable, "-m", "forebay.app.cli", *arguments],
            cwd=self.folder,
            env={**self.variables, **variables},
            input=given,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == status, done.stdout + done.stderr
        return done

    def lines(self, *arguments: str, given: str = "", status: int = 0) -> list[Any]:
        """What a command prints, a JSON value a line."""
        return [
            json.loads(line) for line in self.run(*arguments, given=given, status=status).stdout.splitlines()
        ]


@pytest.fixture(scope="module")
def guarded() -> Iterator[tuple[ForebayServer, KeyForTest]]:
    """Give a server, and a key for all of it."""
    server = ForebayServer()
    key = add_key(server.data, "admin")
    with server:
        yield server, key


@pytest.fixture
def shell(guarded: tuple[ForebayServer, KeyForTest], tmp_path: Path) -> Shell:
    return Shell(*guarded, tmp_path)


def test_commands_show_the_key_of_the_flag_or_of_the_environment(shell: Shell) -> None:
    shell.run("push", "orders", given="a")
    refused = shell.run("queues", "list", status=3, FOREBAY_KEY="")
    assert refused.stderr.startswith("forebay: no valid API key came with the request")
    reading = add_key(shell.server.data, "read")
    wrong = "fbk_" + "x" * 8 + "_" + "y" * 43
    with Wire(shell.server.port) as wire:
        while wire.ask("GET", "/v1/queues", headers=reading.headers).status != 200:
            pass  # the server notices a new key within a second
    assert "orders" in shell.run("queues", "list", "--key", reading.text, FOREBAY_KEY=wrong).stdout
    lacking = shell.run("push", "orders", "--key", reading.text, given="b", status=3)
    assert "lacks the scope push" in lacking.stderr
    assert reading.text not in lacking.stderr
    assert shell.key.text not in refused.stderr


def test_without_a_server_it_is_said_how_to_start_one(shell: Shell) -> None:
    server = ForebayServer()
    try:
        for arguments in (["queues", "list"], ["take", "orders"], ["top", "--once"]):
            said = shell.run(*arguments, status=3, FOREBAY_STORE=server.url).stderr
            assert f"there is no Forebay server at {server.url}" in said
            assert "forebay serve" in said
    finally:
        server.close()


def test_what_take_prints_settles_the_task_over_http(shell: Shell) -> None:
    (pushed,) = shell.lines("push", "printed", "--json", given='{"order": 1}')
    (task,) = shell.lines("take", "printed", "--wait", "10s")
    assert (task["id"], task["payload"]) == (pushed["first"], '{"order": 1}')
    body = {"tasks": [{"id": task["id"], "lease": task["lease"]}]}
    settled = ask(shell.server.port, "POST", "/v1/done", body, shell.key.headers)
    assert settled.json() == {"settled": 1, "durable": "log"}
    (found,) = shell.lines("where", task["id"], "--json")
    assert (found["id"], found["groups"][0]["state"]) == (task["id"], "done")
    over_http = ask(shell.server.port, "GET", f"/v1/messages/{task['id']}", headers=shell.key.headers).json()
    assert (found["block"], found["groups"]) == (over_http["block"], over_http["groups"])


def test_a_push_that_was_interrupted_goes_on_where_it_says(shell: Shell) -> None:
    command = [sys.executable, "-m", "forebay.app.cli", "push", "resumed", "--batch", "10"]
    pipe = subprocess.PIPE
    lines = [f"line {number}\n" for number in range(1, 101)]
    following = [
        sys.executable,
        "-m",
        "forebay.app.cli",
        "tail",
        "resumed",
        "--from",
        "earliest",
        "-f",
        "--json",
    ]
    shell.run("queues", "create", "resumed")
    with ExitStack() as started:
        pushing = started.enter_context(
            subprocess.Popen(command, env=shell.variables, stdin=pipe, stderr=pipe, text=True)
        )
        tailing = started.enter_context(
            subprocess.Popen(following, env=shell.variables, stdout=pipe, text=True)
        )
        started.callback(pushing.kill)  # else whatever goes wrong here would wait for them for ever
        started.callback(tailing.kill)
        assert pushing.stdin is not None
        assert pushing.stderr is not None
        assert tailing.stdout is not None
        pushing.stdin.writelines(lines[:37])
        pushing.stdin.flush()
        seen = [json.loads(tailing.stdout.readline())["payload"] for _ in range(37)]
        pushing.send_signal(signal.SIGINT)
        said = pushing.stderr.read()
        assert pushing.wait(30) == 130
        following_line = int(re.findall(r"the next is line (\d+)", said)[0])
        rest = lines[following_line - 1 :]
        shell.run("push", "resumed", given="".join(rest))
        seen += [json.loads(tailing.stdout.readline())["payload"] for _ in rest]
        tailing.send_signal(signal.SIGINT)
        assert tailing.wait(30) == 130
    assert 28 <= following_line <= 38  # others see the last batch before its answer comes
    assert [f"{text}\n" for text in seen] == [*lines[:37], *rest]


def test_dead_letters_are_worked_over_http(shell: Shell) -> None:
    shell.run("queues", "create", "failing", "retries_max=0")
    shell.run("push", "failing", given="a\nb\nc")
    shell.run("take", "failing", "--count", "3", "--wait", "10s", "--done-with", "exit 1", status=1)
    (letters,) = shell.lines("dead", "list", "failing", "--json")
    ids = [letter["id"] for letter in letters]
    assert [letter["payload"] for letter in letters] == ["a", "b", "c"]
    (redriven,) = shell.lines("dead", "redrive", "failing", ids[0], "--json")
    assert redriven["ids"] == ids[:1]
    (purged,) = shell.lines("dead", "purge", "failing", "--all", "--yes", "--json")
    assert purged["ids"] == ids[1:]
    (shell.folder / "purged.json").write_text(json.dumps(purged))
    (undone,) = shell.lines("dead", "undo", "failing", "--ids", "purged.json", "--json")
    assert undone == {"ids": ids[1:], "left": 0}
    (task,) = shell.lines("take", "failing", "--count", "3", "--wait", "10s", "--done")
    assert task["id"] == ids[0]


def test_top_follows_a_server_live_and_says_when_it_is_gone(shell: Shell, tmp_path: Path) -> None:
    server = ForebayServer()
    key = add_key(server.data, "read", "push")
    with server:
        push = "/v1/queues/live/messages"
        assert ask(server.port, "POST", push, [{"payload": 1}] * 5, key.headers).status == 201
        arguments = ["top", "--store", server.url, "--key", key.text, "--interval", "500ms"]
        with Terminal(arguments, tmp_path) as terminal:
            terminal.wait_for(lambda text: re.search(r"^ *live +0 +0 +5 ", text, re.MULTILINE))
            assert ask(server.port, "POST", push, [{"payload": 1}] * 995, key.headers).status == 201
            terminal.wait_for(lambda text: re.search(r"^ *live +[1-9]\S* +0 +1,000 ", text, re.MULTILINE))
            server.kill()
            terminal.wait_for("no answer within 5 seconds")
            server.start()
            terminal.wait_for("q quits")
            terminal.type(b"q")
            assert terminal.end() == 0
            assert key.text not in terminal.text
    assert shell.server.running
