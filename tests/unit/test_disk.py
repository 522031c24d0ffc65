"""The real disk: what it makes is safe when it says so."""

import os
from pathlib import Path

import pytest

from forebay.disk import RealDisk


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The folders that are synced, in order."""
    found: list[Path] = []
    sync = os.fsync

    def record(descriptor: int) -> None:
        found.append(Path(f"/proc/self/fd/{descriptor}").readlink())
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", record)
    return found


def test_the_name_of_every_folder_that_is_made_is_synced(tmp_path: Path, synced: list[Path]) -> None:
    disk = RealDisk(tmp_path / "a" / "b" / "c")
    disk.make_folder("")
    assert synced == [tmp_path, tmp_path / "a", tmp_path / "a" / "b"]
    disk.make_folder("quarantine")
    assert synced[3:] == [tmp_path / "a" / "b" / "c"]


def test_a_folder_that_is_there_costs_no_sync(tmp_path: Path, synced: list[Path]) -> None:
    RealDisk(tmp_path).make_folder("")
    assert synced == []


def test_a_relative_folder_is_made_and_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, synced: list[Path]
) -> None:
    monkeypatch.chdir(tmp_path)
    RealDisk(Path("a/b")).make_folder("")
    assert synced == [tmp_path, tmp_path / "a"]


@pytest.mark.parametrize("name", ["file", "file/queue"])
def test_a_file_in_the_way_is_an_error_and_stays(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").write_bytes(b"kept")
    with pytest.raises((FileExistsError, NotADirectoryError)):
        RealDisk(tmp_path / name).make_folder("")
    assert (tmp_path / "file").read_bytes() == b"kept"
