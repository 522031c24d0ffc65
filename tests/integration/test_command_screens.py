"""Commands on a real terminal: what is on the screen, what keys do, how it ends."""

import asyncio
import re
from pathlib import Path

import pytest

from forebay.app.opening import open_embedded
from tests.integration.terminal import Terminal
from tests.servers import FaultProxy, ForebayServer, Verdict


@pytest.fixture
def store_url(tmp_path: Path) -> str:
    """The address of a log that has a queue `orders` with 7 messages, 2 of them dead."""

    async def make() -> None:
        async with open_embedded(f"sqlite:///{tmp_path / 'screens.db'}") as store:
            await store.create_queue("orders")
            await store.put_task("orders", *[b"%d" % n for n in range(7)])
            await store.bury(await store.get_task("orders", 2), "broken")

    asyncio.run(make())
    return f"sqlite:///{tmp_path / 'screens.db'}"


async def put(url: str, count: int) -> None:
    async with open_embedded(url) as store:
        await store.put_task("orders", *[b"x"] * count)


def row(text: str) -> list[str]:
    """The row of the queue `orders`."""
    found = re.search(r"^ *orders .*$", text, re.MULTILINE)
    return found[0].split() if found else []


def test_top_shows_queues_live_and_q_ends_it(tmp_path: Path, store_url: str) -> None:
    with Terminal(["top", "--store", store_url, "--interval", "500ms"], tmp_path) as terminal:
        # Rows come cell by cell, and so are waited for whole.
        text = terminal.wait_for(lambda text: row(text)[3:7] == ["5", "0", "0", "2"])
        for column in (
            "queue",
            "in/s",
            "out/s",
            "ready",
            "leased",
            "delayed",
            "dead",
            "oldest",
            "last minute",
        ):
            assert column in text
        assert terminal.modes_now() != terminal.modes
        asyncio.run(put(store_url, 1000))
        text = terminal.wait_for(
            lambda text: row(text)[3:4] == ["1,005"] and row(text)[1] != "0" and "█" in row(text)[-1]
        )
        assert float(row(text)[1].replace(",", "")) > 10
        terminal.type(b"xq")
        assert terminal.end() == 0
        assert terminal.modes_now() == terminal.modes


def test_an_interrupt_ends_top_and_leaves_the_terminal_as_it_was(tmp_path: Path, store_url: str) -> None:
    with Terminal(["top", "--store", store_url], tmp_path) as terminal:
        terminal.wait_for("orders")
        terminal.type(b"\x03")
        assert terminal.end() == 130
        assert terminal.modes_now() == terminal.modes
        assert "Traceback" not in terminal.text


def test_top_on_a_narrow_screen_keeps_one_line_a_queue(tmp_path: Path, store_url: str) -> None:
    with Terminal(["top", "--store", store_url], tmp_path, columns=80, lines=12) as terminal:
        text = terminal.wait_for("q quits")
        assert row(text)[3:7] == ["5", "0", "0", "2"]
        assert len([line for line in terminal.lines if line]) <= 6
        terminal.type(b"q")
        assert terminal.end() == 0


async def test_push_shows_a_bar_with_rate_and_ends_full(
    tmp_path: Path, forebay_server: ForebayServer
) -> None:
    file = tmp_path / "many"
    file.write_bytes(b"".join(b'{"order": %d}\n' % n for n in range(60_000)))
    pushes = 0

    def hold_in_the_middle(chunk: bytes) -> Verdict:
        nonlocal pushes
        pushes += chunk.count(b"POST ")
        if pushes == 60:  # of 120
            proxy.blackhole()
        return Verdict.FORWARD

    async with FaultProxy(forebay_server.port) as proxy:
        proxy.on_client_bytes(hold_in_the_middle)
        url = f"http://127.0.0.1:{proxy.port}"
        with Terminal(["push", "bar", str(file), "--batch", "500", "--store", url], tmp_path) as terminal:
            half = r"[45]\d% [\d,]+ messages, [\d,]+/s"
            text = await asyncio.to_thread(terminal.wait_for, lambda text: re.search(half, text))
            assert "━" in text
            proxy.heal()
            assert await asyncio.to_thread(terminal.end) == 0
            assert re.search(r"100% 60,000 messages, [\d,]+/s 0:00:00", terminal.text)
            assert "60,000 messages are in bar" in terminal.text


def test_lines_that_are_typed_go_in_and_an_interrupt_says_how_many(tmp_path: Path, store_url: str) -> None:
    with Terminal(["push", "orders", "--store", store_url], tmp_path) as terminal:
        terminal.type(b"one\ntwo\n")
        terminal.wait_for("2 messages,")
        terminal.type(b"three\n")
        terminal.wait_for("3 messages,")
        terminal.type(b"\x03")
        assert terminal.end() == 130
        assert "3 messages are in orders" in terminal.text
        assert "the next is line 4" in terminal.text
        assert "Traceback" not in terminal.text


def test_deleting_a_queue_is_asked_first(tmp_path: Path, store_url: str) -> None:
    for answer, status, said in ((b"n\n", 1, "nothing was changed"), (b"y\n", 0, "queue orders is deleted")):
        with Terminal(["queues", "delete", "orders", "--store", store_url], tmp_path) as terminal:
            terminal.wait_for("Delete queue orders with 7 messages, 7 of them unfinished? [y/N]")
            terminal.type(answer)
            assert terminal.end() == status
            assert said in terminal.text
