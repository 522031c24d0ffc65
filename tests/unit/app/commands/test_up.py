"""`forebay up` ends when it is told to, also before its server has said a word."""

import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from forebay.app.commands.up import Child, _check, _helpers, _look_after, _Up, ready_file
from forebay.app.settings import Settings, StoreSection, UpSettings
from forebay.model import Misconfigured
from forebay.observe.programs import Program, programs_file, read_programs

SILENT = "import time; time.sleep(60)"


@pytest.fixture
def flows(tmp_path: Path) -> Path:
    """Give a file with a flow."""
    path = tmp_path / "flows.yaml"
    path.write_text("flows: [{name: copy, type: TRANSFORM, source: {queue: a}, sink: {queue: b}}]\n")
    return path


@pytest.fixture(autouse=True)
def signals() -> Iterator[None]:
    """Put back who hears signals."""
    kept = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield
    for number, heard in kept.items():
        signal.signal(number, heard)


def test_a_server_that_does_not_come_up_does_not_hold_up_a_signal(capsys: pytest.CaptureFixture[str]) -> None:
    server = Child("server", [], said=True)
    server._command = [sys.executable, "-c", SILENT]
    running = _Up(server, Settings())
    waiting = threading.Event()
    first_line = server.first_line

    def told(ending: threading.Event) -> str:
        waiting.set()
        return first_line(ending)

    server.first_line = told  # type: ignore[method-assign]  # to know when it waits

    def tell() -> None:
        assert waiting.wait(10)
        signal.raise_signal(signal.SIGTERM)

    teller = threading.Thread(target=tell)
    teller.start()
    began = time.monotonic()
    assert running.run() == 0
    teller.join()
    assert time.monotonic() - began < 10
    assert server.status == -signal.SIGTERM
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("status", "ran", "state"), [(3, 0, "given up"), (1, 0, "waiting"), (3, 99, "waiting")]
)
def test_a_helper_that_refuses_to_run_is_not_started_again(status: int, ran: float, state: str) -> None:
    helper = Child("pipeline", [])
    helper._command = [sys.executable, "-c", f"raise SystemExit({status})"]
    _look_after(helper)
    assert helper.known.state == "running"
    helper.wait(time.monotonic() + 20)
    helper.known = helper.known.started(time.monotonic() - ran)
    _look_after(helper)
    assert helper.known.state == state


def test_flows_without_spark_are_refused_before_anything_starts(
    flows: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", None)
    with pytest.raises(Misconfigured, match=r"flows need Spark; pip install 'forebay\[spark\]'"):
        _check(Settings(up=UpSettings(flows=str(flows))))


def test_helpers_serve_their_numbers_unless_the_address_is_taken(
    flows: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        settings = UpSettings(
            flows=str(flows), flows_metrics=address, worker="a:b", worker_metrics="127.0.0.1:0"
        )
        worker, pipeline = _helpers(Settings(up=settings), "http://127.0.0.1:1")
    assert worker._command[-2:] == ["--metrics", "127.0.0.1:0"]
    assert "--metrics" not in pipeline._command
    assert f"the numbers of the pipeline are not served: can't listen on {address}" in caplog.text


def test_flows_that_are_told_another_store_than_the_server_are_refused(flows: Path) -> None:
    pytest.importorskip("pyspark")
    flows.write_text(f"store: sqlite:///elsewhere.db\n{flows.read_text()}")
    settings = Settings(up=UpSettings(flows=str(flows)))
    with pytest.raises(Misconfigured, match=r"another store than the server: sqlite:///elsewhere\.db"):
        _check(settings)


def test_the_fold_is_left_out_where_it_cannot_run_and_that_is_said(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    running = _Up(Child("server", []), Settings(), ["--data", "folder"])
    monkeypatch.setattr("forebay.app.commands.up.spark_trouble", lambda: "there is no Java")
    assert running._snapshot() == []
    assert "there is no Java" in caplog.text
    monkeypatch.setattr("forebay.app.commands.up.spark_trouble", lambda: None)
    (child,) = running._snapshot()
    assert child._command[3:7] == ["snapshot", "run", "--data", "folder"]
    monkeypatch.setattr(running, "_settings", Settings(up=UpSettings(snapshot=False)))
    assert running._snapshot() == []


def test_how_the_helpers_are_is_written_down_for_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = Settings(store=StoreSection(data=str(tmp_path)))
    running = _Up(Child("server", []), settings)
    monkeypatch.setattr("forebay.app.commands.up.spark_trouble", lambda: "there is no Java")
    running._helpers = [Child("pipeline", [], ready=ready_file(settings, "pipeline")), *running._snapshot()]
    (pipeline,) = running._helpers
    ready = f"from forebay.app.commands.readiness import say_ready; say_ready(); {SILENT}"

    def noted() -> dict[str, Program]:
        running._note()
        found = read_programs(programs_file(str(tmp_path)), os.getpid())
        return {each.name: each for each in found}

    assert noted()["pipeline"].state == "starting"
    assert noted()["snapshot"] == Program(name="snapshot", state="missing", reason="there is no Java")
    pipeline._command = [sys.executable, "-c", "raise SystemExit(7)"]
    _look_after(pipeline)
    pipeline.wait(time.monotonic() + 20)
    _look_after(pipeline)
    found = noted()["pipeline"]
    assert (found.state, found.reason) == ("waiting", "status 7")
    assert found.again_at is not None
    assert time.time() < found.again_at / 1e6 < time.time() + 3
    pipeline._command = [sys.executable, "-c", ready]
    pipeline.known = msgspec.structs.replace(pipeline.known, due_at=0.0)
    _look_after(pipeline)
    deadline = time.monotonic() + 20
    while noted()["pipeline"].state != "running":
        assert pipeline.is_alive
        assert time.monotonic() < deadline
        threading.Event().wait(0.02)
    pipeline.signal(signal.SIGKILL)
    pipeline.wait(time.monotonic() + 20)
    assert not ready_file(settings, "pipeline").exists()
    running._stop()
    assert not programs_file(str(tmp_path)).exists()
