"""`forebay spool`, as a user types it, on real folders."""

import asyncio
import json
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from forebay import Append, Settlement, open_log
from forebay.app.cli import main
from forebay.disk import RealDisk
from forebay.failover.outcomes import Settled, entry_of
from forebay.model import Block, Message, bitmap, mint
from forebay.spool.lines import Spooled, SpooledBlock, SpooledSettlement
from forebay.spool.names import Prefix
from forebay.spool.settings import SpoolSettings
from forebay.spool.spool import Spool
from tests.integration.http_wire import ask
from tests.integration.key_steps import KeyForTest, add_key
from tests.integration.terminal import Terminal
from tests.original_lines import LINES
from tests.servers import FaultProxy, ForebayServer, PostgresServer, Verdict, environment

HOURS = SpoolSettings(file_seconds_max=3600.0, events_per_file=100, reserve_bytes=0)


def forebay(*arguments: str | Path, status: int = 0) -> subprocess.CompletedProcess[str]:
    """Run a command, and see that it ends with a status."""
    done = subprocess.run(
        [sys.executable, "-m", "forebay.app.cli", *map(str, arguments)],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == status, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return done


IMPATIENT = """
import functools, sys
import forebay.client
forebay.client.Client = functools.partial(forebay.client.Client, timeout_seconds=2)
from forebay.app.cli import main
sys.exit(main())
"""
"""The command with a client that gives up after two seconds; a user's does after thirty."""


def started(*arguments: str | Path, impatient: bool = False) -> subprocess.Popen[str]:
    """A command that is still running."""
    program = ["-c", IMPATIENT] if impatient else ["-m", "forebay.app.cli"]
    command = [sys.executable, *program, *map(str, arguments)]
    return subprocess.Popen(command, env=environment(), stderr=subprocess.PIPE, text=True)


def said(*arguments: str | Path, status: int = 0) -> Any:
    """What a command says to programs."""
    return json.loads(forebay(*arguments, "--json", status=status).stdout)


def block_of(queue: str, *payloads: bytes, partition: str = "p") -> SpooledBlock:
    return SpooledBlock(queue, Block.of([Message(payload, partition) for payload in payloads]))


async def spooled(folder: Path, entries: Sequence[Spooled], prefix: Prefix = "failover") -> None:
    """Write files as a server does."""
    async with await Spool.open(RealDisk(folder), HOURS) as spool:
        for entry in entries:
            await spool.append([entry], prefix=prefix)


async def left_by_a_dead_server(folder: Path, entries: Sequence[Spooled]) -> None:
    """What a server leaves that dies while it writes: its last file ends in half a line."""
    running = folder.parent / f"{folder.name}-running"
    async with await Spool.open(RealDisk(running), HOURS) as spool:
        for entry in entries:
            await spool.append([entry])
        shutil.copytree(running, folder)
    shutil.rmtree(running)
    (unfinished,) = (name for name in content(folder) if name.endswith(".buf.tmp"))
    append(folder / unfinished, b'{"queue":"orders","partition":"p","payl')


def append(path: Path, data: bytes) -> None:
    """Write at the end of a file."""
    with path.open("ab") as file:
        file.write(data)


def content(folder: Path) -> dict[str, bytes]:
    """All files of a folder."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


async def test_list_shows_all_files_oldest_first_and_what_they_sum_up_to(tmp_path: Path) -> None:
    folder = tmp_path / "spool"
    await spooled(folder, [block_of("orders", b"1", b"2")])
    await spooled(folder, [block_of("events", b"3")], prefix="qos0")
    await spooled(folder, [SpooledSettlement(mint(), b"done")], prefix="settle")
    (folder / "failover_019a0c11-7fe8.buf.tmp").write_text(LINES)
    (folder / "failed" / "failover_019a0c11-7abc.buf").write_text(LINES)
    found = said("spool", "list", folder)
    assert [(row["file"].partition("_")[0], row["state"], row["events"]) for row in found["files"]] == [
        ("failover", "writing", 3),
        ("failover", "finished", 2),
        ("qos0", "finished", 1),
        ("settle", "finished", 1),
        ("failed/failover", "failed", 3),
    ]
    size = sum(path.stat().st_size for path in folder.rglob("*.buf*"))
    assert found["total"] == {"files": 5, "bytes": size, "events": 10}
    assert 0 <= found["files"][1]["age_seconds"] < 1000 < found["files"][0]["age_seconds"]
    lines = forebay("spool", "list", folder).stdout.splitlines()
    assert lines[1].split() == ["file", "state", "bytes", "events", "age"]
    assert lines[3].split()[:2] == ["failover_019a0c11-7fe8.buf.tmp", "writing"]
    assert lines[-1] == f"5 files, 10 events, {size:,} bytes"


async def test_a_spool_with_nothing_in_it_is_fine(tmp_path: Path) -> None:
    await spooled(tmp_path / "spool", [])
    assert said("spool", "list", tmp_path / "spool")["total"]["files"] == 0
    assert forebay("spool", "list", tmp_path / "spool").stdout == "0 files, 0 events, 0 bytes\n"
    assert "all is sound" in forebay("spool", "verify", tmp_path / "spool").stderr
    assert "nothing to repair" in forebay("spool", "repair", tmp_path / "spool").stderr


async def test_verify_changes_nothing_and_tells_damage_by_line_and_repair_mends_it(tmp_path: Path) -> None:
    folder = tmp_path / "spool"
    blocks = [block_of("orders", b"1", b"2"), block_of("events", b"3")]
    await left_by_a_dead_server(folder, [*blocks, SpooledSettlement(mint(), b"done")])
    (folder / "failover_019a0c11-8021.buf").write_text(LINES.replace('"queue":"events"', '"queue:"events"'))
    before = content(folder)
    found = said("spool", "verify", folder, status=1)
    assert content(folder) == before
    original, unfinished = found["files"]
    assert (original["messages"], original["queues"], original["sound"]) == (2, {"orders": 2}, False)
    (fault,) = original["faults"]
    assert (fault["kind"], fault["line"], fault["lines"]) == ("damaged", 3, 1)
    assert (unfinished["messages"], unfinished["blocks"], unfinished["settlements"]) == (3, 2, 1)
    assert (unfinished["queues"], unfinished["sound"], unfinished["unfinished"]) == (
        {"orders": 2, "events": 1}, True, 1,
    )  # fmt: skip
    assert found["damaged"] == 1
    text = forebay("spool", "verify", folder, status=1)
    assert "failover_019a0c11-8021.buf line 3: damaged: " in text.stdout
    assert "nothing in it was acknowledged" in text.stdout
    assert f"1 of the files is damaged; `forebay spool repair {folder}`" in text.stderr

    repaired = said("spool", "repair", folder)
    (recovered,) = repaired["recovered"]
    assert (recovered["events"], recovered["set_aside"]) == (4, 1)
    assert repaired["mended"] == [{"file": "failover_019a0c11-8021.buf", "set_aside": 1}]
    after = said("spool", "verify", folder)
    assert (after["damaged"], sum(row["messages"] for row in after["files"])) == (0, 5)
    assert [(reason["kind"], reason["line"]) for reason in after["set_aside"]] == [
        ("damaged", 3),
        ("torn", 5),
    ]
    shown = forebay("spool", "verify", folder)
    assert "in failed/" in shown.stdout
    assert "5 messages, 1 settlement: all is sound" in shown.stderr
    assert "nothing to repair" in forebay("spool", "repair", folder).stderr


async def test_a_folder_that_a_server_works_on_is_shown_but_not_changed(tmp_path: Path) -> None:
    folder = tmp_path / "spool"
    async with await Spool.open(RealDisk(folder), HOURS) as spool:
        await spool.append([block_of("orders", b"1")])
        assert said("spool", "list", folder)["files"][0]["state"] == "writing"
        assert said("spool", "verify", folder)["damaged"] == 0
        before = content(folder)
        for verb, *options in (["repair"], ["replay", "--store", f"sqlite:///{tmp_path / 'x.db'}"]):
            refused = forebay("spool", verb, folder, *options, status=3).stderr
            assert f"another process uses the spool folder {folder}; end the other one first" in refused
        assert content(folder) == before


def test_what_is_no_spool_is_said_and_left_as_it_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "data" / "spool" / "failed").mkdir(parents=True)
    (tmp_path / "file").touch()
    (tmp_path / "empty").mkdir()
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    expected = {
        "missing": "there is no folder",
        "file": "is no folder; name the folder",
        "empty": "is no spool: no file in it is one of a spool's; a server's is the folder `spool`",
        "data": f"did you mean {tmp_path / 'data' / 'spool'}?",
        "data/spool/failed": f"name the folder around it: {tmp_path / 'data' / 'spool'}",
        "loop": "can't be read: ",
    }
    for verb in ("list", "verify", "repair", "replay"):
        for name, words in expected.items():
            assert main(["spool", verb, str(tmp_path / name)]) == 3
            (line,) = capsys.readouterr().err.splitlines()
            assert line.startswith("forebay: ")
            assert words in line
    assert list((tmp_path / "empty").iterdir()) == []


def test_verify_shows_a_bar_on_a_terminal(tmp_path: Path) -> None:
    folder = tmp_path / "spool"
    folder.mkdir()
    for number in range(20):
        (folder / f"failover_019a0c11-80{number:02d}.buf").write_text(LINES * 1_000)
    with Terminal(["spool", "verify", str(folder)], tmp_path, columns=150, lines=50) as terminal:
        terminal.wait_for("━")
        assert terminal.end() == 0
        assert "60,000 messages" in terminal.text
        assert "100%" in terminal.text


def url_of(path: Path) -> str:
    return f"sqlite:///{path}"


async def payloads(url: str, *queues: str) -> list[list[bytes]]:
    """What is in queues of a log, in order."""
    async with open_log(url) as log:
        found: list[list[bytes]] = []
        for name in queues:
            queue = await log.queue(name)
            found.append([])
            while blocks := await log.read(queue, len(found[-1]) + 1):
                found[-1] += [message.payload for block in blocks for message in block.decode()]
        return found


def orders(first: int, last: int, size: int = 10) -> list[Spooled]:
    """Blocks of numbered messages."""
    return [
        block_of("orders", *(b"%d" % number for number in range(begin, min(begin + size, last))))
        for begin in range(first, last, size)
    ]


def numbers(last: int) -> list[bytes]:
    return [b"%d" % number for number in range(last)]


async def test_a_folder_of_a_dead_server_that_is_replayed_twice_is_written_once(tmp_path: Path) -> None:
    folder, copy, url = tmp_path / "spool", tmp_path / "copy", url_of(tmp_path / "log.db")
    await left_by_a_dead_server(folder, [*orders(0, 250), block_of("events", b"e")])
    await spooled(tmp_path / "other", [block_of("orders", b"quick")], prefix="qos0")
    (quick,) = (tmp_path / "other").glob("qos0_*.buf")
    shutil.copy(quick, folder)
    shutil.copytree(folder, copy)
    first = forebay("spool", "replay", folder, "--store", url)
    assert "was left by a crash; 51 events recovered, 1 piece set aside" in first.stderr
    assert f"252 messages are in {url}" in first.stderr
    assert await payloads(url, "orders", "events") == [[*numbers(250), b"quick"], [b"e"]]
    assert list(folder.glob("*.buf*")) == []
    again = said("spool", "replay", copy, "--store", url)
    assert (again["messages"], again["queues"]) == (252, {"orders": 251, "events": 1})
    assert await payloads(url, "orders", "events") == [[*numbers(250), b"quick"], [b"e"]]
    (orders_row, events_row) = said("ledger", "--store", url)
    assert (orders_row["accepted"], orders_row["difference"], events_row["accepted"]) == (251, 0, 1)
    assert "there was nothing to replay" in forebay("spool", "replay", copy, "--store", url).stderr


async def test_outcomes_of_tasks_go_into_their_log_if_that_is_asked_for(tmp_path: Path) -> None:
    folder, url = tmp_path / "spool", url_of(tmp_path / "log.db")
    async with open_log(url) as log:
        queue = await log.create_queue("orders")
        group = await log.create_group(queue, "workers")
        await log.commit([Append.of(queue, [Message(b"done"), Message(b"left")])])
        (claim,) = (await log.claim(group, "a server")).claims
    settled = Settled((Settlement(
        group=group.number, token=claim.token, first=claim.first, count=claim.count, done=bitmap.of([0], 2),
    ),))  # fmt: skip
    await spooled(folder, [entry_of(settled)], prefix="settle")
    shutil.copytree(folder, tmp_path / "copy")
    left = forebay("spool", "replay", folder, "--store", url, status=1)
    assert "if --store is that log, add --outcomes" in left.stderr
    for name in ("spool", "copy"):
        found = said("spool", "replay", tmp_path / name, "--store", url, "--outcomes")
        assert (found["settlements"], found["late"], found["refused"]) == (1, 0, 0)
    (row,) = said("ledger", "--store", url)
    assert (row["accepted"], row["done"], row["difference"]) == (2, 1, 0)
    served = forebay("spool", "replay", folder, "--store", "http://127.0.0.1:1", "--outcomes", status=3)
    assert "outcomes of tasks can't go through a server; name its log" in served.stderr


async def test_with_keep_the_files_stay_and_can_be_replayed_again(tmp_path: Path) -> None:
    folder, url = tmp_path / "spool", url_of(tmp_path / "log.db")
    await spooled(folder, orders(0, 30))
    before = content(folder)
    for _ in range(2):
        assert said("spool", "replay", folder, "--store", url, "--keep")["messages"] == 30
    assert content(folder) == before
    assert await payloads(url, "orders") == [numbers(30)]


async def test_a_dry_run_says_what_would_be_written_and_changes_nothing(tmp_path: Path) -> None:
    folder, url = tmp_path / "spool", url_of(tmp_path / "log.db")
    await left_by_a_dead_server(folder, [*orders(0, 30), block_of("events", b"e")])
    before = content(folder)
    forebay("queues", "create", "events", "--store", url)
    found = said("spool", "replay", folder, "--store", url, "--dry-run")
    assert (found["messages"], found["queues"]) == (31, {"orders": 30, "events": 1})
    assert (found["missing"], found["dry_run"]) == (["orders"], True)
    refused = forebay("spool", "replay", folder, "--store", url, "--dry-run", "--no-create", status=1)
    assert "would be refused" in refused.stdout
    assert "31 messages and 0 settlements would be replayed; nothing was changed" in refused.stderr
    assert content(folder) == before
    assert [row["queue"] for row in said("queues", "list", "--store", url)] == ["events"]


async def test_what_is_refused_is_set_aside_and_goes_in_once_its_queue_is_there(tmp_path: Path) -> None:
    folder, url = tmp_path / "spool", url_of(tmp_path / "log.db")
    forebay("queues", "create", "orders", "--store", url)
    await spooled(folder, [*orders(0, 10), block_of("events", b"e"), *orders(10, 20)])
    run = forebay("spool", "replay", folder, "--store", url, "--no-create", status=1)
    assert "line 11: refused: there is no queue 'events'" in run.stderr
    assert f"what is not in is in {folder}/failed" in run.stderr
    assert await payloads(url, "orders") == [numbers(20)]
    forebay("queues", "create", "events", "--store", url)
    assert said("spool", "replay", folder, "--store", url, "--no-create")["queues"] == {"events": 1}
    assert await payloads(url, "orders", "events") == [numbers(20), [b"e"]]
    assert said("spool", "verify", folder)["set_aside"] == []


async def test_files_of_the_original_server_go_into_postgresql_once(
    tmp_path: Path, postgres_dsn: str
) -> None:
    folder = tmp_path / "buffers"
    await spooled(folder, orders(0, 20))
    (folder / "failover_019a0c11-8021.buf").write_text(LINES)
    (folder / "failed" / "qos0_019a0c11-7abc.buf").write_text(LINES.replace("tx-", "other-"))
    shutil.copytree(folder, tmp_path / "copy")
    for name in ("buffers", "copy"):
        found = said("spool", "replay", tmp_path / name, "--store", postgres_dsn)
        assert found["queues"] == {"orders": 24, "events": 2}
        assert postgres_dsn not in found["store"]
    original = [b'{"id":1}', b'{"id":2}']
    logins = [b'{"type":"login"}'] * 2
    assert await payloads(postgres_dsn, "orders", "events") == [[*original, *original, *numbers(20)], logins]


@pytest.fixture
def guarded() -> Iterator[tuple[ForebayServer, KeyForTest]]:
    """Give a server, and a key for pushing."""
    server = ForebayServer()
    try:
        key = add_key(server.data, "push", "read")
        server.start()
        yield server, key
    finally:
        server.close()


async def test_a_folder_goes_to_a_server_with_a_key_and_without_one_nothing_is_lost(
    tmp_path: Path, guarded: tuple[ForebayServer, KeyForTest]
) -> None:
    server, key = guarded
    folder = tmp_path / "spool"
    await spooled(folder, orders(0, 50))
    await spooled(folder, [SpooledSettlement(mint(), b"done")], prefix="settle")
    before = content(folder)
    refused = forebay("spool", "replay", folder, "--store", server.url, status=3)
    assert "no valid API key" in refused.stderr.splitlines()[-1]
    assert content(folder) == before
    run = forebay("spool", "replay", folder, "--store", server.url, "--key", key.text, status=1)
    assert "stays where it is: outcomes of tasks are for the log" in run.stderr
    assert [row["state"] for row in said("spool", "list", folder)["files"]] == ["finished"]
    assert await payloads(server.store_url, "orders") == [numbers(50)]


def left(folder: Path) -> int:
    """How many files are still to be replayed."""
    return len(list(folder.glob("*.buf")))


async def held_half_way(proxy: FaultProxy, folder: Path, files: int) -> None:
    """Hold a replay when so many files are left, and return then: it goes no further by itself."""
    held = asyncio.Event()

    def hold(_: bytes) -> Verdict:
        if left(folder) <= files:
            proxy.blackhole()
            held.set()
        return Verdict.FORWARD

    proxy.on_client_bytes(hold)
    async with asyncio.timeout(60):
        await held.wait()


async def test_an_interrupt_says_how_far_it_came_and_running_it_again_goes_on(
    tmp_path: Path, postgres_server: PostgresServer, postgres_dsn: str
) -> None:
    folder, last = tmp_path / "spool", 30_000
    await spooled(folder, orders(0, last, 100))
    async with FaultProxy(postgres_server.port) as proxy:
        url = postgres_dsn.replace(f":{postgres_server.port}/", f":{proxy.port}/")
        with started("spool", "replay", folder, "--store", url) as run:
            assert run.stderr is not None
            await held_half_way(proxy, folder, 290)  # of 300
            run.send_signal(signal.SIGINT)
            proxy.heal()
            said_last = (await asyncio.to_thread(run.stderr.read)).splitlines()[-1]
            assert await asyncio.to_thread(run.wait, 60) == 130
    assert re.search(r"[\d,]+ of 30,000 events were looked at; run it again, and it goes on", said_last)
    files = left(folder)
    assert 0 < files <= 290
    assert said("spool", "replay", folder, "--store", postgres_dsn)["messages"] == files * 100
    assert await payloads(postgres_dsn, "orders") == [numbers(last)]


@pytest.mark.slow
async def test_a_server_that_dies_half_way_is_said_and_running_it_again_goes_on(
    tmp_path: Path, guarded: tuple[ForebayServer, KeyForTest]
) -> None:
    server, key = guarded
    folder, last = tmp_path / "spool", 1_000
    await spooled(folder, orders(0, last, 1))
    async with FaultProxy(server.port) as proxy:
        url = f"http://127.0.0.1:{proxy.port}"
        address = ("--store", url, "--key", key.text)
        with started("spool", "replay", folder, *address, "--retry-for", "0s", impatient=True) as run:
            assert run.stderr is not None
            await held_half_way(proxy, folder, 8)  # of 10
            server.kill()
            await proxy.stop()
            lines = run.stderr.read().splitlines()
            assert run.wait(60) == 3
    assert re.search(r"[\d,]+ of 1,000 events were looked at; run it again, and it goes on", lines[-2])
    assert f"there is no Forebay server at {url}" in lines[-1]
    assert 0 < left(folder) <= 8
    server.start()
    forebay("spool", "replay", folder, "--store", server.url, "--key", key.text)
    assert await payloads(server.store_url, "orders") == [numbers(last)]


async def test_the_disk_of_a_server_that_died_in_an_outage_brings_back_all_that_it_had_acknowledged(
    tmp_path: Path,
) -> None:
    database = PostgresServer("wheel-18")
    with database:
        database.start()
        dsn = database.create_database()
        server = ForebayServer(dsn)
        try:
            server.start()
            push(server, 0)
            database.stop("immediate")
            assert [push(server, number) for number in range(1, 8)] == ["spool"] * 7
            server.kill()
            shutil.copytree(server.data / "spool", tmp_path / "spool")
        finally:
            server.close()
        database.start()
        for _ in range(2):
            found = said("spool", "replay", tmp_path / "spool", "--store", dsn, "--keep")
            assert (found["messages"], found["left"]) == (7, {})
        assert await payloads(dsn, "orders") == [numbers(8)]


def push(server: ForebayServer, number: int) -> str:
    """Push one message; where it is then."""
    answer = ask(server.port, "POST", "/v1/queues/orders/messages", [{"payload": number}])
    assert answer.status == 201, answer
    where: str = answer.json()["durable"]
    return where


async def test_replay_shows_a_bar_on_a_terminal(tmp_path: Path) -> None:
    folder = tmp_path / "spool"
    await spooled(folder, orders(0, 40_000, 10_000))
    url = url_of(tmp_path / "log.db")
    with Terminal(["spool", "replay", str(folder), "--store", url], tmp_path, columns=150) as terminal:
        terminal.wait_for("━")
        assert terminal.end() == 0
        assert re.search(r"replay ━+ 100% 40,000 of 40,000 events, [\d,]+/s", terminal.text)
        assert f"40,000 messages are in {url}" in terminal.text
