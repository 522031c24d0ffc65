"""`forebay worker` as a process: signals, its numbers, its settings, and what it says when it can't."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import forebay
from tests.integration.pages import get
from tests.integration.work.steps import counts
from tests.integration.work.victim import QUEUE
from tests.integration.work.victims import Victim
from tests.servers import ForebayServer
from tests.servers.forebay import environment
from tests.servers.process import free_port


@pytest.fixture
def server() -> Iterator[ForebayServer]:
    """Give a server of the test's own, since all victims work the same queue."""
    with ForebayServer() as made:
        yield made


@pytest.fixture
def victim(server: ForebayServer, tmp_path: Path) -> Iterator[Callable[..., Victim]]:
    """Give a way to start workers; they end with the test."""
    made: list[Victim] = []

    def start(*flags: str, stuck_at: int = 0, stubborn: bool = False) -> Victim:
        made.append(Victim(server.url, tmp_path, *flags, stuck_at=stuck_at, stubborn=stubborn))
        return made[-1]

    yield start
    for one in made:
        one.kill()


async def test_a_signal_ends_it_in_good_order(server: ForebayServer, victim: Callable[..., Victim]) -> None:
    worker = victim()
    async with forebay.open(server.url) as store:
        await store.create_queue(QUEUE)
        await store.put_task(QUEUE, *[b"x"] * 100)
        worker.until(lambda: len([n for n in worker.notes() if n.what == "end"]) == 100, "all tasks handled")
        worker.signal(signal.SIGTERM)
        assert worker.wait() == 0, worker.tail()
        found = await counts(store, QUEUE)
        assert (found.done, found.handed, found.difference) == (100, 0, 0)
    assert '"stopped"' in worker.tail()


async def test_a_second_signal_hurries_and_what_was_in_hand_goes_back_uncounted(
    server: ForebayServer, victim: Callable[..., Victim]
) -> None:
    async with forebay.open(server.url) as store:
        await store.create_queue(QUEUE)
        await store.put_task(QUEUE, *[b"x"] * 5)
        worker = victim(stuck_at=2)
        worker.until(lambda: any(n.what == "stuck" for n in worker.notes()), "stuck")
        worker.signal(signal.SIGTERM)
        worker.until(lambda: '"stopping"' in worker.tail(), "the first signal came")
        worker.signal(signal.SIGTERM)
        assert worker.wait(15) == 0, worker.tail()
        back = await store.get_task(QUEUE, 10)
        assert {task.attempts for task in back} == {0}
        assert len(back) + (await counts(store, QUEUE)).done == 5


async def test_a_handler_that_will_not_be_cancelled_does_not_keep_the_process(
    server: ForebayServer, victim: Callable[..., Victim]
) -> None:
    async with forebay.open(server.url) as store:
        await store.create_queue(QUEUE)
        await store.put_task(QUEUE, b"x", b"y")
        worker = victim(stuck_at=1, stubborn=True)
        worker.until(lambda: any(n.what == "stuck" for n in worker.notes()), "stuck")
        worker.signal(signal.SIGTERM)
        worker.until(lambda: '"stopping"' in worker.tail(), "the first signal came")
        worker.signal(signal.SIGTERM)
        assert worker.wait(15) == 0, worker.tail()
        (back,) = await store.get_task(QUEUE, wait_seconds=10)  # when its lease ended
        assert back.attempts == 1


async def test_it_shows_its_numbers_and_whether_it_is_well(
    server: ForebayServer, victim: Callable[..., Victim]
) -> None:
    page = f"127.0.0.1:{free_port()}"
    worker = victim("--metrics", page)
    worker.until(lambda: get(f"http://{page}/healthz") == (200, "ok\n"), "it is well")
    async with forebay.open(server.url) as store:
        await store.put_task(QUEUE, *[b"x"] * 10)
    line = f'forebay_worker_tasks_processed_total{{queue="{QUEUE}"}} 10.0'
    worker.until(lambda: line in get(f"http://{page}/metrics")[1], "tasks are counted")
    text = get(f"http://{page}/metrics")[1]
    assert "queue_running_workers 1.0" in text
    assert "queue_running_job_processors 2.0" in text


async def test_it_begins_when_the_server_is_there_and_ends_also_while_it_is_not(
    server: ForebayServer, victim: Callable[..., Victim]
) -> None:
    page = f"127.0.0.1:{free_port()}"
    server.stop()
    worker = victim("--metrics", page)
    away = (503, "the worker hasn't begun\n")
    worker.until(lambda: get(f"http://{page}/healthz") == away, "it waits")
    server.start()
    worker.until(lambda: get(f"http://{page}/healthz") == (200, "ok\n"), "it is well")
    server.stop()
    other = victim("--metrics", f"127.0.0.1:{free_port()}")
    other.until(lambda: "numbers are at" in other.tail(), "it waits")
    other.signal(signal.SIGTERM)
    assert other.wait(10) == 0, other.tail()


async def test_its_settings_are_read_again(
    server: ForebayServer, victim: Callable[..., Victim], tmp_path: Path
) -> None:
    page = f"127.0.0.1:{free_port()}"
    config = tmp_path / "settings.yaml"
    config.write_text(f"shop/worker/queue/{QUEUE}/max_processors: 3\n")
    worker = victim("--metrics", page, "--config", str(config), "--service", "shop")

    def processors(count: int) -> Callable[[], bool]:
        return lambda: f"queue_running_job_processors {count}.0" in get(f"http://{page}/metrics")[1]

    worker.until(processors(3), "three")
    config.write_text(f"shop/worker/queue/{QUEUE}/max_processors: 5\n# again\n")
    worker.until(processors(5), "five")
    assert server.running


@pytest.mark.parametrize(
    ("place", "flags", "status", "said"),
    [
        ("nothing", [], 3, "'nothing' names no worker; write app.module:worker"),
        ("nothing.here:worker", [], 3, "there is no module nothing.here"),
        ("tests.integration.work.victim:QUEUE", [], 3, "QUEUE in tests.integration.work.victim is no worker"),
        ("tests.integration.work.victim:worker", [], 3, "has no store"),
        ("tests.integration.work.victim:worker", ["--metrics", "here"], 2, "'here' is not host:port"),
        (
            "tests.integration.work.victim:worker",
            ["--store", "memory://", "--config", "missing.yaml"],
            3,
            "missing.yaml can't be read",
        ),
        ("./app.py:worker", [], 3, "'./app.py:worker' names no worker; write app.module:worker"),
        ("json:dumps", [], 3, "dumps in json is no worker, and can't be called without arguments"),
        ("time:sleep", [], 3, "sleep in time is no worker, and can't be called without arguments"),
        ("json:JSONDecoder", [], 3, "JSONDecoder in json is no worker; let it be a forebay.work.Worker"),
        ("app/tasks.py:worker", [], 3, "there is no module app/tasks.py; write app.module:worker"),
    ],
)
def test_what_cannot_run_is_explained(
    place: str, flags: list[str], status: int, said: str, tmp_path: Path
) -> None:
    run = subprocess.run(
        [sys.executable, "-m", "forebay.app.cli", "worker", place, *flags],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert run.returncode == status, run.stderr
    assert said in run.stderr
