"""The commands, as a user types them, on real logs."""

import json
import subprocess
import sys
from pathlib import Path

import asyncpg
import pytest

from forebay import Append, Message, open_log
from forebay.app.opening import DEFAULT_STORE
from tests.conformance.store.rigs import gone_process


def forebay(*arguments: str, cwd: Path, given: str = "") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "forebay.app.cli", *arguments]
    return subprocess.run(
        command, cwd=cwd, input=given, capture_output=True, text=True, timeout=100, check=False
    )


def test_the_demonstration_leaves_a_working_embedded_log(tmp_path: Path) -> None:
    first = forebay("demo", "--messages", "2050", "--json", cwd=tmp_path)
    assert first.returncode == 0, first.stderr
    result = json.loads(first.stdout)
    assert result["messages"] == 2050
    assert result["ledger"] == [
        {
            "queue": "demo", "group": "workers", "accepted": 2050, "spooled": 0, "ready": 0, "delayed": 0,
            "held": 0, "deferred": 0, "answered": 0, "done": 2050, "dead": 0, "purged": 0, "expired": 0,
            "corrupt": 0, "difference": 0,
        }
    ]  # fmt: skip
    assert (tmp_path / "forebay-data" / "forebay.db").exists()
    again = forebay("demo", "--messages", "100", cwd=tmp_path)
    assert again.returncode == 0
    assert "2,150" in again.stdout
    assert "100/100" in again.stderr


async def test_the_demonstration_finishes_what_a_stopped_one_left(tmp_path: Path) -> None:
    async with open_log(f"sqlite:///{tmp_path / 'left.db'}") as log:
        queue = await log.create_queue("demo")
        group = await log.create_group(queue, "workers")
        await log.commit([Append.of(queue, [Message(b"{}")] * 7)])
        await log.claim(group, gone_process())
    run = forebay(
        "demo", "--store", f"sqlite:///{tmp_path / 'left.db'}", "--messages", "3", "--json", cwd=tmp_path
    )
    assert json.loads(run.stdout)["ledger"][0]["done"] == 10


def test_the_ledger_is_a_table_for_people_and_json_for_programs(tmp_path: Path) -> None:
    forebay("demo", "--messages", "10", cwd=tmp_path)
    store = ("--store", DEFAULT_STORE)
    table = forebay("ledger", *store, cwd=tmp_path)
    assert table.returncode == 0
    assert "demo" in table.stdout
    assert "difference" in table.stdout
    (row,) = json.loads(forebay("ledger", *store, "--json", cwd=tmp_path).stdout)
    assert (row["accepted"], row["difference"]) == (10, 0)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["ledger", "--store", "mysql://x"], ["mysql://", "use sqlite:///"]),
        (["ledger", "--store", "nonsense"], ["'nonsense'", "use sqlite:///"]),
        (["ledger", "--store", "sqlite://file.db"], ["names no file", "sqlite:///file.db"]),
        (["ledger", "--store", "sqlite:///no/such/folder/x.db"], ["no/such/folder"]),
        (["upkeep", "--store", "http://127.0.0.1:6632"], ["is a server", "name a log"]),
        (["push", "orders", "no-such-file", "--store", "sqlite:///x.db"], ["no-such-file can't be read"]),
        (["take", "nosuch", "--store", "sqlite:///x.db"], ["there is no queue 'nosuch'"]),
        (["queues", "show", "nosuch", "--store", "sqlite:///x.db"], ["'nosuch'", "queues list"]),
        (["tail", "nosuch", "--store", "sqlite:///x.db"], ["'nosuch'"]),
        (["top", "--interval", "1ms", "--store", "sqlite:///x.db"], ["--interval", "0.5s or more"]),
        (["demo", "--messages", "0"], ["--messages is 0", "1 or more"]),
        (
            ["ledger", "--store", "postgresql://nobody@127.0.0.1:1/x"],
            ["PostgreSQL is away", "see that it runs, and that the address is right"],
        ),
        (
            ["ledger", "--store", "tarantool://127.0.0.1:1"],
            ["Tarantool is away", "see that it runs, and that the address is right"],
        ),
    ],
)
def test_bad_arguments_get_a_clear_error(tmp_path: Path, arguments: list[str], words: list[str]) -> None:
    run = forebay(*arguments, cwd=tmp_path)
    assert run.returncode == 3
    assert run.stderr.startswith("forebay: ")
    assert len(run.stderr.splitlines()) == 1
    for word in words:
        assert word in run.stderr


async def test_upkeep_sweeps_the_inbox_of_postgresql(tmp_path: Path, postgres_dsn: str) -> None:
    assert forebay("demo", "--store", postgres_dsn, "--messages", "200", cwd=tmp_path).returncode == 0
    connection = await asyncpg.connect(postgres_dsn)
    await connection.execute("SELECT forebay.push('demo', '{\"order\": 42}')")
    await connection.close()
    run = forebay("upkeep", "--store", postgres_dsn, "--json", cwd=tmp_path)
    assert json.loads(run.stdout)["swept"] == 1
    (row,) = json.loads(forebay("ledger", "--store", postgres_dsn, "--json", cwd=tmp_path).stdout)
    assert (row["accepted"], row["ready"], row["done"]) == (201, 1, 200)
