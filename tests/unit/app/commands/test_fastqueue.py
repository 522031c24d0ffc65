"""`forebay fastqueue` on folders of both formats: it says what is there, and what is wrong with it."""

import json
from pathlib import Path

import pytest

from forebay.app.cli import main
from forebay.disk import RealDisk
from forebay.fastqueue.queue import FastQueue
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
