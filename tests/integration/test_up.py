"""`forebay up`: a server and what is configured beside it, started, started again and ended together."""

import os
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

WORKER = """
from forebay.work import Worker, handler

@handler("orders")
def done(task: bytes) -> None:
    with open("seen", "ab") as file:
        file.write(task + b"\\n")

worker = Worker("http://127.0.0.1:1", [done])
"""


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    running: list[subprocess.Popen[str]] = []

    def start(*arguments: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "forebay.app.cli", "up", "--listen", "127.0.0.1:0", *arguments]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("FOREBAY_")}
        environment["FOREBAY_UP_SNAPSHOT"] = "false"
        running.append(
            subprocess.Popen(
                command,
                cwd=tmp_path,
                env=environment,
                text=True,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            )
        )
        return running[-1]

    yield start
    for each in running:
        each.kill()
        each.communicate()


def wait_until(check: Callable[[], bool], seconds: float = 60) -> None:
    until = time.monotonic() + seconds
    while not check():
        assert time.monotonic() < until, "it takes too long"
        threading.Event().wait(0.05)


def address(running: subprocess.Popen[str]) -> str:
    assert running.stdout is not None
    return running.stdout.readline().strip()


def children(process: int) -> dict[str, int]:
    """What it has started, by the first word of the command."""
    listed = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    words = {each: Path(f"/proc/{each}/cmdline").read_bytes().split(b"\0") for each in listed}
    return {line[3].decode(): int(each) for each, line in words.items() if len(line) > 3}


def answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/readyz", timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def test_a_server_that_dies_is_started_again_and_a_signal_ends_it(
    started: Callable[..., subprocess.Popen[str]],
) -> None:
    from tests.servers.process import free_port  # noqa: PLC0415 - a port that is the same again

    running = started("--listen", f"127.0.0.1:{free_port()}")
    url = address(running)
    wait_until(lambda: answers(url))
    os.kill(children(running.pid)["serve"], signal.SIGKILL)
    wait_until(lambda: not answers(url))
    wait_until(lambda: answers(url))
    began = time.monotonic()
    running.send_signal(signal.SIGTERM)
    assert running.wait(20) == 0
    assert time.monotonic() - began < 15
    assert not answers(url)


def test_a_worker_that_is_configured_runs_beside_it(
    started: Callable[..., subprocess.Popen[str]], tmp_path: Path
) -> None:
    from tests.servers.process import free_port  # noqa: PLC0415 - a port that is known before

    (tmp_path / "shop_worker.py").write_text(WORKER)
    numbers = f"127.0.0.1:{free_port()}"
    running = started("--worker", "shop_worker:worker", "--worker-metrics", numbers)
    url = address(running)
    wait_until(lambda: answers(url))
    body = b'[{"payload": "one"}]'
    request = urllib.request.Request(f"{url}/v1/queues/orders/messages", body, method="POST")
    urllib.request.urlopen(request, timeout=10).close()
    wait_until((tmp_path / "seen").exists)
    with urllib.request.urlopen(f"http://{numbers}/metrics", timeout=10) as answer:
        assert b"queue_tasks_in_progress{" in answer.read()
    worker = children(running.pid)["worker"]
    running.send_signal(signal.SIGINT)
    assert running.wait(20) == 0
    assert not Path(f"/proc/{worker}").exists()


def test_flows_that_are_wrong_are_said_before_anything_starts(
    started: Callable[..., subprocess.Popen[str]], tmp_path: Path
) -> None:
    (tmp_path / "flows.yaml").write_text("flows: [{name: a}]")
    running = started("--flows", "flows.yaml")
    said, errors = running.communicate(timeout=60)
    assert (running.returncode, said) == (3, "")
    assert "flows.yaml:1:9: flow 'a' has no type" in errors


def test_what_the_server_refuses_is_the_status_of_all(started: Callable[..., subprocess.Popen[str]]) -> None:
    running = started("--listen", "0.0.0.0:0")
    _, errors = running.communicate(timeout=60)
    assert running.returncode == 3
    assert "forebay: " in errors
