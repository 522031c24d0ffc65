"""`forebay deliver`, the section `deliver` of a server, and `forebay destinations`, as a user has them."""

import asyncio
import json
import signal
import sys
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import forebay
from forebay.deliver.tester import DestinationTester
from tests.integration.http_wire import scrape
from tests.integration.work.steps import until
from tests.servers import ForebayServer
from tests.servers.destination import DestinationServer, Received, answer, answers
from tests.servers.forebay import environment
from tests.servers.process import free_port

# The commands are processes with loops of their own.
pytestmark = pytest.mark.asyncio(loop_factories=["uvloop"])

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


async def command(*arguments: str, status: int = 0) -> str:
    """Run a command while the destinations of this process go on; what it prints."""
    pipe = asyncio.subprocess.PIPE
    running = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "forebay.app.cli", *arguments, stdout=pipe, stderr=pipe, env=environment()
    )
    printed, said = await asyncio.wait_for(running.communicate(), 100)
    assert running.returncode == status, (printed + said).decode()
    return (printed + said).decode() if status else printed.decode()


def page(url: str) -> str:
    """What stands at an address, as text."""
    asked = urllib.request.Request(url, headers={"Accept": "text/plain"})
    with urllib.request.urlopen(asked, timeout=60) as answered:
        return str(answered.read().decode())


@asynccontextmanager
async def started(*arguments: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run a command until the end of the block at most."""
    running = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "forebay.app.cli", *arguments, env=environment()
    )
    try:
        yield running
    finally:
        if running.returncode is None:
            running.kill()
            await running.wait()


async def test_a_queue_is_delivered_by_a_process_of_its_own_and_a_signal_ends_it(tmp_path: Path) -> None:
    secrets = tmp_path / "secrets"
    secrets.write_text(f"{SECRET}\n\n{SECRET}\n")
    with ForebayServer() as server:
        async with forebay.open(server.url) as store, DestinationServer() as target:
            await store.create_queue("jobs")
            await store.put_task("jobs", *(b'{"n":%d}' % number for number in range(50)))
            flags = ("--to", target.url, "--body", "json", "--batch", "10", "--header", "X-Team=blue")
            more = ("--secrets-file", str(secrets), "--store", server.url, "--concurrency", "2")
            port = free_port()
            shown = ("--metrics", f"127.0.0.1:{port}")
            async with started("deliver", "jobs", *flags, *more, *shown) as running:
                await until(lambda: sum(body.count(b"n") for body in target.bodies) == 50, "all arrived")
                numbers = await asyncio.to_thread(page, f"http://127.0.0.1:{port}/metrics")
                assert 'forebay_delivery_breaker_state{destination="127.0.0.1",state="closed"} 1.0' in numbers
                running.send_signal(signal.SIGTERM)
                assert await asyncio.wait_for(running.wait(), 100) == 0
            (books,) = (await store.ledger(queue="jobs")).queues
            assert books.groups[0].done == 50
            got = target.received[0]
            assert got.headers["x-team"] == "blue"
            assert len(got.headers["webhook-signature"].split(" ")) == 2


async def test_what_is_wrong_with_flags_is_said_at_once() -> None:
    assert "--to" in await command("deliver", "jobs", "--to", "nowhere", status=3)
    said = await command("deliver", "jobs", "--to", "http://a", "--concurrency", "0", "--rate", "x", status=3)
    assert "--concurrency" in said
    assert "--rate" in said
    said = await command("deliver", "jobs", "--to", "http://a/", "--secrets-file", "/no/such", status=3)
    assert "/no/such can't be read" in said


async def test_a_server_delivers_its_queues_and_commands_look_after_destinations() -> None:
    gate = asyncio.Event()

    async def slow(_: Received, writer: asyncio.StreamWriter) -> None:
        await gate.wait()
        writer.write(answer())

    async with DestinationServer(slow) as target:
        section = {
            "hooks": {
                "queue": "jobs",
                "group": "hooks",
                "destination": {"url": target.url, "allow_private": True},
            }
        }
        with ForebayServer(sections={"deliver": section}) as server:
            async with forebay.open(server.url) as store:
                await store.create_queue("jobs")
                await store.put_task("jobs", b"one")
                await asyncio.wait_for(target.arrived.wait(), 60)
                await command("destinations", "pause", "hooks", "--reason", "test", "--store", server.url)
                gate.set()
                (row,) = json.loads(await command("destinations", "list", "--json", "--store", server.url))
                assert (row["name"], row["pause"]["reason"]) == ("hooks", "test")
                shown = await command("destinations", "list", "--store", server.url)
                assert "paused" in shown
                numbers = await asyncio.to_thread(scrape, server.port)
                assert 'forebay_delivery_in_hand{destination="hooks"}' in numbers
                assert 'forebay_delivery_paused{destination="hooks"}' in numbers
                said = await command("destinations", "pause", "hoks", "--store", server.url, status=3)
                assert "known: hooks" in said
                # A test reaches a destination that is paused: that is when somebody wants to know.
                shown = await command("destinations", "test", "hooks", "--store", server.url)
                assert shown == "delivered: 200\n"
                assert b"forebay.test" in target.bodies[-1]
                assert isinstance(store, DestinationTester)
                assert (await store.test_destination("hooks")).is_delivered
                await command("destinations", "resume", "hooks", "--store", server.url)
                await store.put_task("jobs", b"two")
                await until(lambda: b"two" in target.bodies, "it goes on")
            assert server.stop() == 0, server.tail()


async def test_only_a_server_or_a_file_knows_how_to_reach_a_destination(tmp_path: Path) -> None:
    said = await command("destinations", "test", "hooks", "--store", f"sqlite:///{tmp_path}/q.db", status=3)
    assert "--config" in said


async def test_a_destination_is_tested_by_its_name_in_the_configuration(tmp_path: Path) -> None:
    async with DestinationServer(answers(answer(200, b"thanks"), answer(401, b"who are you"))) as target:
        file = tmp_path / "forebay.yaml"
        entry: dict[str, Any] = {"queue": "jobs"}
        entry["destination"] = {"url": target.url, "allow_private": True, "signing_secrets": [SECRET]}
        file.write_text(json.dumps({"deliver": {"hooks": entry}}))
        assert "delivered: 200\nthanks" in await command(
            "destinations", "test", "hooks", "--config", str(file)
        )
        failed = await command("destinations", "test", "hooks", "--config", str(file), status=1)
        assert "failed: the destination answered 401 Unauthorized\nwho are you" in failed
        assert target.received[0].headers["webhook-id"].startswith("test_")
        said = await command("destinations", "test", "hoks", "--config", str(file), status=3)
        assert "known in `deliver`: hooks" in said
