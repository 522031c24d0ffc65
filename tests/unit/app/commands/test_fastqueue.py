"""`forebay fastqueue` on folders of both formats: it says what is there, and what is wrong with it."""

import json
from pathlib import Path

import pytest

from forebay.app.cli import main
from forebay.app.commands import fastqueue, meter
from forebay.disk import RealDisk
from forebay.fastqueue.queue import FastQueue
from forebay.fastqueue.record import Record
from forebay.fastqueue.settings import FastQueueSettings, FormatName

BLOCKS = [b"hello", b"a" * 40, b"", b"world-world-world"]
each_format = pytest.mark.parametrize("layout", ["native", "governor"])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "queue"


def opened(folder: Path, layout: FormatName = "native") -> FastQueue:
    return FastQueue.open(RealDisk(folder), FastQueueSettings(format=layout), clock=lambda: 1)


def fill(folder: Path, layout: FormatName) -> None:
    """A queue of which the first block is delivered."""
    queue = opened(folder, layout)
    queue.push([b"delivered", *BLOCKS])
    queue.read(1, 1)
    queue.ack([0])
    queue.close()


def flip(folder: Path, offset: int) -> None:
    (chunk,) = [path for path in folder.iterdir() if path.name.startswith("0000")]
    data = bytearray(chunk.read_bytes())
    data[offset] ^= 0xFF
    chunk.write_bytes(data)


def said(capsys: pytest.CaptureFixture[str], *arguments: str, status: int = 0) -> dict[str, object]:
    """The JSON that a verb prints."""
    assert main(["fastqueue", *arguments, "--json"]) == status
    answer: dict[str, object] = json.loads(capsys.readouterr().out)
    return answer


@each_format
def test_inspect_says_what_is_there_and_changes_nothing(
    layout: FormatName, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fill(folder, layout)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    state = said(capsys, "inspect", str(folder))
    assert (state["format"], state["entry_count"], state["total_bytes"]) == (layout, 4, 62)
    assert main(["fastqueue", "inspect", str(folder)]) == 0
    assert "blocks     4" in capsys.readouterr().out
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


@each_format
def test_verify_finds_damage_and_changes_nothing(
    layout: FormatName, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fill(folder, layout)
    assert said(capsys, "verify", str(folder))["blocks"] == 4
    flip(folder, 150 if layout == "native" else 28)
    before = {path.name for path in folder.iterdir()}
    found = said(capsys, "verify", str(folder), status=1)
    assert not found["sound"]
    assert main(["fastqueue", "verify", str(folder)]) == 1
    assert f"forebay fastqueue repair {folder}" in capsys.readouterr().err
    assert {path.name for path in folder.iterdir()} == before


@each_format
def test_repair_sets_damage_aside_and_verify_is_content_then(
    layout: FormatName, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fill(folder, layout)
    flip(folder, 150 if layout == "native" else 28)
    assert main(["fastqueue", "repair", str(folder)]) == 0
    assert "quarantine" in capsys.readouterr().err
    assert list((folder / "quarantine").glob("*.bad"))
    assert said(capsys, "repair", str(folder))["damages"] == []
    queue = opened(folder, layout)
    found = [record.data for record in queue.read(9, 1 << 30)]
    queue.close()
    assert len(found) == 3
    assert set(found) < set(BLOCKS)


@each_format
def test_import_copies_what_is_not_delivered(
    layout: FormatName, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fill(folder, layout)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    target = tmp_path / "fresh"
    assert said(capsys, "import", str(folder), "--to", str(target)) == {"blocks": 4, "damages": []}
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    assert main(["fastqueue", "import", str(folder), "--to", str(target)]) == 3
    assert "--append" in capsys.readouterr().err
    assert main(["fastqueue", "import", str(folder), "--to", str(target), "--append"]) == 0
    queue = opened(target)
    assert [record.data for record in queue.read(9, 1 << 30)] == BLOCKS * 2
    queue.close()


@pytest.mark.parametrize("verb", ["inspect", "verify", "repair", "import"])
def test_a_long_look_at_a_folder_without_heads_says_how_far_it_is(
    verb: str, folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(folder, "governor")
    monkeypatch.setattr(meter, "LINE_SECONDS", 0.0)
    more = ["--to", f"{folder}-2"] if verb == "import" else []
    assert main(["fastqueue", verb, str(folder), *more]) == 0
    size = sum(path.stat().st_size for path in folder.glob("0000*"))
    assert f"look: {size:,} of {size:,} bytes" in capsys.readouterr().err


def test_import_keeps_the_times_at_which_blocks_came(folder: Path, tmp_path: Path) -> None:
    fill(folder, "native")
    assert main(["fastqueue", "import", str(folder), "--to", str(tmp_path / "fresh")]) == 0
    queue = opened(tmp_path / "fresh")
    assert [record.enqueued_at_us for record in queue.read(9, 1 << 30)] == [1] * 4
    queue.close()


def test_blocks_of_a_format_without_times_count_as_new(folder: Path, tmp_path: Path) -> None:
    fill(folder, "governor")
    assert main(["fastqueue", "import", str(folder), "--to", str(tmp_path / "fresh")]) == 0
    queue = opened(tmp_path / "fresh")
    assert all(record.enqueued_at_us > 1_000_000 for record in queue.read(9, 1 << 30))
    queue.close()


def test_import_takes_as_many_blocks_at_a_time_as_fit_into_memory() -> None:
    sizes = [5 << 20, 5 << 20, 20 << 20, *[1] * 1500]
    records = [Record(number, 0, bytes(size)) for number, size in enumerate(sizes)]
    batches = list(fastqueue._batches(records))
    assert [len(batch) for batch in batches] == [2, 1, 1000, 500]
    assert [record for batch in batches for record in batch] == records


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--as", "POST"], "isn't a request"),
        (["--as", "GET /v1/metrics text/plain"], "isn't a request"),
        (["--as", "POST v1/metrics text/plain"], "isn't a request"),
        (["--as", "POST /v1/metrics protobuf"], "isn't a request"),
        (["--as", "POST /v1/metrics text/plain more"], "isn't a request"),
        (["--header", "A: b"], "without --as"),
        (["--as", "POST / text/plain", "--header", "A b"], "isn't a header"),
        (["--as", "POST / text/plain", "--header", "A: b\r\nC: d"], "isn't a header"),
    ],
)
def test_a_request_that_makes_no_sense_is_refused_before_anything_is_made(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    fill(folder, "governor")
    target = tmp_path / "fresh"
    assert main(["fastqueue", "import", str(folder), "--to", str(target), *words]) == 3
    assert said in capsys.readouterr().err
    assert not target.exists()


def test_a_folder_that_is_none_is_said(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["fastqueue", "inspect", str(folder)]) == 3
    assert "there is no folder" in capsys.readouterr().err
    fill(folder, "native")
    assert main(["fastqueue", "inspect", str(tmp_path)]) == 3
    assert f"did you mean {folder}?" in capsys.readouterr().err
    assert main(["fastqueue", "import", str(folder), "--to", str(folder)]) == 3
    assert "into itself" in capsys.readouterr().err


def test_repair_of_a_folder_in_use_is_refused(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fill(folder, "native")
    queue = opened(folder)
    assert main(["fastqueue", "inspect", str(folder)]) == 0
    assert main(["fastqueue", "repair", str(folder)]) != 0
    assert "another process uses" in capsys.readouterr().err
    queue.close()
