"""Flows as programs: the example as a user runs it; killed, started again, and told to end."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from forebay.app.opening import open_log
from forebay.log.values import Append
from forebay.model import Message
from forebay.spark.logs import Face
from tests.servers.process import free_port
from tests.servers.spark import SparkCluster

pytest.importorskip("pyspark")

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "flows"
STORE = "sqlite:///forebay-data/forebay.db"
FOREBAY = [sys.executable, "-m", "forebay.app.cli"]

FLOWS = """
flows:
  - name: cleaning
    type: TRANSFORM
    source: {queue: orders, rows_max: 200}
    actions: [{name: parse, rows: "tests.spark.flow_functions:parse"}]
    sink: {queue: clean}
    every: 50ms
    max_attempts: 1
"""


def environment() -> dict[str, str]:
    paths = [str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH", "")]
    kept = {name: value for name, value in os.environ.items() if not name.startswith("FOREBAY_")}
    return {**kept, "PYTHONPATH": os.pathsep.join(paths)}


def forebay(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*FOREBAY, *arguments], cwd=folder, env=environment(), capture_output=True, text=True, timeout=280,
        check=True,
    )  # fmt: skip


def wait_until(check: Callable[[], bool], seconds: float = 200) -> None:
    until = time.monotonic() + seconds
    while not check():
        assert time.monotonic() < until, "it takes too long"
        threading.Event().wait(0.05)


@contextmanager
def opened(folder: Path) -> Iterator[Face]:
    face = Face(open_log, f"sqlite:///{folder / 'forebay-data' / 'forebay.db'}")
    try:
        yield face
    finally:
        face.close()


def read(face: Face, queue: str) -> list[Message]:
    found = [each for each in face(face.log.queues()) if each.name == queue]
    return [
        m for each in found for block in face(face.log.read(each, messages=100_000)) for m in block.decode()
    ]


def family(process: int) -> set[int]:
    """A process, and all that came out of it, as far as they are there."""
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = entry.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if fields[0] != "Z":
            parents.setdefault(int(fields[1]), []).append(int(entry.parent.name))
    found, waiting = set(), [process]
    while waiting:
        one = waiting.pop()
        found.add(one)
        waiting += parents.get(one, [])
    return found


def is_there(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_new_user_runs_the_example_in_two_commands(tmp_path: Path) -> None:
    commands = re.findall(r"^forebay (.*)$", (EXAMPLE / "README.md").read_text(), re.MULTILINE)[:2]
    for command in commands:
        forebay(tmp_path, *command.replace("examples/flows", str(EXAMPLE)).split())
    with opened(tmp_path) as face:
        clean = [json.loads(message.payload) for message in read(face, "orders-clean")]
        assert len(clean) == 13
        assert clean[0] == {"customer": "c1", "total": 10.5, "created_at": clean[0]["created_at"]}
        first, second = read(face, "orders-attention")
        assert (first.payload, second.transaction_id is not None) == (b"this is no order", True)
        stats = face(face.log.stats())
        assert all(group.difference == 0 for queue in stats.queues for group in queue.groups)
    assert list((tmp_path / "forebay-data" / "orders").glob("day=*/order-files-*.parquet"))


TIMED = """
flows:
  - name: polling
    type: TIMED_DATA_SOURCE
    source: {function: "tests.spark.flow_functions:poll_left"}
    actions: [{name: twice, rows: "tests.spark.flow_functions:twice"}]
    sink: {queue: polled}
    every: 100ms
archive: {path: archived, queues: [polled], every: 1s, after: 0s, wait_max: 0s}
"""


def test_numbers_are_served_the_archive_runs_on_its_schedule_and_an_end_is_no_error(tmp_path: Path) -> None:
    """The signal is for the whole group, Java too, as a service manager sends it."""
    (tmp_path / "flows.yaml").write_text(TIMED)
    port = free_port()
    command = [*FOREBAY, "pipeline", "run", "flows.yaml", "--store", STORE, "--metrics", f"127.0.0.1:{port}"]
    (tmp_path / "forebay-data").mkdir()
    with (tmp_path / "said").open("w") as said:
        running = subprocess.Popen(
            command, cwd=tmp_path, env=environment(), stderr=said, start_new_session=True
        )  # fmt: skip
    try:
        wait_until(lambda: _number(port, 'forebay_flow_rows_out_total{flow="polling"') >= 6)
        wait_until(lambda: _number(port, 'forebay_archive_messages_total{queue="polled"}') > 0)
        assert _number(port, 'forebay_flow_running{flow="the archive"') == 1
        os.killpg(running.pid, signal.SIGTERM)
        assert running.wait(30) == 0
    finally:
        running.kill()
        running.wait()
    text = (tmp_path / "said").read_text()
    assert "stopped in" in text.splitlines()[-1]
    assert "Traceback" not in text
    assert not re.search('"level":"(error|warning)"', text)


def _number(port: int, name: str) -> float:
    """Give the number whose name begins so; -1 where there is none yet."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
            lines = answer.read().decode().splitlines()
    except OSError:
        return -1
    return max([float(line.rpartition(" ")[2]) for line in lines if line.startswith(name)], default=-1)


def test_a_flow_that_keeps_failing_is_given_up_where_it_runs_once(tmp_path: Path) -> None:
    (tmp_path / "flows.yaml").write_text(TIMED.replace(":poll_left", ":poll_nothing"))
    command = [*FOREBAY, "pipeline", "run", "flows.yaml", "--once", "--store", STORE]
    (tmp_path / "forebay-data").mkdir()
    done = subprocess.run(
        command, cwd=tmp_path, env=environment(), text=True, capture_output=True, timeout=280, check=False
    )
    assert done.returncode == 1
    assert "flow polling failed, and is given up after 3 tries: OSError: nobody answers call 2" in done.stderr


def test_executors_of_a_cluster_find_the_functions_beside_the_file(tmp_path: Path) -> None:
    shop, elsewhere = tmp_path / "shop", tmp_path / "elsewhere"
    for folder in (shop, elsewhere, elsewhere / "forebay-data"):
        folder.mkdir()
    (shop / "beside.py").write_text("def mark(row):\n    return {'value': row['value'] + b'!'}\n")
    (shop / "flows.yaml").write_text(FLOWS.replace("tests.spark.flow_functions:parse", "beside:mark"))
    with opened(elsewhere) as face:
        queue = face(face.log.create_queue("orders"))
        face(face.log.commit([Append.of(queue, [Message(b"one"), Message(b"two")])]))
        with SparkCluster(workers=1) as cluster:
            given = ["--once", "--master", cluster.url, "--store", STORE.replace("///", f"///{elsewhere}/")]
            forebay(elsewhere, "pipeline", "run", str(shop / "flows.yaml"), *given)
        assert [message.payload for message in read(face, "clean")] == [b"one!", b"two!"]


def test_what_is_killed_goes_on_and_what_is_told_to_end_ends(tmp_path: Path) -> None:
    """`forebay up`, whose pipeline is killed while it works; then SIGTERM: all within 15 seconds."""
    (tmp_path / "flows.yaml").write_text(FLOWS)
    (tmp_path / "forebay-data").mkdir()
    count = 3_000
    orders = [
        Message(b'{"order":%d,"price":1,"count":2}' % n if n % 100 else b"bad", transaction_id=f"o{n}")
        for n in range(count)
    ]
    with opened(tmp_path) as face:
        queue = face(face.log.create_queue("orders"))
        face(face.log.commit([Append.of(queue, orders[at : at + 500]) for at in range(0, count, 500)]))
        port = free_port()
        command = [*FOREBAY, "up", "--flows", "flows.yaml", "--flows-metrics", f"127.0.0.1:{port}"]
        command += ["--listen", f"127.0.0.1:{free_port()}"]
        variables = {**environment(), "FOREBAY_UP_SNAPSHOT": "false"}  # one Java is enough
        running = subprocess.Popen(command, cwd=tmp_path, env=variables)
        try:
            wait_until(lambda: len(read(face, "clean")) > 0)
            (pipeline,) = (each for each in family(running.pid) if _is_pipeline(each))
            os.kill(pipeline, signal.SIGKILL)
            killed_at = len(read(face, "clean"))
            assert killed_at < count - 30, "it was killed while it worked"
            wait_until(lambda: len(read(face, "clean")) >= count - 30)
            wait_until(lambda: _books(face)[1] == 0)
            wait_until(lambda: _number(port, 'forebay_flow_rows_in_total{flow="cleaning"') > 0)
            everybody = family(running.pid)
            began = time.monotonic()
            running.send_signal(signal.SIGTERM)
            assert running.wait(30) == 0
            assert time.monotonic() - began < 15
            wait_until(lambda: not any(map(is_there, everybody)), 5)
        finally:
            running.kill()
            running.wait()
        wanted = [f"o{n}" for n in range(count) if n % 100]
        assert [message.transaction_id for message in read(face, "clean")] == wanted
        assert _books(face) == (count - 30, 0, 30, 0)


def _is_pipeline(process: int) -> bool:
    try:
        line = Path(f"/proc/{process}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    return b"pipeline" in line


def _books(face: Face) -> tuple[int, int, int, int]:
    stats = face(face.log.stats())
    (found,) = (g for q in stats.queues for g in q.groups if g.group.name == "cleaning")
    return found.done, found.ready, found.dead, found.difference
