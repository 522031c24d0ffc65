"""`forebay relay dead redrive` and `purge`, on a relay that runs and on the folder of one that doesn't."""

import asyncio
import json
import stat
from pathlib import Path
from typing import Any

import pytest

from forebay.app.cli import main
from forebay.deliver.control import CONTROL, QueueControl, ask_control
from forebay.deliver.dead_letters import LetterChoice
from forebay.deliver.queue_settings import SendQueueSettings
from forebay.deliver.redrive import LetterJob
from forebay.deliver.storage import open_send_queue
from forebay.model import SystemClock, Unavailable
from tests.chaos.relay_parts import RelayProcess, make_body
from tests.integration.relay.disk_rig import OnDisk, on_disk
from tests.servers.destination import DestinationServer, answer, answers

REFUSED = answers(answer(400, b"out of order"))
TAKEN = answers(answer(200))


async def cli(capsys: pytest.CaptureFixture[str], *words: str, status: int = 0) -> Any:
    """Run a command beside the relay, and return its document."""
    assert await asyncio.to_thread(main, ["relay", "dead", *words, "--json"]) == status
    return json.loads(capsys.readouterr().out)


async def buried(rig: OnDisk, count: int) -> None:
    (delivery,) = rig.relay.deliveries
    while delivery.queue.dead_count < count or delivery.queue.size:
        await delivery.queue._next_round()


async def until(server: DestinationServer, count: int) -> None:
    while len(server.received) < count:
        server.arrived.clear()
        await server.arrived.wait()


async def test_a_running_relay_sends_again_what_it_gave_up(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with DestinationServer(REFUSED) as server, on_disk(tmp_path, server.url) as rig:
        await rig.push("a", "b", "c")
        await buried(rig, 3)
        listed = await cli(capsys, "--data", str(tmp_path))
        (name,) = {row["destination"] for row in listed}
        chosen = [row["id"] for row in listed][1]
        dry = await cli(capsys, "redrive", "--all", "--dry-run", "--data", str(tmp_path))
        assert dry["dry_run"]
        assert dry["ids"] == {name: [row["id"] for row in listed]}
        server.behaviour = TAKEN
        done = await cli(capsys, "redrive", chosen, "--data", str(tmp_path))
        assert done["ids"] == {name: [chosen]}
        await until(server, 4)
        assert server.bodies[3] in server.bodies[:3]
        done = await cli(capsys, "redrive", "--reason", "answered 400", "--data", str(tmp_path))
        assert len(done["ids"][name]) == 2
        await until(server, 6)
        assert sorted(server.bodies[3:]) == sorted(make_body(one, 100) for one in "abc")
        assert await cli(capsys, "--data", str(tmp_path)) == []


async def test_a_request_that_is_given_up_again_keeps_its_id(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with DestinationServer(REFUSED) as server, on_disk(tmp_path, server.url) as rig:
        await rig.push("a", "b")
        await buried(rig, 2)
        before = {row["id"] for row in await cli(capsys, "--data", str(tmp_path))}
        await cli(capsys, "redrive", "--all", "--data", str(tmp_path))
        await until(server, 4)
        await buried(rig, 2)
        assert {row["id"] for row in await cli(capsys, "--data", str(tmp_path))} == before


async def test_a_stopped_relay_sends_it_when_it_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with DestinationServer(REFUSED) as server:
        async with on_disk(tmp_path, server.url) as rig:
            await rig.push("a", "b", "c")
            await buried(rig, 3)
            letters = await cli(capsys, "--data", str(tmp_path))
        chosen = letters[0]["id"]
        # An option before the verb counts as well as one behind it.
        purged = await cli(capsys, "--data", str(tmp_path), "purge", chosen, "--yes")
        assert list(purged["ids"].values()) == [[chosen]]
        redriven = await cli(capsys, "redrive", "--all", "--data", str(tmp_path))
        assert len(*redriven["ids"].values()) == 2
        assert await cli(capsys, "--data", str(tmp_path)) == []
        server.behaviour = TAKEN
        async with on_disk(tmp_path, server.url):
            await until(server, 5)
        assert len({*server.bodies[3:]}) == 2


async def test_a_relay_of_its_own_process_is_asked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with (
        DestinationServer(REFUSED) as server,
        RelayProcess(tmp_path, [server.url]) as relay,
    ):
        reader, writer = await asyncio.open_connection("127.0.0.1", relay.port)
        writer.write(b"POST /x HTTP/1.1\r\nContent-Length: 1\r\n\r\nx")
        await reader.readuntil(b"\r\n\r\n")
        writer.close()
        while not await cli(capsys, "--data", str(tmp_path)):
            pass
        server.behaviour = TAKEN
        await cli(capsys, "redrive", "--all", "--data", str(tmp_path))
        await until(server, 2)
        assert server.bodies == [b"x", b"x"]


async def test_a_destination_can_be_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async with DestinationServer(REFUSED) as server, on_disk(tmp_path, server.url) as rig:
        await rig.push("a")
        await buried(rig, 1)
        words = ["purge", "--all", "--yes", "--data", str(tmp_path), "--destination"]
        assert await asyncio.to_thread(main, ["relay", "dead", *words, "other"]) == 3
        assert "known: 127.0.0.1" in capsys.readouterr().err
        (row,) = await cli(capsys, "--data", str(tmp_path))
        name = row["destination"]
        assert (await cli(capsys, *words, name))["ids"] == {name: ["0"]}
        await buried(rig, 0)
        assert rig.relay.deliveries[0].queue.dead_count == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        pytest.param(["redrive"], "--reason TEXT or --all", id="nothing-said"),
        pytest.param(["redrive", "7", "--all"], "give one of them", id="both-said"),
        pytest.param(["purge", "--all"], "add --yes", id="not-agreed"),
    ],
)
def test_what_isnt_said_is_asked_for(
    words: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["relay", "dead", *words, "--data", str(tmp_path)]) == 3
    assert said in capsys.readouterr().err


def test_people_are_told_what_was_done(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["relay", "dead", "redrive", "--all", "--data", str(tmp_path)]) == 0
    assert "0 dead letters redriven" in capsys.readouterr().err


async def test_a_folder_that_another_program_has_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    queue = await open_send_queue(tmp_path / "host-1", SendQueueSettings(), clock=SystemClock().now)
    found = await cli(capsys, "redrive", "--all", "--data", str(tmp_path), status=1)
    assert "can't be asked" in found["problems"]["host-1"]
    await queue.close()


async def test_only_the_owner_may_use_the_socket_which_may_be_deep_in_folders(tmp_path: Path) -> None:
    folder = tmp_path / ("deep" * 20) / ("deeper" * 20)
    queue = await open_send_queue(folder, SendQueueSettings(), clock=SystemClock().now)
    (folder / CONTROL).write_bytes(b"left by one that was killed")
    control = QueueControl(queue, folder)
    await control.start()
    mode = (await asyncio.to_thread((folder / CONTROL).stat)).st_mode
    assert stat.S_ISSOCK(mode)
    assert stat.S_IMODE(mode) == 0o600
    job = LetterJob(verb="purge", choice=LetterChoice(reason="none"))
    assert [step async for step in ask_control(folder, job)] == []
    await control.stop()
    assert not (folder / CONTROL).exists()
    with pytest.raises(Unavailable, match="can't be asked"):
        await anext(ask_control(folder, job))
    await queue.close()


async def test_an_id_that_no_letter_has_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "one" / "dead").mkdir(parents=True)
    words = ["relay", "dead", "redrive", "5", "abc", "--data", str(tmp_path)]
    assert await asyncio.to_thread(main, words) == 1
    assert "there is no dead letter '5', 'abc'; see `forebay relay dead`" in capsys.readouterr().err
