"""`forebay relay plan` is the sizing formula, and `dead` lists what was given up."""

import asyncio
import json
from pathlib import Path

import msgspec
import pytest

from forebay.app.cli import main
from forebay.deliver.dead_letters import DeadLetter
from forebay.deliver.entry_data import encode_request
from forebay.deliver.queue_settings import SendQueueSettings
from forebay.deliver.storage import open_send_queue
from forebay.deliver.values import Request
from forebay.model import SystemClock


def test_the_example_of_the_original(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["relay", "plan", "--queue-workers", "8", "--latency", "50ms"]) == 0
    said = capsys.readouterr().out
    assert "160.0" in said
    assert "1m2s" in said


def test_a_plan_with_traffic_says_when_it_never_catches_up(capsys: pytest.CaptureFixture[str]) -> None:
    main(["relay", "plan", "--queue-workers", "1", "--latency", "1s", "--rate", "2"])
    assert "never" in capsys.readouterr().out


def test_a_plan_for_programs(capsys: pytest.CaptureFixture[str]) -> None:
    main(["relay", "plan", "--queue-workers", "8", "--json"])
    assert json.loads(capsys.readouterr().out)["drain_seconds"] == 62.5


def test_a_plan_goes_by_the_disk_and_the_memory_that_destinations_share(
    capsys: pytest.CaptureFixture[str],
) -> None:
    main(["relay", "plan", "--disk", "300M", "--memory", "1G", "--destinations", "3", "--json"])
    found = json.loads(capsys.readouterr().out)
    assert found["disk_bytes"] == 85_000_000
    assert found["memory_bytes"] == 28_333_333
    assert found["entries"] == 85_000_000 // 50_000


@pytest.mark.parametrize("words", [["--latency", "0s"], ["--entry", "0"]])
def test_a_plan_that_makes_no_sense_is_refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["relay", "plan", *words]) == 3
    assert "more than 0" in capsys.readouterr().err


def test_a_relay_that_strangers_could_reach_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["relay", "--listen", "0.0.0.0:0", "--to", "http://127.0.0.1:1"]) == 3
    assert "--insecure" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "--to"),
        (["--to", "prometheus:9090"], "http://host:8080/path"),
        (["--to", "http://a/x", "--to", "http://a/x"], "twice"),
    ],
)
def test_a_relay_with_bad_destinations_is_refused(
    words: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["relay", "--listen", "127.0.0.1:0", "--data", str(tmp_path), *words]) == 3
    assert said in capsys.readouterr().err


async def bury(folder: Path, *, listed: bool = False) -> None:
    clock = SystemClock().now
    queue = await open_send_queue(folder / "host-1", SendQueueSettings(path=str(folder)), clock=clock)
    request = encode_request(Request(b"POST", b"/api/v1/write", (), b"x" * 10))
    letter = DeadLetter(
        buried_at_us=clock(), enqueued_at_us=clock(), attempts=3, error_class="client_error", status=400,
        reason="the destination answered 400 Bad Request", answer=b"out of order", data=request,
    )  # fmt: skip
    await queue.push(request)
    queue.bury(await queue.take(), msgspec.msgpack.encode(letter))
    while not queue.dead_count:
        await queue._next_round()
    if listed:
        assert main(["relay", "dead", "--data", str(folder), "--json"]) == 0
    await queue.close()


def test_dead_letters_are_listed_with_their_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asyncio.run(bury(tmp_path))
    assert main(["relay", "dead", "--data", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert "POST /api/v1/write 10 bytes" in said
    assert main(["relay", "dead", "--data", str(tmp_path), "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["destination"], row["status"], row["answer"]) == ("host-1", 400, "out of order")


def test_dead_letters_of_a_relay_that_runs_are_listed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asyncio.run(bury(tmp_path, listed=True))
    assert len(json.loads(capsys.readouterr().out)) == 1


def test_a_folder_that_isnt_there_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["relay", "dead", "--data", str(tmp_path / "none")]) == 3
    assert "--data" in capsys.readouterr().err
