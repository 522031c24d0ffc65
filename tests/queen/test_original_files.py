"""Files of an original Queen server, taken over on every way, and ours, for its readers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest

from forebay import Client
from forebay.app.cli import main
from forebay.model import format_id, mint
from tests.original_lines import LINES
from tests.queen.packages import package
from tests.queen.steps import until
from tests.queen.wire import Client as Queen
from tests.servers import ForebayServer

NAME: Final = f"failover_{format_id(mint())}.buf"
"""A file of today: transaction ids are remembered from when their push was answered."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Give a folder that an original server left."""
    left = tmp_path / "buffers"
    left.mkdir()
    (left / NAME).write_text(LINES)
    return left


def by_the_server(folder: Path) -> ForebayServer:
    server = ForebayServer(variables={"FILE_BUFFER_DIR": str(folder)})
    server.start()
    return server


def by_the_command(folder: Path) -> ForebayServer:
    server = ForebayServer()
    server.data.mkdir()
    assert main(["spool", "replay", str(folder), "--store", server.store_url]) == 0
    server.start()
    return server


def by_the_command_and_a_server(folder: Path) -> ForebayServer:
    server = ForebayServer()
    server.start()
    assert main(["spool", "replay", str(folder), "--store", server.url]) == 0
    return server


def by_the_command_and_a_server_that_makes_no_queues(folder: Path) -> ForebayServer:
    server = ForebayServer(create_queues=False)
    server.start()
    assert main(["spool", "replay", str(folder), "--store", server.url]) == 0
    return server


def by_the_client(folder: Path) -> ForebayServer:
    server = ForebayServer()
    server.start()

    async def drain() -> None:
        async with Client(server.url, spool=folder) as client:
            assert await client.drain_spool(60)

    asyncio.run(drain())
    return server


WAYS: Final = (
    by_the_server, by_the_command, by_the_command_and_a_server,
    by_the_command_and_a_server_that_makes_no_queues, by_the_client,
)  # fmt: skip


@pytest.fixture(params=WAYS, ids=lambda way: way.__name__)
def taken_over(request: pytest.FixtureRequest, folder: Path) -> Iterator[ForebayServer]:
    """Give a server that has taken the files over."""
    way: Callable[[Path], ForebayServer] = request.param
    server = way(folder)
    try:
        yield server
    finally:
        server.close()


async def test_what_an_original_server_left_is_where_queen_s_clients_look_for_it(
    taken_over: ForebayServer, folder: Path
) -> None:
    await until(lambda: not (folder / NAME).exists(), "the file is replayed")
    async with package("2.6.0").Queen(taken_over.url) as queen:
        orders = await queen.admin.get_queue("orders")
        assert (orders["namespace"], orders["task"]) == ("sales", "process")
        assert sorted(row["name"] for row in orders["partitions"]) == ["customer-123", "customer-456"]
        (first,) = await queen.queue("orders").partition("customer-123").batch(10).wait(False).pop()
        assert (first["data"], first["transactionId"], first["traceId"]) == ({"id": 1}, "tx-1", "trace-1")
        (again,) = await queen.queue("events").push([{"data": "again", "transactionId": "tx-3"}])
        assert again["status"] == "duplicate"
        (login,) = await queen.queue("events").batch(10).wait(False).pop()
        assert (login["data"], login["partition"]) == ({"type": "login"}, "Default")
        events = await queen.admin.get_queue("events")
        assert [row["name"] for row in events["partitions"]] == ["Default"]
        assert (await queen.ack([first, login], True))["success"]


def test_our_lines_say_what_the_original_s_say(folder: Path) -> None:
    (folder / NAME).unlink()
    lines = list(map(json.loads, LINES.splitlines()))
    with ForebayServer(variables={"FILE_BUFFER_DIR": str(folder)}) as server:
        queen = Queen(server)
        for queue, namespace, task in {(line["queue"], line["namespace"], line["task"]) for line in lines}:
            queen.ask("POST", "/api/v1/configure", {"queue": queue, "namespace": namespace, "task": task})
        queen.ask("POST", "/api/v1/system/maintenance", {"enabled": True})
        for line in lines:
            ids = {"transactionId": line["transaction_id"], "traceId": line["trace_id"]}
            item = {key: line[key] for key in ("queue", "partition", "payload")} | ids
            assert queen.ask("POST", "/api/v1/push", {"items": [item]}).json()[0]["status"] == "buffered"
    files = sorted(folder.glob("failover_*"))
    written = [json.loads(line) for path in files for line in path.read_text().splitlines()]
    assert [{key: line[key] for key in lines[0]} for line in written] == lines
