"""`forebay snapshot` as people run it: published, shown, compared, ended by a signal."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from urllib.request import urlopen

import pytest

from forebay.log.values import Append
from forebay.model import Message
from tests.servers.process import free_port
from tests.spark.queues import Shelf, shelf_at

FOREBAY = [sys.executable, "-m", "forebay.app.cli"]
LONG_SECONDS = 600.0


def environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("FOREBAY_")}


def wait_until(check: Callable[[], bool], seconds: float = LONG_SECONDS) -> None:
    until = time.monotonic() + seconds
    while not check():
        assert time.monotonic() < until, "it takes too long"
        threading.Event().wait(0.2)


def snapshot(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [*FOREBAY, "snapshot", *arguments, "--data", "data"]
    return subprocess.run(
        command,
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=LONG_SECONDS,
        check=False,
    )


def fill(shelf: Shelf) -> None:
    queue = shelf.queue("shop.orders")
    shelf(shelf.log.create_group(queue, "mail"))
    shelf(shelf.log.commit([Append.of(queue, [Message(b"x", headers={"source": "web"})] * 4)]))


@pytest.mark.timeout(900)  # Java is started twice, and many commands are run
def test_rich_series_are_published_shown_and_compared(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    with shelf_at(f"sqlite:///{tmp_path / 'data' / 'forebay.db'}") as shelf:
        fill(shelf)
    assert snapshot(tmp_path, "show").returncode == 1
    port = free_port()
    command = [*FOREBAY, "snapshot", "run", "--data", "data", "--metrics", f"127.0.0.1:{port}"]
    with (tmp_path / "said").open("wb") as said:
        running = subprocess.Popen(command, cwd=tmp_path, env=environment(), stdout=said, stderr=said)
    try:
        wait_until((tmp_path / "data" / "snapshot" / "rich" / "current").exists)
        found = json.loads(snapshot(tmp_path, "show", "--rich", "--json").stdout)
        assert found["meta"]["source"] == "spark"
        families = {family["name"]: family for family in found["document"]["families"]}
        assert families["forebay_event_queue"]["series"] == [[["shop", "web", "ready"], 4.0]]
        with urlopen(f"http://127.0.0.1:{port}/metrics") as page:
            assert "forebay_fold_rounds_total" in page.read().decode()
        second = snapshot(tmp_path, "run")
        assert second.returncode == 3
        assert "another process uses the checkpoint folder" in second.stderr
    finally:
        running.send_signal(signal.SIGTERM)
        assert running.wait(60) == 0
    compared = snapshot(tmp_path, "shadow", "--json")
    assert compared.returncode == 0, compared.stderr
    assert json.loads(compared.stdout)["differences"] == []
