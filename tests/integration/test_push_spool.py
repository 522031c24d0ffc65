"""`forebay push --spool`: lines are taken while the server is down, and reach it with the next command."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from forebay.client import SyncClient
from tests.servers import ForebayServer
from tests.servers.forebay import environment
from tests.servers.process import free_port


def forebay(*arguments: str, given: str = "", cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "forebay.app.cli", *arguments],
        input=given, capture_output=True, text=True, timeout=60, check=False, env=environment(), cwd=cwd,
    )  # fmt: skip


def payloads(url: str) -> list[str]:
    with SyncClient(url) as client:
        blocks = client.read("orders")
    return [message.payload.decode() for stored in blocks for message in stored.decode()]


@pytest.mark.parametrize("way", ["push", "replay"])
def test_lines_are_kept_while_the_server_is_down_and_delivered_by_the_next_command(
    way: str, tmp_path: Path
) -> None:
    server = ForebayServer()
    store = ("--store", server.url)
    try:
        first = forebay("push", "orders", "--spool", "spool", *store, given="a\nb\n", cwd=tmp_path)
        assert first.returncode == 0, first.stderr
        assert "2 messages are in orders" in first.stderr
        assert "2 of them in or by way of spool" in first.stderr
        assert "2 wait in spool for the server" in first.stderr
        assert f"forebay spool replay spool --store {server.url}" in first.stderr
        second = forebay("push", "orders", "--spool", "spool", "--json", *store, given="c\n", cwd=tmp_path)
        told = json.loads(second.stdout)
        assert (told["pushed"], told["spooled"], told["waiting"], told["refused"]) == (1, 1, 3, 0)
        assert list((tmp_path / "spool").glob("failover_*.buf")) != []
        server.start()
        if way == "push":
            third = forebay("push", "orders", "--spool", "spool", "--json", *store, given="d\n", cwd=tmp_path)
            assert json.loads(third.stdout)["waiting"] == 0, third.stderr
            assert payloads(server.url) == ["a", "b", "c", "d"]
        else:
            third = forebay("spool", "replay", "spool", *store, cwd=tmp_path)
            assert payloads(server.url) == ["a", "b", "c"], third.stderr
        assert third.returncode == 0
        assert list((tmp_path / "spool").glob("failover_*.buf*")) == []
    finally:
        server.close()


def test_objects_of_several_partitions_are_spooled_and_what_is_refused_later_is_a_finding(
    tmp_path: Path,
) -> None:
    server = ForebayServer(limits={"body_bytes_max": 1 << 20}, sections={"limits": {"message_bytes_max": 10}})
    objects = "".join(
        json.dumps({"payload": "x" * size, "partition": partition}) + "\n"
        for size, partition in [(1, "a"), (2, "b"), (30, "b"), (3, "a")]
    )
    arguments = ("push", "orders", "--objects", "--spool", "spool", "--store", server.url)
    try:
        first = forebay(*arguments, given=objects, cwd=tmp_path)
        assert first.returncode == 0, first.stderr
        assert "4 wait in spool" in first.stderr
        server.start()
        second = forebay(*arguments, cwd=tmp_path)
        assert second.returncode == 1, second.stderr
        assert "1 were refused, and are kept in spool/failed" in second.stderr
        assert sorted(payloads(server.url)) == ["x", "xx", "xxx"]
    finally:
        server.close()


def test_a_spool_is_for_a_server_only(tmp_path: Path) -> None:
    run = forebay(
        "push", "orders", "--spool", "spool", "--store", "sqlite:///x.db", given="a\n", cwd=tmp_path
    )
    assert run.returncode == 3
    assert "a spool is for when a server is away" in run.stderr
    assert not (tmp_path / "spool").exists()


def test_without_a_spool_a_server_that_is_away_is_named(tmp_path: Path) -> None:
    run = forebay("push", "orders", "--store", f"http://127.0.0.1:{free_port()}", given="a\n", cwd=tmp_path)
    assert run.returncode == 3
    assert "there is no Forebay server" in run.stderr
