"""A running relay is seen by commands."""

import asyncio
import json

import pytest

from forebay.app.cli import main
from forebay.app.commands.relay_status import RelayWatch
from forebay.app.commands.top import screen
from forebay.deliver.failure import of_status
from forebay.model import Unavailable
from tests.integration.relay.rigs import a_relay, post


async def test_a_relay_shows_its_destinations(capsys: pytest.CaptureFixture[str]) -> None:
    async with a_relay(count=2) as rig, await rig.client() as client:
        rig.destinations[1].answer = lambda _: of_status(503)
        client.send(post(), post())
        assert [(await client.answer())[0] for _ in range(2)] == [202, 202]
        await rig.destinations[0].until(2)
        url = f"http://127.0.0.1:{rig.port}"
        assert await asyncio.to_thread(main, ["relay", "status", "--relay", url, "--json"]) == 0
        first, second = json.loads(capsys.readouterr().out)
        assert (first["destination"], first["pushed"], second["size"]) == ("recorder-0", 2, 2)
        assert await asyncio.to_thread(main, ["relay", "status", "--relay", url]) == 0
        assert "recorder-1" in capsys.readouterr().out


async def test_top_has_a_line_for_each_destination() -> None:
    async with a_relay() as rig, await rig.client() as client:
        client.send(post())
        await client.answer()
        watch = RelayWatch([f"http://127.0.0.1:{rig.port}"])
        await watch.look()
        await watch.look()
        (row,) = watch.rows
        assert row.line().startswith("relay recorder-0  in ")
        assert "breaker closed" in row.line()
        assert screen([], None, "", 24, watch.rows) is not None


async def test_a_relay_that_isnt_there_is_said() -> None:
    async with a_relay() as rig:
        port = rig.port
    with pytest.raises(Unavailable, match="no relay answers"):
        await RelayWatch([f"http://127.0.0.1:{port}"]).look()
